"""Outcomes as a caller wants them: failures raised at the end, or in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

from bcos_sdk.client._engine import Outcomes
from bcos_sdk.errors import BcosError, ClientClosedError, ImagesFailedError
from bcos_sdk.images import ImageSource
from bcos_sdk.results import Failure

__all__ = ["Images", "OnError", "collect", "in_place"]

Images: TypeAlias = "ImageSource | Iterable[ImageSource]"
OnError = Literal["raise", "return"]
Result = TypeVar("Result")


def in_place(outcomes: Outcomes[Result]) -> Iterator[Result | Failure]:
    """A `Failure` where there is no result; a client that was closed ends the stream with its error."""
    for source, outcome in outcomes:
        if isinstance(outcome, ClientClosedError):
            raise outcome
        yield Failure.of(outcome, source) if isinstance(outcome, BcosError) else outcome


def collect(outcomes: Outcomes[Result], *, on_error: OnError, lone: bool) -> list[Result | Failure]:
    """All results. If some failed and `on_error` is "raise": the error of a lone image, or one for the whole list."""
    errors: list[BcosError] = []
    results: list[Result | Failure] = []
    for source, outcome in outcomes:
        if isinstance(outcome, BcosError):
            errors.append(outcome)
            results.append(Failure.of(outcome, source))
        else:
            results.append(outcome)
    if errors and on_error == "raise":
        raise errors[0] if lone else _failed(results)
    return results


def _failed(results: list[Result | Failure]) -> ImagesFailedError:
    failures = [result for result in results if isinstance(result, Failure)]
    lines = [f"  {failure.source}: [{failure.code}] {failure.message}" for failure in failures[:5]]
    more = [f"  and {len(failures) - 5} more"] if len(failures) > 5 else []
    return ImagesFailedError(
        "\n".join([f"{len(failures)} of {len(results)} images failed:", *lines, *more]),
        results=list(results),
        hint='The other results are in this error\'s `results`; on_error="return" gives them without raising.',
    )
