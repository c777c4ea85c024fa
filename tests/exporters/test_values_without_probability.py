"""Networks whose results are not scores of classes: a regression and an embedding, on inputs that are not square."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor, nn

from bcos_sdk import Client, Explained
from bcos_sdk.cli import main
from bcos_sdk.exporters import export
from bcos_sdk.images import encode
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import InputSpec
from bcos_sdk.results import to_rows

SIZE = (12, 20)


class Values(nn.Module):
    """[batch, 6, H, W] → [batch, values]; [batch] with `flat`."""

    def __init__(self, values: int, *, flat: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(BcosConv2d(6, 8, 3, padding=1), BcosConv2d(8, values, 1))
        self.flat = flat

    def forward(self, images: Tensor) -> Tensor:
        values: Tensor = 50 * self.layers(images).mean((2, 3)) - 3
        return values[:, 0] if self.flat else values


def exported(module: nn.Module, folder: Path) -> Path:
    spec = InputSpec.exact(SIZE)
    export(module.eval(), folder, preprocessing=spec, probability="none", max_batch=2)
    return folder


@pytest.fixture
def photo() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize(("values", "flat", "target"), [(1, True, 0), (1, False, 0), (5, False, 3)])
def test_a_value_is_explained_as_by_autograd_and_has_no_probability(
    tmp_path: Path, photo: Image.Image, device: str, values: int, flat: bool, target: int
) -> None:
    module = Values(values, flat=flat)
    with Client(exported(module, tmp_path / "bundle"), device=device) as client:
        (prediction,) = client.predict(photo)
        (result,) = client.explain(photo, targets=target, weights=True)
    x = torch.from_numpy(encode(np.asarray(photo))).double()[None].requires_grad_()
    truth = module.double()(x).reshape(-1)
    (row,) = torch.autograd.grad(truth[target], x)
    (explanation,) = result.explanations
    ranked = truth.detach().argsort(descending=True).tolist()
    assert [score.index for score in prediction.classes] == ranked
    assert [score.logit for score in prediction.classes] == pytest.approx(
        truth.detach()[ranked].tolist(), rel=1e-5, abs=1e-5
    )
    assert {score.probability for score in prediction.classes} == {None}
    assert explanation.target.probability is None
    assert np.linalg.norm(explanation.weights - row[0].numpy()) < 1e-4 * row.norm()
    assert explanation.completeness.passed
    assert Explained.from_json(result.to_json()) == result
    assert {line["probability"] for line in to_rows([prediction, result])} == {None}
    assert "logit" in prediction._repr_html_()


def test_the_command_line_prints_the_value_and_the_report_has_no_probability(
    tmp_path: Path, photo: Image.Image
) -> None:
    bundle = exported(Values(1), tmp_path / "bundle")
    picture = tmp_path / "photo.png"
    photo.save(picture)
    with Client(bundle, device="cpu") as client:
        value = client.predict(picture)[0].classes[0].logit
    out = tmp_path / "out"
    arguments = ["predict", str(picture), "--model", str(bundle), "--device", "cpu"]
    printed = CliRunner().invoke(main, arguments)
    assert (printed.exit_code, f"0 {value:.3f}" in printed.output) == (0, True), printed.output
    reported = CliRunner().invoke(main, [*arguments, "--explain", "--report", "--out", str(out)])
    assert reported.exit_code == 0, reported.output
    page = (out / "report.html").read_text("utf-8")
    assert '"probability": "none"' in page
    assert '"probability": null' in page
