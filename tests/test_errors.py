"""Every error has its own code, and can be pickled and copied."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import bcos_sdk.errors
from bcos_sdk.errors import BcosError, MissingExtraError
from bcos_sdk.results import Completeness


def subclasses(kind: type[BcosError]) -> list[type[BcosError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in subclasses(below))]


KINDS = [kind for kind in subclasses(BcosError) if kind.__module__ == bcos_sdk.errors.__name__]

VALUES: dict[str, Any] = {
    "Certificate": Completeness(logit=1.0, sum=1.5, scale=2.0, tolerance=1e-5),
    "bool | None": True,
    "list[Any]": ["a result", None],
    "str": "text",
    "str | None": "text",
    "tuple[str, ...]": ("one", "two"),
}


def make(kind: type[BcosError]) -> BcosError:
    """An error of this class with a value for every argument."""
    parameters = inspect.signature(kind).parameters.values()
    return kind(**{parameter.name: VALUES[parameter.annotation] for parameter in parameters})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("transfer", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_survives_pickling_and_copying(kind: type[BcosError], transfer: Any) -> None:
    error = make(kind)
    error.retryable = True
    error.hint = "what to do"
    error.source = "where"
    error.note = ["added later"]  # type: ignore[attr-defined]
    arrived = transfer(error)
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert arrived.args == error.args
    assert vars(arrived) == vars(error)
    assert (arrived.code, arrived.exit_code) == (error.code, error.exit_code)


def test_a_pickled_missing_extra_error_is_still_an_import_error() -> None:
    arrived = pickle.loads(pickle.dumps(MissingExtraError("needs torch", hint="Install it")))
    assert isinstance(arrived, ImportError)
    assert arrived.msg == "needs torch"


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
