"""The end of the process while a thread still runs native code that cannot be ended.

The destructors of a runtime's libraries would free what the thread uses. And until Python 3.13 a thread that returns
to the interpreter while it exits is unwound through C++ frames, which ends the process with `std::terminate`. Either
way a program that was successful would crash at its end.
"""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["leave_threads_alone"]


def leave_threads_alone() -> None:
    """Let the process end without destructors of native libraries, with the exit code that it would have had.

    A thread that returns to the interpreter meanwhile waits for this end. Call it from `atexit`. Where the C library or
    the C++ library does not have these functions, nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # CDLL(None) is a TypeError on Windows
        libc = ctypes.CDLL(None)
        address = ctypes.c_void_p
        libc.on_exit.argtypes = [address, address]
        libc.on_exit(ctypes.cast(libc._exit, address), None)  # glibc calls it with the exit code, before destructors
        set_terminate = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]
        set_terminate.argtypes, set_terminate.restype = [address], address
        set_terminate(ctypes.cast(libc.pause, address))
