"""What TensorRT says: a native logger that is almost silent, and a recorder of its errors.

A logger in Python would take the GIL for every message. TensorRT for RTX also compiles in threads of its own: such a
thread would wait for the GIL while a thread that has it waits for the compilation. A recorder
is called for errors only.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from bcos_sdk._logs import log
from bcos_sdk.backends._graph import is_out_of_memory

__all__ = ["native_logger", "new_recorder"]

_MOST_ERRORS = 64


@cache
def native_logger(trt: Any) -> Any:
    """The logger of a TensorRT module. It prints internal errors only: others reach the recorder.

    TensorRT accepts only one logger per process, so it is created once.
    """
    return trt.Logger(trt.Logger.INTERNAL_ERROR)


def new_recorder(trt: Any) -> Any:
    """A recorder of errors with `codes`, `last_error` and `out_of_memory()`. Each error is logged as well."""
    recorder = _recorder_class(trt)
    return recorder()


@cache
def _recorder_class(trt: Any) -> Any:
    class Recorder(trt.IErrorRecorder):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IErrorRecorder.__init__(self)
            self.codes: list[Any] = []
            self.texts: list[str] = []
            self.dropped = False
            self._lock = threading.Lock()

        @property
        def last_error(self) -> str:
            return self.texts[-1] if self.texts else "TensorRT gave no reason"

        def out_of_memory(self) -> bool:
            """Whether memory ran out since the recorder was made or cleared."""
            return trt.ErrorCodeTRT.FAILED_ALLOCATION in self.codes or any(
                is_out_of_memory(RuntimeError(text)) for text in self.texts
            )

        def report_error(self, code: Any, text: str) -> bool:
            with self._lock:
                self.dropped = len(self.codes) >= _MOST_ERRORS
                if self.dropped:
                    del self.codes[0], self.texts[0]
                self.codes.append(code)
                self.texts.append(text)
            log.error("TensorRT: %s", text)
            return False

        def num_errors(self) -> int:
            return len(self.codes)

        def get_error_code(self, place: int) -> Any:
            return self.codes[place]

        def get_error_desc(self, place: int) -> str:
            return self.texts[place]

        def has_overflowed(self) -> bool:
            return self.dropped

        def clear(self) -> None:
            with self._lock:
                self.codes.clear()
                self.texts.clear()
                self.dropped = False

    return Recorder
