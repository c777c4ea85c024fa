"""`bcos-sdk models` on the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from bcos_sdk import __version__
from bcos_sdk.cli import _models_command, main
from bcos_sdk.registry import ModelSpec, Registry, builtin_registry


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def names(result: Result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()[1:]]


def test_every_model_is_listed() -> None:
    result = run("models")
    assert result.exit_code == 0
    assert names(result) == list(builtin_registry())
    assert result.stderr == f"{len(builtin_registry())} of {len(builtin_registry())} models\n"


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--published"], 26),
        (["--dataset", "imagenet", "--family", "vit"], 8),
        (["--match", "cifar10_resnet20*"], 74),
        (["--family", "plain", "--match", "*nomaxout"], 7),
        (["--match", "nothing*"], 0),
    ],
)
def test_filters_narrow_the_list(filters: list[str], count: int) -> None:
    result = run("models", *filters)
    assert result.exit_code == 0
    assert len(names(result)) == count


def test_the_list_as_json_is_the_registry() -> None:
    listed = json.loads(run("models", "--json").stdout)
    assert listed == [spec.model_dump(mode="json") for spec in builtin_registry().values()]


def test_one_model_is_shown_in_full() -> None:
    shown = run("models", "show", "resnet152").stdout
    for fact in ("60,125,504", "[3, 8, 36, 3]", "resnet_152-42051a77c1.pth", "76.5 / 92.4", "non-commercial"):
        assert fact in shown
    as_json = json.loads(run("models", "show", "resnet152", "--json").stdout)
    assert as_json == builtin_registry()["resnet152"].model_dump(mode="json")


@pytest.mark.parametrize("name", ["cifar10_plain9_b1.5", "simple_vit_ti_patch16_224"])
def test_models_of_every_kind_can_be_shown(name: str) -> None:
    assert name in run("models", "show", name).stdout


def with_registry(monkeypatch: pytest.MonkeyPatch, *specs: ModelSpec) -> None:
    monkeypatch.setattr(_models_command, "builtin_registry", lambda: Registry({spec.name: spec for spec in specs}))


def test_localisation_has_a_column_only_if_a_listed_model_has_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    without = builtin_registry()["resnet18"]
    figures = without.published.model_copy(update={"localisation": 87.25})
    with_figure = without.model_copy(update={"name": "located", "published": figures})
    with_registry(monkeypatch, without, with_figure)
    lines = run("models").stdout.splitlines()
    assert "LOCALISATION %" in lines[0]
    assert [line.split()[-2] for line in lines[1:]] == ["-", "87.2"]
    lines = run("models", "--match", "resnet*").stdout.splitlines()
    assert "LOCALISATION" not in lines[0]
    assert lines[1].split()[-2:] == ["68.7", "published"]


def test_a_model_that_lists_its_own_labels_is_listed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = builtin_registry()["resnet18"].model_dump()
    own = ModelSpec.model_validate(
        {**fields, "name": "mine", "labels": ["only"], "architecture": {**fields["architecture"], "classes": 1}}
    )
    with_registry(monkeypatch, own, builtin_registry()["resnet18"])
    assert run("models").stdout.splitlines()[1].split()[:3] == ["mine", "resnet", "own"]
    assert names(run("models", "--dataset", "imagenet")) == ["resnet18"]
    assert "own: only\n" in run("models", "show", "mine").stdout
    assert "imagenet: tench, goldfish, …\n" in run("models", "show", "resnet18").stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--json"], "--json"),
        (["--match", "", "--published"], "--match, --published"),
        (["--family", "vit"], "--family"),
    ],
)
def test_options_of_the_list_before_a_subcommand_are_refused(options: list[str], named: str) -> None:
    result = run("models", *options, "show", "resnet152")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{named} before 'show' has no effect" in result.stderr


def test_a_model_without_weights_says_that_the_registry_has_none() -> None:
    assert "the registry has no weights for this model" in run("models", "show", "cifar10_resnet20").stdout
    assert "the registry has no weights for cifar10_resnet20" in run("models", "download", "cifar10_resnet20").stderr


def test_an_unknown_model_suggests_similar_names() -> None:
    result = run("models", "show", "resnet15")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "[unknown_model]" in result.stderr
    assert "Did you mean resnet152" in result.stderr


def test_an_unknown_family_lists_all_families() -> None:
    result = run("models", "--family", "resnext")
    assert result.exit_code == 2
    assert "convnext, densenet, plain, resnet, vgg, vit" in result.stderr


def test_a_download_without_published_weights_is_an_error() -> None:
    result = run("models", "download", "cifar10_resnet20")
    assert result.exit_code == 1
    assert "[no_published_weights]" in result.stderr


def test_version_and_help() -> None:
    assert run("--version").stdout == f"bcos-sdk {__version__}\n"
    for command in ([], ["models"], ["models", "show"], ["models", "download"]):
        assert run(*command, "-h").exit_code == 0
