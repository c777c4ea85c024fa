"""`bcos-sdk export package.module:factory`: weights, preprocessing, and the errors of the user's own code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import support.needs_torch  # noqa: F401
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from bcos_sdk import Client
from bcos_sdk.bundle import open_bundle
from bcos_sdk.cli import main

CODE = """
import torch
from torch import nn
from bcos_sdk.models.layers import BcosConv2d

class Net(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.conv, self.head = BcosConv2d(6, 8, 3, padding=1), nn.Linear(8, classes)
    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))

def make():
    from own_parts import WIDTH  # a module in the same folder, imported when the factory runs
    return Net(WIDTH)

def raises():
    network = Net()
    return network.load_state_dict(torch.load("no-such-file.pth"))

def needs(size, *, depth):
    return Net()

def exits():
    raise SystemExit(3)

def none(): pass
number = 3
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


def own_network() -> Any:
    names: dict[str, Any] = {}
    exec(CODE, names)
    return names["Net"]()


@pytest.fixture(autouse=True)
def _own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code.py").write_text(CODE)
    (tmp_path / "own_parts.py").write_text("WIDTH = 2\n")
    (tmp_path / "broken.py").write_text("x = 1\ndef make(:\n")
    (tmp_path / "imports.py").write_text("import own_parts\nimport no_such_package_at_all\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(4)\n")
    for name in ("own_code", "own_parts", "broken", "imports", "script"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("own_code:raises", ["failed: FileNotFoundError", "own_code.py", "in raises", "torch.load("]),
        ("own_code:exits", ["failed: SystemExit: 3", "own_code.py", "raise SystemExit(3)"]),
        ("own_code:needs", ["needs the arguments size, depth", "Give each argument a default"]),
        ("own_code:none", ["must return a torch module, got NoneType"]),
        ("own_code:number", ["has the type int, expected a torch module or a function"]),
        ("own_code:missing", ["own_code has no 'missing'", "It has", "Net, make"]),
        ("broken:make", ["SyntaxError", "broken.py", "line 2", "def make(:"]),
        ("imports:make", ["No module named 'no_such_package_at_all'", "imports.py", "line 2"]),
        ("script:make", ["SystemExit: 4", "script.py", "sys.exit(4)"]),
        ("no_such_module:make", ["No module named 'no_such_module'", "Run the command in the folder"]),
        (":make", ["is not package.module:factory"]),
        ("own_code:", ["is not package.module:factory"]),
    ],
)
def test_a_fault_of_the_factory_is_one_error_with_the_users_own_line(model: str, parts: list[str]) -> None:
    result = run(model, "-o", "out")
    assert result.exit_code == 2
    assert result.stderr.startswith("error [factory_failed]: ")
    for part in parts:
        assert part in result.stderr
    for frame in ("Traceback", "click", "importlib", "_own_module", "site-packages"):
        assert frame not in result.stderr
    assert not Path("out").exists()


def test_a_factory_takes_photographs_of_any_size_by_default() -> None:
    result = run("own_code:make", "--input-size", 16, "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    with Client("./out", device="cpu") as client:
        assert client.predict(np.zeros((30, 50, 3), np.uint8))
    manifest = open_bundle("out").manifest
    assert (manifest.input.resize, manifest.input.crop) == (18, (16, 16))
    shown = CliRunner().invoke(main, ["inspect", "./out"]).stdout
    assert "16×16 rgb+complement  resize 18, crop 16×16" in shown
    for assumed in ("shorter side to 18, centre crop to 16×16", "bilinear", "sigmoid"):
        assert assumed in result.stdout
    assert "16×16  [--input-size]" not in result.stdout


def test_no_resize_takes_only_images_of_the_exact_size() -> None:
    options = ["--input-size", 16, "--no-resize", "--probability", "softmax", "--max-batch", 1, "-o", "out"]
    result = run("own_code:make", *options)
    assert result.exit_code == 0, result.stderr
    assert "Assumed" not in result.stdout
    manifest = open_bundle("out").manifest
    assert (manifest.input.resize, manifest.input.crop, manifest.probability) == (None, None, "softmax")


def test_a_weights_file_is_loaded_into_the_module(tmp_path: Path) -> None:
    network = own_network()
    save_file(network.state_dict(), tmp_path / "mine.safetensors")
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    options = ["--weights", "mine.safetensors", "--labels", "labels.txt", "--classes", 2, "--input-size", 16]
    result = run("own_code:make", *options, "--no-resize", "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    rgb = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
    with Client("./out", device="cpu") as client:
        (prediction,) = client.predict(pixels, top_k=2)
    found = {entry.label: entry.logit for entry in prediction.classes}
    with torch.no_grad():
        (logits,) = network(torch.cat([rgb, 1 - rgb], dim=1))
    assert [found["cat"], found["dog"]] == pytest.approx(logits.tolist(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "other.pth"], "other.pth does not contain the weights of own_code:make"),
        (["--weights", "none.pth"], "none.pth does not exist"),
        (["--classes", 3], "--classes is 3, but own_code:make returns 2 logits"),
        (["--labels", "three.txt"], "three.txt has 3 labels, but own_code:make has 2 classes"),
    ],
)
def test_files_that_do_not_fit_the_module_are_refused(tmp_path: Path, options: list[object], message: str) -> None:
    torch.save({"conv.linear.weight": torch.zeros(3)}, tmp_path / "other.pth")
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    result = run("own_code:make", "--input-size", 16, *options, "-o", "out")
    assert result.exit_code == 1
    assert message in result.stderr


def test_the_weights_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"state_dict": own_network().state_dict(), "classes": ["cat", "dog"]}, tmp_path / "mine.pth")
    load = Mock(wraps=torch.load)
    monkeypatch.setattr(torch, "load", load)
    result = run("own_code:make", "--weights", "mine.pth", "--input-size", 16, "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert load.call_count == 1


def test_labels_are_found_beside_the_weights(tmp_path: Path) -> None:
    torch.save({"state_dict": own_network().state_dict(), "class_to_idx": {"dog": 1, "cat": 0}}, tmp_path / "mine.pth")
    result = run("own_code:make", "--weights", "mine.pth", "--input-size", 16, "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert open_bundle("out").manifest.labels == ("cat", "dog")
    assert "'class_to_idx' in the weights file" in result.stdout
