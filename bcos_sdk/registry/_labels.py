"""Class names by label set: line i of `<name>.txt` names class i.

The names are those of the data sets themselves: ILSVRC-2012 in its usual short English form (the list
that the public `bcos` package 0.1.3 carries) and CIFAR-10.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal, get_args

__all__ = ["LabelSet", "load_labels"]

LabelSet = Literal["imagenet", "cifar10"]


@cache
def load_labels(name: LabelSet) -> tuple[str, ...]:
    """The class names of a label set, in class order."""
    assert name in get_args(LabelSet)
    return tuple(files(__package__).joinpath("labels").joinpath(f"{name}.txt").read_text("utf-8").splitlines())
