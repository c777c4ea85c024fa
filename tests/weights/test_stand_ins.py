"""Checkpoints of training frameworks: their objects are replaced, and no code of the file or of a framework runs."""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkpoints import saved

from bcos_sdk.errors import UnsafeCheckpointError
from bcos_sdk.weights import StandIn, read_checkpoint

STATE = {"linear.weight": torch.arange(6.0)}


@pytest.mark.parametrize(
    "extra",
    [
        argparse.Namespace(lr=0.1, labels=["a"]),
        pathlib.PurePosixPath("/data/flowers"),
        np.float64(0.25),
        np.arange(3),
        np.dtype("float32"),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        collections.defaultdict(list, {"loss": [1.0]}),
        {"type": int, "nested": [argparse.Namespace(path=pathlib.PurePosixPath("x"))]},
    ],
    ids=lambda extra: type(extra).__name__,
)
def test_harmless_objects_beside_the_weights_do_not_stop_the_load(tmp_path: Path, extra: Any) -> None:
    path = saved(tmp_path, {"state_dict": STATE, "hyper_parameters": extra})
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(path, weights_only=True)
    contents = read_checkpoint(path)
    assert torch.equal(contents["state_dict"]["linear.weight"], STATE["linear.weight"])


def test_a_namespace_keeps_its_fields_and_a_mapping_its_items(tmp_path: Path) -> None:
    extra = {"args": argparse.Namespace(lr=0.1, names=["a", "b"]), "log": collections.defaultdict(list, {"x": [1]})}
    contents = read_checkpoint(saved(tmp_path, STATE | extra))
    assert isinstance(contents["args"], StandIn)
    assert contents["args"].state == {"lr": 0.1, "names": ["a", "b"]}
    assert contents["log"] == {"x": [1]}
    assert contents["log"].get("y") is None


FRAMEWORK = """
calls = []

class AttributeDict(dict):
    def __new__(cls, *arguments):
        calls.append("new")
        return super().__new__(cls, *arguments)
    def __setitem__(self, key, value):
        calls.append("setitem")
        super().__setitem__(key, value)
    def __setstate__(self, state):
        calls.append("setstate")

class Reduced:
    def __reduce__(self):
        return (called, ("anything",), {"state": 1})

def called(*arguments):
    calls.append("called")
    return AttributeDict()
"""
"""A module that takes the place of one of Lightning's. It records every call that unpickling makes."""


class _Finder:
    """An import hook that records every import."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, *_: Any) -> None:
        self.asked.append(name)


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Any:
    name = "pytorch_lightning.utilities.parsing"
    for package in ("pytorch_lightning", "pytorch_lightning.utilities", name):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    exec(FRAMEWORK, vars(sys.modules[name]))
    return sys.modules[name]


@pytest.mark.parametrize("installed", [True, False])
def test_nothing_of_the_file_or_of_the_framework_is_run_or_imported(
    tmp_path: Path, framework: Any, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hyper_parameters = framework.AttributeDict({"lr": 0.1})
    hyper_parameters.note = "state"
    path = saved(tmp_path, {"state_dict": STATE, "hyper_parameters": hyper_parameters, "other": framework.Reduced()})
    framework.calls.clear()
    if not installed:
        for name in [name for name in sys.modules if name.startswith("pytorch_lightning")]:
            monkeypatch.delitem(sys.modules, name)
    finder = _Finder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    contents = read_checkpoint(path)
    assert framework.calls == []
    assert not [name for name in finder.asked if name.startswith("pytorch_lightning")]
    assert contents["hyper_parameters"]["lr"] == 0.1
    assert isinstance(contents["other"], StandIn)
    assert contents["other"].arguments == ("anything",)
    if installed:
        torch.load(path, weights_only=False)
        assert {"new", "setitem", "called"} <= set(framework.calls), "without stand-ins the code must run"


def test_one_unknown_class_among_known_ones_is_refused_by_name(tmp_path: Path) -> None:
    contents = {**STATE, "args": argparse.Namespace(lr=1), "model": torch.nn.Linear(2, 2)}
    with pytest.raises(UnsafeCheckpointError, match=r"would run torch\.nn\.modules\.linear\.Linear"):
        read_checkpoint(saved(tmp_path, contents))


@pytest.mark.parametrize("function", ["eval", "exec", "getattr", "__import__"])
def test_functions_of_python_are_never_replaced(tmp_path: Path, function: str) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (getattr(__builtins__, function, None) or __builtins__[function], ("1",))  # type: ignore[index]

    with pytest.raises(UnsafeCheckpointError, match=function):
        read_checkpoint(saved(tmp_path, {**STATE, "attack": Attack(), "args": argparse.Namespace()}))


def test_the_list_of_safe_classes_is_unchanged_afterwards(tmp_path: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    read_checkpoint(saved(tmp_path, {**STATE, "args": argparse.Namespace()}))
    assert set(torch.serialization.get_safe_globals()) == before
