"""What a client returns for one image, and how it is restored from the name of its class and its JSON document."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import ValidationError

from bcos_sdk.errors import IncompleteExplanationError, first_faults
from bcos_sdk.results._explanation import Explained
from bcos_sdk.results._records import Failure, Prediction

__all__ = ["RESULT_KINDS", "Result", "result_of"]

Result: TypeAlias = Prediction | Explained | Failure
"""What a client returns for one image."""

RESULT_KINDS: dict[str, type[Prediction] | type[Explained] | type[Failure]] = {
    kind.__name__: kind for kind in (Prediction, Explained, Failure)
}
"""The classes of results by name."""


def result_of(kind: Any, document: Any) -> Result:
    """The result of the class named `kind` from its JSON document; a `ValueError` that says what is wrong with it."""
    if not isinstance(kind, str) or kind not in RESULT_KINDS:
        raise ValueError(f"it is none of {', '.join(RESULT_KINDS)}")
    try:
        return RESULT_KINDS[kind].model_validate(document)
    except ValidationError as error:
        raise ValueError(first_faults(error)) from None
    except IncompleteExplanationError as error:
        raise ValueError(error.message) from None
