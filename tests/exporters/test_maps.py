"""Networks that return a map [batch, classes, height, width]: a class at a pixel, and its mean over a mask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor, nn

from bcos_sdk import Client, Contrast, Explained, Limits, Pixel, Region
from bcos_sdk.cli import main
from bcos_sdk.errors import ExportError, InputError, UnknownTargetError
from bcos_sdk.exporters import export
from bcos_sdk.images import encode
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import InputSpec

SIZE = (12, 16)
LABELS = ["road", "sky", "tree"]
MAP = (3, 6, 8)


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(BcosConv2d(6, 8, 3, stride=2, padding=1), BcosConv2d(8, 3, 3, padding=1))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        scores = 20 * self.layers(images) - 1
        return {"map": scores, "mean": scores.mean((2, 3))}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps") / "bundle"
    spec = InputSpec.exact(SIZE)
    module = Segmenter().eval()
    export(module, folder, preprocessing=spec, labels=LABELS, probability="softmax", output="map", max_batch=3)
    return folder


def photos(count: int) -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, *SIZE, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in pixels]


@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize("count", [1, 3])
def test_pixels_and_masks_are_explained_as_by_autograd(bundle: Path, device: str, count: int) -> None:
    module = Segmenter().eval().double()
    mask = np.zeros(MAP[1:], bool)
    mask[2:4, 3:7] = True
    targets: list[Any] = [Pixel("sky", 5, 2), Region("tree", mask), "road @ 0:7", Contrast(Pixel(0, 1, 1), "mean")]
    with Client(bundle, device=device) as client:
        results = client.explain(photos(count), targets=targets, weights=True)
    for photo, result in zip(photos(count), results, strict=True):
        x = torch.from_numpy(encode(np.asarray(photo))).double()[None].requires_grad_()
        (scores,) = module(x)["map"]
        truths = [
            scores[1, 5, 2],
            scores[2][torch.from_numpy(mask)].mean(),
            scores[0, 0, 7],
            scores[0, 1, 1] - scores.mean(),
        ]
        for truth, explanation in zip(truths, result.explanations, strict=True):
            (row,) = torch.autograd.grad(truth, x, retain_graph=True)
            assert explanation.target.logit == pytest.approx(truth.item(), rel=1e-4, abs=1e-5)
            assert np.linalg.norm(explanation.weights - row[0].numpy()) < 1e-4 * row.norm()
            assert explanation.completeness.passed
        at_pixel = torch.softmax(scores[:, 5, 2], 0)[1].item()
        assert result.explanations[0].target.probability == pytest.approx(at_pixel, rel=1e-4)
        assert [one.target.label for one in result.explanations[:3]] == [
            "sky @ 5:2",
            "tree over 8 pixels",
            "road @ 0:7",
        ]
        best = np.unravel_index(int(scores.argmax()), MAP)
        assert result.prediction.classes[0].label == f"{LABELS[best[0]]} @ {best[1]}:{best[2]}"
        assert Explained.from_json(result.to_json(arrays="base64")) == result


def test_the_command_line_explains_a_pixel(bundle: Path, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photos(1)[0].save(photo)
    run = ["predict", str(photo), "--model", str(bundle), "--device", "cpu", "--out", str(tmp_path / "out"), "--report"]
    reported = CliRunner().invoke(main, [*run, "--explain", "--target", "sky @ 5:2"])
    assert reported.exit_code == 0, reported.output
    assert "sky @ 5:2" in (tmp_path / "out" / "report.html").read_text("utf-8")
    shown = CliRunner().invoke(main, ["inspect", str(bundle)])
    assert "a map of 3 classes, 6×8, softmax" in shown.output
    assert json.loads((bundle / "manifest.json").read_text("utf-8"))["map"] == [*MAP]
    assert CliRunner().invoke(main, ["validate", str(bundle), "--device", "cpu"]).exit_code == 0


def test_wrong_pixels_and_masks_are_refused(bundle: Path) -> None:
    (photo,) = photos(1)
    everywhere = np.ones(MAP[1:], bool)
    with Client(bundle, device="cpu", limits=Limits(targets=20)) as client:
        for y, x in ((6, 0), (0, 8), (-1, 0)):
            with pytest.raises(UnknownTargetError, match="6 rows and 8 columns"):
                client.explain(photo, targets=Pixel("sky", y, x))
        for wrong in (np.ones(SIZE, bool), np.ones(MAP[1:]), ~everywhere):
            with pytest.raises(InputError, match=r"expected bool \[6, 8\]"):
                client.explain(photo, targets=Region("sky", wrong))
        with pytest.raises(InputError, match="limit is 20") as many:
            client.explain(photo, targets=Region("sky", everywhere))
        assert "fewer pixels" in str(many.value.hint)
        for bare in ("sky", 1):
            with pytest.raises(InputError, match="has no pixel"):
                client.explain(photo, targets=bare)
        with pytest.raises(UnknownTargetError, match="there is no class 'sea'"):
            client.explain(photo, targets="sea @ 1:1")
        with pytest.raises(UnknownTargetError, match="there is no class 3"):
            client.explain(photo, targets=Pixel(3, 1, 1))


def test_a_network_without_a_map_or_names_refuses_pixels_and_labels(tmp_path: Path) -> None:
    module = Segmenter().eval()
    export(module, tmp_path / "b", preprocessing=InputSpec.exact(SIZE), probability="none", output="mean")
    assert "map" not in json.loads((tmp_path / "b" / "manifest.json").read_text("utf-8"))
    with Client(tmp_path / "b", device="cpu") as client:
        with pytest.raises(InputError, match="returns no map"):
            client.explain(photos(1), targets=Pixel(1, 0, 0))
        with pytest.raises(UnknownTargetError, match="values without names"):
            client.explain(photos(1), targets="price")


def test_labels_of_a_map_name_its_classes(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="2 labels for 3 classes"):
        export(Segmenter().eval(), tmp_path / "b", input_size=SIZE, labels=["a", "b"], output="map")
    assert not (tmp_path / "b").exists()
