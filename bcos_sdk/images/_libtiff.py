"""Keep libtiff from printing messages to stderr while Pillow decodes a damaged TIFF file with it.

Pillow reports the error, but does not replace libtiff's handler, which prints it as well, without the name of the file.
The handler is that of the whole process, so it is replaced for TIFF files only.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from PIL import _imaging

__all__ = ["libtiff_silenced"]

_LOCK = threading.Lock()
_callers = 0
_handler: Any = None


@contextmanager
def libtiff_silenced() -> Iterator[None]:
    """Replace libtiff's error handler by none, and restore it when the last thread leaves."""
    global _callers, _handler
    set_handler = _set_error_handler()
    with _LOCK:
        if _callers == 0:
            _handler = set_handler(None)
        _callers += 1
    try:
        yield
    finally:
        with _LOCK:
            _callers -= 1
            if _callers == 0:
                set_handler(_handler)


@cache
def _set_error_handler() -> Callable[[Any], Any]:
    """libtiff's function that sets a handler and returns the one before; without effect if it is not found."""
    try:  # the loader also searches the libraries that Pillow's module is linked with
        function = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
    except (AttributeError, OSError, TypeError):
        return lambda _: None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p]
    return function
