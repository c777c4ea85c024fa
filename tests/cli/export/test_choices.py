"""What the options of `export` say about the model, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from bcos_sdk.cli.export._choices import Choices
from bcos_sdk.registry import builtin_registry

SPEC = builtin_registry()["resnet18"]


def choices(labels: Path | None = None, classes: int | None = None, **settings: object) -> Choices:
    return Choices(
        weights=None,
        random_weights=False,
        ema=True,
        weights_key=None,
        classes=classes,
        labels=labels,
        input_size=None,
        resize=None,
        no_resize=False,
        interpolation=None,
        probability=None,
        settings=settings,
    )


def test_options_that_agree_pass(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    choices(tmp_path / "labels.txt", classes=2).check(None)
    choices(classes=1000, b=1.5).check(SPEC)


def test_options_that_contradict_each_other_or_the_entry_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(click.UsageError, match=r"--classes is 3, but .* has 2 labels"):
        choices(tmp_path / "labels.txt", classes=3).check(None)
    with pytest.raises(click.UsageError, match="7 classes, but the weights of resnet18 have 1000"):
        choices(classes=7).check(SPEC)
    with pytest.raises(click.UsageError, match="has no key 'nrom'"):
        choices(nrom=1).check(SPEC)


def test_keys_inside_a_mapping_are_stated() -> None:
    assert choices(norm={"eps": 1e-6}, b=2).stated_keys == {"norm", "norm.eps", "b"}
