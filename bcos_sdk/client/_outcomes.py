"""The outcome of one image: a result, or the error of this image as a value, so that the other images go on.

Errors are stored without their traceback. A traceback references the frames that hold the image's bytes, so a stream
with many bad images would fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from bcos_sdk.client._arguments import OnError
from bcos_sdk.errors import BcosError, ClientClosedError, ImagesFailedError, InferenceError, OutOfMemoryError
from bcos_sdk.results import Failure

__all__ = ["Outcomes", "as_outcome", "collect", "with_failures"]

Result = TypeVar("Result")
Outcomes: TypeAlias = Iterator[tuple[str, Result | BcosError]]
"""The source and the outcome of each image, in order."""

_MOST_LISTED = 5


def as_outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the call returns, or the error that it raised as a `BcosError` without traceback."""
    try:
        return call(*arguments)
    except Exception as error:  # an unexpected error of one image must not lose the other images
        return _without_traceback(error)


def with_failures(outcomes: Outcomes[Result], check_process: Callable[[], None]) -> Iterator[Result | Failure]:
    """Yield results, and a `Failure` in place of each error. Raise `ClientClosedError` if the client was closed.

    `check_process` raises it in a forked child, where the client has no threads and would never finish an image.
    """
    while True:
        check_process()
        source, outcome = next(outcomes, ("", None))
        if outcome is None:
            return
        if isinstance(outcome, ClientClosedError):
            raise outcome
        yield Failure.of(outcome, source) if isinstance(outcome, BcosError) else outcome


def collect(outcomes: Outcomes[Result], *, on_error: OnError, single: bool) -> list[Result | Failure]:
    """Return all results, with a `Failure` in place of each error.

    If some images failed and `on_error` is "raise", raise the error of a single image, or an `ImagesFailedError` for a
    list of images.
    """
    errors: list[BcosError] = []
    results: list[Result | Failure] = []
    for source, outcome in outcomes:
        if isinstance(outcome, BcosError):
            errors.append(outcome)
            results.append(Failure.of(outcome, source))
        else:
            results.append(outcome)
    if errors and on_error == "raise":
        raise errors[0] if single else _images_failed(results)
    return results


def _without_traceback(error: Exception) -> BcosError:
    if isinstance(error, MemoryError):
        error = OutOfMemoryError("there is not enough memory")
    elif not isinstance(error, BcosError):
        error = InferenceError(f"unexpected error: {error!r}")
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _images_failed(results: list[Result | Failure]) -> ImagesFailedError:
    failures = [result for result in results if isinstance(result, Failure)]
    lines = [f"  {failure.source}: [{failure.code}] {failure.message}" for failure in failures[:_MOST_LISTED]]
    more = [f"  and {len(failures) - _MOST_LISTED} more"] if len(failures) > _MOST_LISTED else []
    return ImagesFailedError(
        "\n".join([f"{len(failures)} of {len(results)} images failed:", *lines, *more]),
        results=list(results),
        hint='The attribute `results` of this error has the other results; on_error="return" returns them instead.',
    )
