"""Post-hoc methods see the network undetached: gradients against finite differences, and the identities of B-cos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import support.needs_torch  # noqa: F401 - skips the module without torch
import torch
from click.testing import CliRunner
from torch import nn

from bcos_sdk.cli import main
from bcos_sdk.evaluation.posthoc import METHODS, PostHoc, last_feature_map, true_gradients
from bcos_sdk.models import random_network
from bcos_sdk.registry import builtin_registry
from bcos_sdk.weights import load_model

RANDOM = np.random.default_rng(5)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return load_model("cifar10_resnet18_w16")


def encoded(side: int = 32) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rgb = RANDOM.random((3, side, side), dtype=np.float32)
    return np.concatenate([rgb, 1 - rgb])


def test_true_gradients_against_finite_differences(network: nn.Module) -> None:
    """In float64, along a random direction. In eval mode the gradient is W(x), which is another vector."""
    network.double()
    try:
        x = torch.from_numpy(encoded()).double()[None].requires_grad_()
        direction = torch.from_numpy(RANDOM.normal(size=x.shape))
        with torch.no_grad():
            expected = network(x)
        with true_gradients(network):
            logits = network(x)
            (gradient,) = torch.autograd.grad(logits[0, 3], x)
        (frozen,) = torch.autograd.grad(network(x)[0, 3], x)
        step = 1e-6
        with torch.no_grad():
            up, down = (network(x + sign * step * direction)[0, 3] for sign in (1, -1))
    finally:
        network.float()
    difference = float(up - down) / (2 * step)
    torch.testing.assert_close(logits, expected)
    assert float((gradient * direction).sum()) == pytest.approx(difference, rel=1e-5)
    assert float((frozen * direction).sum()) != pytest.approx(difference, rel=0.05)
    assert not any(module.training for module in network.modules())


def test_layers_without_running_statistics_are_undetached_too() -> None:
    """A vision transformer detaches attention and the variance of its norms."""
    network = random_network(builtin_registry()["simple_vit_ti_patch16_224"]).double().eval()
    x = torch.rand(1, 6, 224, 224, dtype=torch.float64, requires_grad=True)
    direction = torch.from_numpy(RANDOM.normal(size=x.shape))
    with true_gradients(network):
        (gradient,) = torch.autograd.grad(network(x)[0, 0], x)
    with torch.no_grad():
        up, down = (network(x + sign * 1e-6 * direction)[0, 0] for sign in (1, -1))
    assert float((gradient * direction).sum()) == pytest.approx(float(up - down) / 2e-6, rel=1e-4)


def test_the_last_feature_map_is_that_of_the_last_stage(network: nn.Module) -> None:
    layer = last_feature_map(network, torch.from_numpy(encoded())[None], classes=10)
    assert layer is network.get_submodule("layer4")


class TestCaptum:
    @pytest.fixture(autouse=True)
    def _captum(self) -> None:
        pytest.importorskip("captum", reason="pip install 'bcos-sdk[evaluate]'")

    def test_identities_of_b_cos_networks(self, network: nn.Module) -> None:
        """input × gradient is the product of image and true gradient; DeepLIFT equals it; guided is the gradient."""
        image, classes = encoded(64), [2, 7]
        post_hoc = PostHoc(network, side=32, classes=10)
        x = torch.from_numpy(image)[None].requires_grad_()
        with true_gradients(network):
            gradients = [torch.autograd.grad(network(x)[0, one], x)[0][0] for one in classes]
        product = np.stack([(one * x[0]).sum(0).detach().numpy() for one in gradients])
        plain = np.stack([one.sum(0).numpy() for one in gradients])
        scale = np.abs(product).max()
        np.testing.assert_allclose(post_hoc.explain("ixg", image, classes)[0], product, atol=1e-4 * scale)
        np.testing.assert_allclose(post_hoc.explain("deeplift", image, classes)[0], product, atol=1e-4 * scale)
        found = post_hoc.explain("guided", image, classes)[0]
        np.testing.assert_allclose(found, plain, atol=1e-4 * np.abs(plain).max())

    def test_occlusion_is_the_difference_of_logits(self, network: nn.Module) -> None:
        """The corner of the image lies in one window only: its value is the drop when that window becomes grey."""
        image = encoded()
        (found,), _ = PostHoc(network, side=32, classes=10).explain("occlusion", image, [4])
        covered = image.copy()
        covered[:, :8, :8] = 0.5
        with torch.no_grad():
            both = network(torch.from_numpy(np.stack([image, covered])))[:, 4]
        assert found[0, 0] == pytest.approx(6 * float(both[0] - both[1]), rel=1e-3)  # summed over six channels

    @pytest.mark.full
    @pytest.mark.parametrize("name", list(METHODS))
    def test_every_method_gives_maps(self, network: nn.Module, name: str) -> None:
        maps, seconds = PostHoc(network, side=32, classes=10).explain(name, encoded(), [0, 1])
        assert maps.shape == (2, 32, 32)
        assert np.isfinite(maps).all()
        assert np.abs(maps).max() > 0
        assert seconds > 0


def test_captum_is_named_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcos_sdk._extras.is_installed", lambda module: module != "captum")
    options = ["--model", "cifar10_resnet18_w16", "--against", "ixg", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["evaluate", str(tmp_path), *options])
    assert result.exit_code == 1
    assert "bcos-sdk[evaluate]" in result.stderr


def test_an_unknown_method_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--model", "x", "--against", "magic"])
    assert result.exit_code == 2
    assert "unknown method magic" in result.stderr
