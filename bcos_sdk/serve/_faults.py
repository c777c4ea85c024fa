"""Errors as answers: the code of an error selects the HTTP status. Hints for programmers stay in the log."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from bcos_sdk._plain_text import plain
from bcos_sdk.errors import (
    BcosError,
    ClientClosedError,
    DeadlineError,
    DecoderCrashedError,
    DecodingTimeoutError,
    ImagesFailedError,
    ImageTooLargeError,
    InputError,
    OutOfMemoryError,
    QueueFullError,
    UnknownTargetError,
    UnreadableImageError,
)
from bcos_sdk.results import Failure
from bcos_sdk.serve._request_ids import current_request_id

__all__ = ["RETRY_SECONDS", "HttpError", "answer_to", "status_of"]

RETRY_SECONDS = 1
"""What `Retry-After` says. A batch takes less than this on any device that is worth serving from."""

_STATUS: tuple[tuple[type[BcosError], int], ...] = (  # the first that fits
    (ImageTooLargeError, 413),
    (DecodingTimeoutError, 413),
    (UnreadableImageError, 415),
    (DecoderCrashedError, 415),
    (InputError, 422),
    (QueueFullError, 503),
    (OutOfMemoryError, 503),
    (ClientClosedError, 503),
    (DeadlineError, 504),
)
_RETRYABLE = (408, 429, 503, 504)


class HttpError(Exception):
    """A request that is answered with this status, code and message."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    @property
    def response(self) -> JSONResponse:
        """The answer: `error` is the text that clients of the protocols show."""
        headers = dict(self.headers)
        if self.status == 503:
            headers["Retry-After"] = str(RETRY_SECONDS)
        body: dict[str, Any] = {
            "error": plain(self.message),
            "code": self.code,
            "retryable": self.status in _RETRYABLE,
            "request_id": current_request_id(),
        }
        return JSONResponse(body, self.status, headers=headers)


def status_of(error: BcosError) -> int:
    """The HTTP status of an error; 500 if the fault is the server's."""
    if isinstance(error, ImagesFailedError):
        return 422
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def answer_to(error: BcosError) -> HttpError:
    """The answer to an error. What failed inside the server is in its log, not in the answer."""
    status = status_of(error)
    if status == 500:
        return HttpError(500, error.code, "the server could not compute the answer; its log has the cause")
    if isinstance(error, ImagesFailedError):
        first = next(result for result in error.results if isinstance(result, Failure))
        named = first.message if first.source in first.message else f"{first.source}: {first.message}"
        return HttpError(status, first.code, named)
    if isinstance(error, UnknownTargetError) and error.hint:  # names similar classes
        return HttpError(status, error.code, f"{error.message}. {error.hint}")
    return HttpError(status, error.code, error.message)
