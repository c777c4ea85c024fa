"""`bcos-sdk export` on the command line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.needs_torch  # noqa: F401
import torch
from click.testing import CliRunner, Result

from bcos_sdk import Client
from bcos_sdk.bundle import find_bundle, open_bundle
from bcos_sdk.cli import main
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters.verify import Trial
from bcos_sdk.models import build_model

MODEL = "cifar10_plain9_b2-nomaxout"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


def test_a_model_with_a_weights_file(tmp_path: Path) -> None:
    torch.save(build_model(MODEL).state_dict(), tmp_path / "weights.pth")
    result = run(MODEL, "--weights", tmp_path / "weights.pth", "-o", tmp_path / "out", "--max-batch", 2)
    assert result.exit_code == 0, result.stderr
    assert "W(X)" in result.stdout
    assert "explain.onnx" in result.stdout
    assert "checking against torch" in result.stderr
    manifest = open_bundle(tmp_path / "out").manifest
    assert manifest.model.name == MODEL
    assert manifest.labels is not None
    assert manifest.labels[3] == "cat"
    assert manifest.max_batch == 2


def test_without_an_output_folder_the_bundle_is_found_by_name() -> None:
    assert run(MODEL, "--random-weights", "--max-batch", 1).exit_code == 0
    with Client(MODEL, device="cpu") as client:
        assert client.manifest.model.name == MODEL
        assert client.predict(np.zeros((32, 32, 3), np.uint8))


def test_a_model_repository_is_written_beside_the_bundle(tmp_path: Path) -> None:
    models, options = tmp_path / "models", [MODEL, "--random-weights", "--max-batch", 1, "-o", tmp_path / "out"]
    done = run(*options, "--triton", models)
    assert done.exit_code == 0, done.stderr
    assert f"tritonserver --model-repository={models}" in done.stdout
    assert sorted(one.name for one in models.iterdir()) == [MODEL, f"{MODEL}_explain"]
    shutil.rmtree(tmp_path / "out")
    again = run(*options, "--triton", models)
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    assert not (tmp_path / "out").exists(), "it was refused after the export, not before"
    assert run(*options, "--triton", models, "--force").exit_code == 0


def test_an_fp16_export_has_its_own_name_in_the_store() -> None:
    model = "cifar10_plain9_b1.5-nomaxout"
    for precision in ("fp32", "fp16"):
        result = run(model, "--random-weights", "--max-batch", 1, "--precision", precision)
        assert result.exit_code == 0, result.stderr
    assert f"--model {model}-fp16" in result.stdout
    assert find_bundle(f"{model}-fp16").manifest.precision == "fp16"
    assert find_bundle(model).manifest.precision == "fp32"
    assert "fp16, residual at export" in CliRunner().invoke(main, ["inspect", f"{model}-fp16"]).stdout


def test_an_existing_bundle_is_not_replaced(tmp_path: Path) -> None:
    assert run(MODEL, "--random-weights", "-o", tmp_path / "out", "--max-batch", 1).exit_code == 0
    result = run(MODEL, "--random-weights", "-o", tmp_path / "out", "--max-batch", 1)
    assert result.exit_code == 1
    assert "[bundle_exists]" in result.stderr


def test_a_failed_comparison_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ParityError("weights differ")

    monkeypatch.setattr(Trial, "judge", fail)
    result = run(MODEL, "--random-weights", "-o", tmp_path / "out")
    assert result.exit_code == 3
    assert "[parity_failed]" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["resnet500"], 2, "Did you mean"),
        (["resnet18", "--weights", "x.pth", "--random-weights"], 2, "cannot be used together"),
        (["resnet18", "--weights", "nowhere.pth"], 1, "does not exist"),
        (["cifar10_resnet20"], 1, "[no_published_weights]"),
    ],
)
def test_models_that_cannot_be_exported(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


OWN = """
from torch import nn
from bcos_sdk.models.layers import BcosConv2d

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = BcosConv2d(6, 8, 3, padding=1), nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))

class Loud(Net):
    def __init__(self):
        super().__init__()
        self.loud = nn.Conv2d(8, 8, 1)
        nn.init.uniform_(self.loud.weight, 1e5, 2e5)
    def forward(self, x):
        return self.head((self.loud(self.conv(x)) * 1e-6).mean((2, 3)))

network = Net()
class Space:
    make = Net
not_a_network = lambda: 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_networks.py").write_text(OWN)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize("factory", ["own_networks:Net", "own_networks:Space.make", "own_networks:network"])
def test_your_own_network(factory: str) -> None:
    options = ["--input-size", "16x24", "--resize", 30, "--labels", "classes.txt", "--max-batch", 2]
    result = run(factory, *options, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "bcos-sdk predict IMAGES --explain --report --model ./out" in result.stdout
    with Client("./out", device="cpu") as client:
        assert client.labels == ("cat", "dog")
        assert client.manifest.input.size == (16, 24)
        assert client.predict(np.zeros((60, 90, 3), np.uint8))


@pytest.mark.usefixtures("own_module")
def test_layers_that_stay_in_float32_are_named() -> None:
    result = run("own_networks:Loud", "--input-size", 16, "--max-batch", 1, "--precision", "fp16", "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "In float32: loud\n" in result.stdout
    shown = CliRunner().invoke(main, ["inspect", "./out"]).stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("in float32")] == [["in", "float32", "loud"]]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_networks:Net", "--input-size", "16by24"], "is not a size"),
        (["own_networks:Net", "--resize", 100], "smaller than the crop"),
        (["own_networks:Net", "--resize", 300, "--no-resize"], "--resize and --no-resize cannot be used together"),
        (["own_networks:Net", "--classes", 3, "--labels", "classes.txt"], "--classes is 3, but classes.txt has 2"),
        (["own_networks:Net", "--random-weights"], "--random-weights cannot be used with own_networks:Net"),
        (["own_networks:Net", "--temperature", 2, "--set", "b=1"], "--temperature, --set cannot be used with"),
        (["own_networks:Net", "--name", "../up"], "'../up' cannot be the name of an export"),
        (["resnet18", "--labels", "classes.txt"], "classes.txt: 2 classes, but the weights of resnet18 have 1000"),
        (["resnet18", "--classes", 7], "--classes: 7 classes, but the weights of resnet18 have 1000"),
        (["resnet18", "--no-ema"], "--no-ema needs --weights"),
        (["resnet18", "--set", "depth=3"], "has no key 'depth'"),
        (["resnet18", "--set", "norm.eps=small"], "norm.eps: Input should be a valid number"),
        (["resnet18", "--set", "b"], "'b' is not a setting"),
        (["resnet18", "--temperature", 0], "temperature: Input should be greater than 0"),
        (["resnet18", "--temperature", 2, "--set", "temperature=3"], "cannot be used together"),
        (["resnet18", "--classes", 2, "--set", "classes=3"], "cannot be used together"),
        (["simple_vit_ti_patch16_224", "--input-size", 100], "is not a multiple of the patch size 16"),
    ],
)
def test_options_that_cannot_be_used(arguments: list[object], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def inspect(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["inspect", str(folder), *options])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_engines_from_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' builds engines without a GPU")
    options = [MODEL, "--random-weights", "--max-batch", 2, "-o", tmp_path / "out"]
    result = run(*options, "--trt", "--compute-capability", "8.9, 12.0")
    assert result.exit_code == 0, result.stderr
    assert "explain.tensorrt_rtx.sm89-sm120." in result.stdout
    assert "The engines were built but not run" in result.stdout
    shown = inspect(tmp_path / "out")
    assert "compute capability 8.9, 12.0, tensorrt_rtx" in shown
    (record, *_) = json.loads(inspect(tmp_path / "out", "--json"))["engines"].values()
    assert record["key"]["compute_capabilities"] == ["8.9", "12.0"]
    damaged = next((tmp_path / "out" / "engines").glob("explain*.plan"))
    damaged.write_bytes(b"")
    assert f"{damaged.name}: its hash differs from the record" in inspect(tmp_path / "out")
    alone = run(*options, "--force", "--compute-capability", "8.9")
    assert alone.exit_code == 2
    assert "--compute-capability needs --trt" in alone.stderr
