"""`bcos-sdk models` on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bundles import LABELS, copy_of, small_bundle
from support.registries import ENTRY, write

from bcos_sdk import __version__
from bcos_sdk.cli import _models_command, main
from bcos_sdk.registry import ModelSpec, Registry, builtin_registry, read_labels


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
    registry = Registry({spec.name: spec for spec in specs})
    monkeypatch.setattr(_models_command, "model_registry", lambda *_: registry)


def test_localisation_has_a_column_only_if_a_listed_model_has_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    located = builtin_registry()["resnet18"]
    without = located.model_copy(update={"published": located.published.model_copy(update={"localisation": None})})
    figures = without.published.model_copy(update={"localisation": 87.25})
    with_figure = without.model_copy(update={"name": "located", "published": figures})
    with_registry(monkeypatch, without, with_figure)
    lines = run("models").stdout.splitlines()
    assert "LOCALISATION %" in lines[0]
    assert [line.split()[-2] for line in lines[1:]] == ["-", "87.2"]
    lines = run("models", "--match", "resnet*").stdout.splitlines()
    assert "LOCALISATION" not in lines[0]
    assert lines[1].split()[-2:] == ["68.7", "published"]


def test_the_localisation_of_the_paper_is_shown_with_its_source() -> None:
    assert re.search(
        r"localisation % +90\.2 \(grid pointing game, Böhle et al\., TPAMI 2024\)",
        run("models", "show", "resnet50").stdout,
    )
    assert re.search(r"localisation % +-\n", run("models", "show", "densenet121_long").stdout)


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
    subcommands = [["models", name] for name in ("show", "download", "labels", "list", "remove")]
    for command in ([], ["models"], *subcommands):
        assert run(*command, "-h").exit_code == 0


def test_own_registries_are_listed_shown_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {**ENTRY, "weights": {"file": "mine.pth", "sha256": "ab" * 32}}
    path = write(tmp_path, {"schema": 1, "models": {"mine": entry}})
    assert names(run("models", "--registry", str(path), "--match", "mi*")) == ["mine"]
    shown = run("models", "show", "mine", "--registry", str(path)).stdout
    assert str(tmp_path / "mine.pth") in shown
    assert "ab" * 32 in shown
    assert run("models", "show", "mine").exit_code == 2
    monkeypatch.setenv("BCOS_SDK_REGISTRY", str(path))
    assert run("models", "show", "mine").stdout == shown
    assert run("models", "--match", "mine").stdout.split()[-1] == "file"
    assert run("models", "labels", "mine").stdout == run("models", "labels", "cifar10_resnet20").stdout
    assert run("models", "download", "mine").exit_code == 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two exports and one with a damaged manifest."""
    folder = tmp_path / "store"
    monkeypatch.setenv("BCOS_SDK_STORE", str(folder))
    copy_of(small_bundle(), folder / "resnet18")
    copy_of(small_bundle(labels=False), folder / "nameless")
    (copy_of(small_bundle(), folder / "damaged") / "manifest.json").write_text("{}")
    (folder / "not-a-bundle").mkdir()
    return folder


def test_the_exports_of_the_store_are_listed(store: Path) -> None:
    result = run("models", "list")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["NAME", "MODEL", "CLASSES", "INPUT", "PRECISION", "MB", "EXPORTED"]
    assert [row[0] for row in rows[1:]] == ["damaged", "nameless", "resnet18"]
    assert rows[3][1:5] == ["small", "7", "20×28", "fp32"]
    assert rows[1][1] == "unreadable"
    assert f"3 exports in {store}" in result.stderr
    assert "has a manifest of version None" in result.stderr


def test_the_list_of_exports_as_json(store: Path) -> None:
    damaged, nameless, named = json.loads(run("models", "list", "--json").stdout)
    size = sum(path.stat().st_size for path in (store / "resnet18").iterdir())
    assert (named["name"], named["path"], named["classes"]) == ("resnet18", str(store / "resnet18"), 7)
    assert (named["bytes"], named["labels"], nameless["labels"]) == (size, True, False)
    assert (named["problem"], damaged["model"]) == (None, None)
    assert "has a manifest of version None" in damaged["problem"]


def test_an_empty_store_is_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "none"))
    result = run("models", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(run("models", "list", "--json").stdout) == []


def test_one_export_is_counted_as_one(store: Path) -> None:
    assert run("models", "remove", "nameless", "damaged", "--yes").exit_code == 0
    assert f"1 export in {store}" in run("models", "list").stderr


def test_exports_are_removed_after_a_question(store: Path) -> None:
    asked = CliRunner().invoke(main, ["models", "remove", "resnet18"], input="n\n")
    assert asked.exit_code == 1
    assert f"from {store}?" in asked.stderr
    assert (store / "resnet18").is_dir()
    assert run("models", "remove", "resnet18").exit_code == 1, "without an answer nothing is removed"
    assert CliRunner().invoke(main, ["models", "remove", "resnet18"], input="y\n").exit_code == 0
    result = run("models", "remove", "damaged", "nameless", "damaged", "--yes")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"removed {store / 'damaged'}", f"removed {store / 'nameless'}"]
    assert [path.name for path in store.iterdir()] == ["not-a-bundle"]


@pytest.mark.parametrize("unknown", ["resnet1", "not-a-bundle", "../store/resnet18", "", "."])
def test_if_one_name_is_unknown_nothing_is_removed(store: Path, unknown: str) -> None:
    result = run("models", "remove", "resnet18", unknown, "--yes")
    assert result.exit_code == 2
    assert "[unknown_model]" in result.stderr
    assert len(list(store.iterdir())) == 4


def test_a_link_in_the_store_is_removed_without_its_target(store: Path, tmp_path: Path) -> None:
    target = (store / "resnet18").rename(tmp_path / "elsewhere")
    (store / "resnet18").symlink_to(target)
    assert run("models", "remove", "resnet18", "--yes").exit_code == 0
    assert not (store / "resnet18").is_symlink()
    assert (target / "manifest.json").is_file()


def test_labels_are_printed_as_a_labels_file(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(run("models", "labels", "resnet50").stdout, "utf-8")
    assert read_labels(path) == builtin_registry()["resnet50"].class_names
    stored = run("models", "labels", "resnet18")
    assert stored.stdout.splitlines() == list(LABELS)
    assert str(store / "resnet18") in stored.stderr
    assert run("models", "labels", str(store / "resnet18")).stdout == stored.stdout
    nameless = run("models", "labels", "nameless")
    assert nameless.exit_code == 1
    assert "have no names" in nameless.stderr
    assert run("models", "labels", "resnet1").exit_code == 2


def test_labels_of_a_folder_in_the_current_one(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("here", "resnet50"):
        copy_of(small_bundle(), tmp_path / name)
    assert run("models", "labels", "./here").stdout.splitlines() == list(LABELS)
    result = run("models", "labels", "here")
    assert (result.exit_code, "pass ./here" in result.stderr) == (1, True)
    assert run("models", "labels", "resnet50").stdout.startswith("tench\n"), "a name means the registry, not the folder"


def test_the_hash_that_was_recorded_at_first_use_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path))
    source = builtin_registry()["resnet18"].published_weights
    assert source is not None
    assert f" {source.sha256_prefix}…\n" in run("models", "show", "resnet18").stdout
    (tmp_path / "weights").mkdir()
    digest = source.sha256_prefix.ljust(64, "0")
    (tmp_path / "weights" / f"{source.file_name}.sha256").write_text(f"{digest}  {source.file_name}\n", "ascii")
    assert f"{digest} (recorded at first use; the publisher states" in run("models", "show", "resnet18").stdout
