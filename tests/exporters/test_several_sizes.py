"""One bundle for several sizes of the input of a fully convolutional network."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from support.config_text import entries, parse_config
from torch import Tensor, nn

from bcos_sdk import Client, Pixel
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.bundle import Manifest, open_bundle
from bcos_sdk.cli import main
from bcos_sdk.errors import BundleError, CaptureError, ExportError, InputError
from bcos_sdk.exporters import export
from bcos_sdk.images import encode
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import InputSpec
from bcos_sdk.triton import RepositorySettings, write_repository

SIZES = [(8, 12), (16, 16), (10, 6)]


class Net(nn.Module):
    def __init__(self, *, maps: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(BcosConv2d(6, 32, 3, padding=1), BcosConv2d(32, 4, 3, stride=2, padding=1))
        self.maps = maps

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = 20 * self.layers(images) - 1
        return scores if self.maps else scores.mean((2, 3))


def exported(folder: Path, **options: Any) -> Path:
    module = Net(maps=options.pop("maps", False)).eval()
    export(module, folder, preprocessing=InputSpec.exact(SIZES[0]), more_sizes=SIZES[1:], max_batch=3, **options)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("sizes") / "bundle")


@pytest.fixture(scope="module")
def map_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("maps") / "bundle", maps=True)


def photos(size: tuple[int, int]) -> list[Image.Image]:
    return [Image.fromarray(one) for one in np.random.default_rng(0).integers(0, 256, (3, *size, 3), dtype=np.uint8)]


@pytest.mark.parametrize("maps", [False, True])
@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_each_size_is_explained_as_by_autograd(bundle: Path, map_bundle: Path, device: str, maps: bool) -> None:
    module = Net(maps=maps).eval().double()
    for size in (None, *SIZES):
        with Client(map_bundle if maps else bundle, device=device, input_size=size) as client:
            images = photos(size or SIZES[0])
            results = client.explain(images, targets=Pixel(2, 3, 1) if maps else 2, weights=True)
            results += client.explain(images[0], targets=Pixel(2, 3, 1) if maps else 2, weights=True)
        for photo, result in zip([*images, images[0]], results, strict=True):
            x = torch.from_numpy(encode(np.asarray(photo))).double()[None].requires_grad_()
            truth = module(x)[(0, 2, 3, 1) if maps else (0, 2)]
            (row,) = torch.autograd.grad(truth, x)
            (explanation,) = result.explanations
            assert explanation.target.logit == pytest.approx(truth.item(), rel=1e-4, abs=1e-5)
            assert np.linalg.norm(explanation.weights - row[0].numpy()) < 1e-4 * row.norm()
            assert explanation.completeness.passed


def test_sizes_share_weights_and_are_listed(bundle: Path, tmp_path: Path) -> None:
    several = open_bundle(bundle)
    export(Net().eval(), tmp_path / "one", preprocessing=InputSpec.exact(SIZES[0]), max_batch=3)
    one = open_bundle(tmp_path / "one")
    assert several.manifest.input_sizes == (*SIZES,)
    assert "more_sizes" not in json.loads((tmp_path / "one" / "manifest.json").read_text("utf-8"))
    assert len(several.weights) < 1.5 * len(one.weights)
    shown = CliRunner().invoke(main, ["inspect", str(bundle)])
    assert "16×16, 10×6" in shown.output


def test_another_size_is_refused(bundle: Path) -> None:
    with pytest.raises(InputError, match="not exported for an input of 9x9") as refused:
        Client(bundle, device="cpu", input_size=9)
    assert "8x12, 16x16, 10x6" in str(refused.value.hint)
    wrong: Any
    for wrong in (0, "16", (16, 0), 1.5):
        with pytest.raises(InputError, match="input_size"):
            Client(bundle, device="cpu", input_size=wrong)
    with Client(bundle, device="cpu", input_size=16) as client, pickle.loads(pickle.dumps(client)) as copy:
        assert copy.manifest.input.size == (16, 16)
        with pytest.raises(InputError, match="takes 16 × 16"):
            client.predict(photos(SIZES[0])[0])


@pytest.mark.parametrize("size", [None, *SIZES])
def test_a_model_repository_has_one_size(bundle: Path, tmp_path: Path, size: tuple[int, int] | None) -> None:
    opened = open_bundle(bundle)
    height, width = size or SIZES[0]
    for model in write_repository(opened, tmp_path / "models", RepositorySettings(input_size=size)):
        graph = CPU.open_session(model.path / "1" / "model.onnx")
        assert [graph.get_inputs()[0].shape[1:]] == [[6, height, width]] == [list(model.inputs[0].dims)]
        config = parse_config((model.path / "config.pbtxt").read_text("ascii"))
        text = entries(config, "parameters")["bcos_manifest"]["string_value"][0]
        manifest = Manifest.model_validate_json(text)
        assert manifest.input.size == (height, width)
        assert manifest.files == opened.manifest.files
        assert manifest.input_sizes == (tuple(SIZES) if size in (None, SIZES[0]) else (size,))


def test_the_commands_export_and_choose_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_sizes.py").write_text("from test_several_sizes import Net\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = ["export", "own_sizes:Net", "--input-size", "8x12,16", "--no-resize", "-o", "out/bundle"]
    made = CliRunner().invoke(main, run)
    assert made.exit_code == 0, made.output
    photos((16, 16))[0].save("photo.png")
    predict = ["predict", "photo.png", "--model", "out/bundle", "--device", "cpu"]
    assert CliRunner().invoke(main, predict).exit_code == 5  # not the first size
    explained = CliRunner().invoke(main, [*predict, "--input-size", "16", "--explain", "--report", "--out", "results"])
    assert explained.exit_code == 0, explained.output
    assert CliRunner().invoke(main, ["validate", "out/bundle", "--device", "cpu"]).exit_code == 0


def test_sizes_that_cannot_be_exported_leave_no_bundle(tmp_path: Path) -> None:
    fixed = nn.Sequential(nn.Conv2d(6, 2, 1), nn.Flatten(), nn.Linear(2 * 8 * 12, 3)).eval()
    spec = InputSpec.exact(SIZES[0])
    with pytest.raises(CaptureError, match="fails for an image of shape"):
        export(fixed, tmp_path / "bundle", preprocessing=spec, more_sizes=SIZES[1:])
    with pytest.raises(ExportError, match="different ones"):
        export(Net().eval(), tmp_path / "bundle", preprocessing=spec, more_sizes=[SIZES[0]])
    with pytest.raises(ExportError, match="fp16"):
        exported(tmp_path / "bundle", precision="fp16")
    assert not list(tmp_path.iterdir())


def test_a_changed_graph_of_a_further_size_is_noticed(bundle: Path, tmp_path: Path) -> None:
    changed = tmp_path / "bundle"
    shutil.copytree(bundle, changed)
    (changed / "explain_16x16.onnx").write_bytes((bundle / "explain_10x6.onnx").read_bytes())
    with pytest.raises(BundleError, match=r"explain_16x16\.onnx"):
        open_bundle(changed)
