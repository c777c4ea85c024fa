"""`KeyboardInterrupt` at a chosen point of a call: where Ctrl-C is really delivered, which is after a call returns.

A trace function that raises would raise at points where no signal is ever delivered, for example before the `__exit__`
of a `with` statement. So the trace function only sets the flag of SIGINT, and the interpreter delivers it.
"""

from __future__ import annotations

import ctypes
import dis
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

__all__ = ["Point", "interrupt", "points_of"]

Point = tuple[CodeType, int]
"""The beginning of a line, or a call: the code, and the offset of the instruction."""


class _Fuse:
    """Sets the flag of SIGINT when it is freed. This is done in C, so that the flag is not delivered in the tracer."""


_set_flag = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyErr_SetInterrupt", ctypes.pythonapi))


def points_of(call: Callable[[], object], folders: tuple[str, ...]) -> list[Point]:
    """Every line and call instruction that `call` executes in files whose path contains one of `folders`, in order."""
    seen: dict[Point, None] = {}
    _trace(call, lambda point: seen.setdefault(point), folders)
    return list(seen)


def interrupt(call: Callable[[], object], at: Point, folders: tuple[str, ...]) -> bool:
    """Run the call with an interrupt at this point. Return whether it was raised."""
    fuses = [_Fuse()]
    alarm = weakref.ref(fuses[0], _set_flag)

    def burn(point: Point) -> object:
        if point != at or not fuses:
            return None
        sys.settrace(None)  # otherwise the flag would be delivered in the next call of the tracer
        return fuses.pop()

    try:
        _trace(call, burn, folders)
    except KeyboardInterrupt:
        return True
    finally:
        del alarm
    return False


def _trace(call: Callable[[], object], visit: Callable[[Point], object], folders: tuple[str, ...]) -> None:
    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        fuse: object = None  # the last reference to it: it is freed when this function has returned
        if event == "call":
            if not any(folder in frame.f_code.co_filename for folder in folders):
                return None
            frame.f_trace_opcodes = True
        elif event in ("line", "opcode"):  # Python 3.13.0 does not report the instructions of every frame
            code, place = frame.f_code, frame.f_lasti
            if event == "line" or dis.opname[code.co_code[place]].startswith("CALL"):
                fuse = visit((code, place))
                frame.f_trace_opcodes = fuse is None  # after a line comes its first instruction, even without tracing
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
