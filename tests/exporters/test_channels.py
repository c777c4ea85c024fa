"""Networks with inputs of 1, 2, 3, 6 and 12 channels, from an image or array file to a report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor, nn

from bcos_sdk import Client, Contrast, Explained
from bcos_sdk.cli import main
from bcos_sdk.errors import InputError, UnreadableImageError
from bcos_sdk.exporters import export
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import InputSpec

SIZE = (10, 14)
SPECS = {
    "grey": InputSpec.exact(SIZE, channels="grey"),
    "grey+complement": InputSpec.exact(SIZE, channels="grey+complement"),
    "rgb": InputSpec.exact(SIZE, channels="rgb"),
    "rgb+complement": InputSpec.exact(SIZE),
    "2": InputSpec.arrays(2, SIZE),
    "6": InputSpec.arrays(6, SIZE),
    "12": InputSpec.arrays(12, SIZE),
}


class Net(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(BcosConv2d(channels, 8, 3, padding=1), BcosConv2d(8, 4, 3))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = 20 * self.layers(images).mean((2, 3)) - 1
        return logits


def exported(kind: str, folder: Path) -> Path:
    spec = SPECS[kind]
    export(Net(spec.depth).eval(), folder, preprocessing=spec, max_batch=3)
    return folder


def file_and_input(kind: str, folder: Path, seed: int = 0) -> tuple[Path, npt.NDArray[np.float64]]:
    """A file for such a bundle, and the input of the network that its contents stand for."""
    random = np.random.default_rng(seed)
    if kind.isdecimal():
        array = (5 * random.standard_normal((int(kind), *SIZE))).astype(np.float32)
        path = folder / f"array{seed}.npy"
        np.save(path, array)
        return path, array.astype(float)
    picture = Image.fromarray(random.integers(0, 256, (*SIZE, 3), dtype=np.uint8))
    path = folder / f"picture{seed}.png"
    picture.save(path)
    if kind.startswith("grey"):
        colours = np.asarray(picture.convert("L"))[None] / 255
    else:
        colours = np.asarray(picture).transpose(2, 0, 1) / 255
    return path, np.concatenate([colours, 1 - colours]) if kind.endswith("complement") else colours


@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize("kind", SPECS)
def test_files_are_explained_as_by_autograd(tmp_path: Path, kind: str, device: str) -> None:
    module = Net(SPECS[kind].depth).eval()
    files = [file_and_input(kind, tmp_path, seed) for seed in range(3)]
    with Client(exported(kind, tmp_path / "bundle"), device=device) as client:
        results = [*client.explain([path for path, _ in files], targets=2, weights=True)]
        results += client.explain(files[0][0], targets=2, weights=True)
        (mean,) = client.explain(files[0][0], targets=Contrast(2), weights=True)
    module.double()
    for result, (_, array) in zip(results, [*files, files[0]], strict=True):
        x = torch.from_numpy(array)[None].requires_grad_()
        logit = module(x)[0, 2]
        (row,) = torch.autograd.grad(logit, x)
        (explanation,) = result.explanations
        assert explanation.target.logit == pytest.approx(logit.item(), rel=1e-4, abs=1e-4)
        assert np.linalg.norm(explanation.weights - row[0].numpy()) < 1e-4 * row.norm()
        expected = (row * x).sum(1)[0].detach().numpy()
        assert np.linalg.norm(explanation.contributions - expected) < 1e-4 * np.linalg.norm(expected)
        assert explanation.completeness.passed
        assert explanation.image.shape == (*SIZE, 3)
        assert Explained.from_json(result.to_json(arrays="base64")) == result
        assert explanation.rgba().mode == "RGBA"
    assert mean.explanations[0].completeness.passed


@pytest.mark.parametrize("kind", ["grey", "12"])
def test_the_command_line_explains_and_reports(tmp_path: Path, kind: str) -> None:
    bundle, (path, _) = exported(kind, tmp_path / "bundle"), file_and_input(kind, tmp_path)
    out = tmp_path / "out"
    run = ["predict", str(path), "--model", str(bundle), "--device", "cpu", "--explain", "--report", "--out", str(out)]
    reported = CliRunner().invoke(main, run)
    assert reported.exit_code == 0, reported.output
    assert (out / "report.html").exists()
    (record,) = (json.loads(line) for line in (out / "results.jsonl").read_text("utf-8").splitlines())
    assert Explained.model_validate(record.get("result", record)).explanations
    validated = CliRunner().invoke(main, ["validate", str(bundle), "--device", "cpu"])
    assert validated.exit_code == 0, validated.output
    shown = CliRunner().invoke(main, ["inspect", str(bundle)])
    assert ("12 channels, arrays only" if kind == "12" else "10×14 grey") in shown.output


def test_a_manifest_says_how_a_picture_becomes_channels(tmp_path: Path) -> None:
    for kind, expected in (("rgb+complement", None), ("12", 12), ("grey", None)):
        manifest = json.loads((exported(kind, tmp_path / kind) / "manifest.json").read_text("utf-8"))
        assert manifest["input"]["channels"] == ("none" if kind == "12" else kind)
        assert manifest["input"].get("array_channels", None) == expected
        assert ("array_channels" in manifest["input"]) == (kind == "12")


def test_what_is_no_array_of_the_model_is_refused(tmp_path: Path) -> None:
    picture, _ = file_and_input("rgb", tmp_path)
    cut = tmp_path / "cut.npy"
    good, array = file_and_input("12", tmp_path)
    cut.write_bytes(good.read_bytes()[:300])
    endless = tmp_path / "endless.npy"
    endless.write_bytes(good.read_bytes().replace(b"(12, 10, 14)", b"(9999999999)"))
    too_long = tmp_path / "too_long.npy"
    too_long.write_bytes(good.read_bytes().replace(b"(12, 10, 14)", b"(99999999,) "))
    of_objects = tmp_path / "objects.npy"
    np.save(of_objects, np.array([{}]), allow_pickle=True)
    with Client(exported("12", tmp_path / "bundle"), device="cpu") as client:
        for wrong in (picture, picture.read_bytes(), Image.new("RGB", (14, 10))):
            with pytest.raises(InputError, match="takes arrays with 12 channels") as refused:
                client.predict(wrong)
            assert "float [12, 10, 14]" in str(refused.value.hint)
        for shape in ((11, *SIZE), (*SIZE, 12), (12, 14, 10)):
            with pytest.raises(InputError, match="its shape is"):
                client.predict(np.zeros(shape, np.float32))
        with pytest.raises(InputError, match="not an image of this model"):
            client.predict(np.zeros((12, *SIZE), np.uint8))
        with pytest.raises(InputError, match="NaN or infinite"):
            client.predict(np.full((12, *SIZE), np.nan, np.float32))
        for damaged in (cut, of_objects, endless, too_long):
            with pytest.raises(UnreadableImageError, match="npy"):
                client.predict(damaged)
        assert client.predict(torch.from_numpy(array).float()) != []


def test_a_spec_of_arrays_has_their_number_of_channels() -> None:
    for wrong in (
        {"channels": "none"},
        {"channels": "rgb", "array_channels": 3},
        {"channels": "none", "array_channels": 3, "resize": 20, "crop": SIZE},
    ):
        with pytest.raises(ValueError, match="array"):
            InputSpec.model_validate({"size": SIZE, "resize": None, "crop": None, **wrong})


def test_the_export_command_takes_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_nets.py").write_text("from test_channels import Net\n\ndef two():\n    return Net(2)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for channels, expected in (("2", "none"), ("grey+complement", "grey+complement")):
        out = tmp_path / channels
        run = ["export", "own_nets:two", "--channels", channels, "--input-size", "10x14", "-o", str(out)]
        result = CliRunner().invoke(main, run)
        assert result.exit_code == 0, result.output
        assert json.loads((out / "manifest.json").read_text("utf-8"))["input"]["channels"] == expected
    refused = CliRunner().invoke(main, ["export", "own_nets:two", "--channels", "cmyk", "-o", str(tmp_path / "no")])
    assert (refused.exit_code, "cmyk" in refused.output) == (2, True)
