"""The id of a request: taken from the caller or made here, in the answer and in every line of the log."""

from __future__ import annotations

import logging
import random
import re
from contextvars import ContextVar

__all__ = ["HEADER", "AddRequestId", "current_request_id", "request_id_from", "request_id_of_this_task"]

HEADER = "x-request-id"

_VALID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

request_id_of_this_task: ContextVar[str | None] = ContextVar("request_id", default=None)


def request_id_from(given: str | None) -> str:
    """The caller's id if it is short and plain, else a new one: it is written into logs."""
    return given if given is not None and _VALID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def current_request_id() -> str | None:
    """The id of the request that this task answers; None outside of a request."""
    return request_id_of_this_task.get()


class AddRequestId(logging.Filter):
    """Adds the attribute `request_id` to records."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current_request_id() or "-"
        return True
