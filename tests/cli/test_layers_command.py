"""`bcos-sdk layers` lists what can be named, of a network and of a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bcos_sdk.bundle import builtin_bundle, find_bundle
from bcos_sdk.cli import main
from bcos_sdk.cli.export._summary import print_bundle


@pytest.mark.needs_torch
def test_the_layers_of_a_network_are_listed() -> None:
    result = CliRunner().invoke(main, ["layers", "cifar10_resnet18_w16", "--json"])
    rows = {row["path"]: row for row in json.loads(result.output)}
    assert rows["layer3"] == rows["layer3"] | {"shape": [64, 8, 8], "complete": True, "bytes": 16384}
    assert not rows["layer3.0.conv1"]["complete"]
    costs = [rows[f"layer{stage}"]["cost"] for stage in (1, 2, 3, 4)]
    assert costs == sorted(costs)
    assert 0 < costs[0] < costs[3] <= 1


def test_the_layers_of_a_bundle_are_listed() -> None:
    result = CliRunner().invoke(main, ["layers", str(builtin_bundle())])
    assert [line.split()[0] for line in result.output.splitlines()] == ["LAYER", "layer1", "layer2", "layer3", "layer4"]


def test_numbers_end_flush() -> None:
    lines = CliRunner().invoke(main, ["layers", str(builtin_bundle())]).output.splitlines()
    end = lines[0].index(" KB ") + 3
    assert [line[:end].split()[-1] for line in lines] == ["KB", "66", "33", "16", "8"]
    assert all(line[end - 1] != " " and line[end] == " " for line in lines)


def test_a_bundle_without_layers_says_how_to_add_them() -> None:
    result = CliRunner().invoke(main, ["layers", str(builtin_bundle("pets37_resnet18_w32"))])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no inner layers" in result.stderr
    assert "--layers PATH,…: `bcos-sdk layers pets37_resnet18_w32` lists" in result.stderr


@pytest.mark.parametrize("text", ["", " , "])
def test_an_export_with_an_empty_list_of_layers_is_refused(text: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["export", "cifar10_resnet20", "--layers", text, "-o", str(out)])
    assert result.exit_code == 2
    assert "names no layer" in result.stderr
    assert not out.exists()


@pytest.mark.needs_torch
def test_an_export_with_a_wrong_layer_fails_before_the_capture(tmp_path: Path) -> None:
    arguments = ["export", "cifar10_resnet18_w16", "--random-weights", "--layers", "stem", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "error [unknown_layer]: there is no layer 'stem'" in result.stderr
    assert "The outermost layers are conv1, " in result.stderr
    assert "layer4" in result.stderr
    assert "capturing" not in result.stderr


@pytest.mark.needs_torch
def test_the_summary_of_an_export_with_layers_is_aligned_and_says_what_is_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_bundle(find_bundle(builtin_bundle()), 0.1, [], "mine")
    printed = capsys.readouterr().out
    sizes = [line for line in printed.splitlines() if line.endswith(" kB")]
    assert any(len(line.split()[0]) > 18 for line in sizes)
    assert len({len(line) for line in sizes}) == 1
    layers = "layer1,layer2,layer3,layer4"
    assert f"  bcos-sdk concepts IMAGES --layer {layers} --class CLASS -o sheet --model mine" in printed
    print_bundle(find_bundle(builtin_bundle("pets37_resnet18_w32")), 0.1, [], "mine")
    assert "concepts" not in capsys.readouterr().out


FACTORIES = """
from torch import nn
from bcos_sdk.models.layers import BcosConv2d


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = BcosConv2d(3, 8, 3), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        x = self.head(self.stem(x)).mean((2, 3))
        return {"logits": x, "other": 2 * x}
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "nets_of_rgb.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "nets_of_rgb:Net"


@pytest.mark.needs_torch
def test_the_network_may_have_other_channels_and_several_results(factory: str) -> None:
    options = ["--input-size", "16", "--channels", "rgb", "--output-name", "logits"]
    result = CliRunner().invoke(main, ["layers", factory, *options])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == ["LAYER", "stem.linear", "stem", "head"]


@pytest.mark.needs_torch
def test_a_network_that_does_not_fit_is_a_typed_error(factory: str) -> None:
    result = CliRunner().invoke(main, ["layers", factory, "--input-size", "16"])
    assert result.exit_code == 1
    assert "error [capture_failed]: Net fails for an image of shape [1, 6, 16, 16]" in result.output
    assert "--channels" in result.output
    result = CliRunner().invoke(main, ["layers", str(builtin_bundle()), "--channels", "rgb"])
    assert result.exit_code == 2
    assert "a bundle has its own" in result.output
