"""Small networks of the published families against their Jacobians in float64, and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.b_cosified import TwinStem
from support.clip import ClipResNet, ClipVit, with_texts
from support.compiling import check_against_jacobian
from support.families import FAMILIES, SIZES, Checkpointed, SwitchedConv
from support.fast import only_fast
from torch import Tensor, nn

from bcos_sdk.errors import CaptureError, NotDynamicLinearError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.capture import capture, explanation_mode
from bcos_sdk.exporters.compiler import compile_module


def images(size: tuple[int, int] = (8, 8)) -> Tensor:
    rgb = torch.rand(3, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return torch.cat([rgb, 1 - rgb], dim=1)


SLOW = {"CLIP, attention pool", "CLIP, ResNet without biases", "CLIP, ViT, batch first"}


@pytest.mark.parametrize("name", only_fast(FAMILIES, FAMILIES.keys() - SLOW))
def test_family_matches_its_jacobian(name: str) -> None:
    torch.manual_seed(0)
    module = FAMILIES[name]().eval()
    check_against_jacobian(module, images(SIZES.get(name, (8, 8))))


@pytest.mark.full
@pytest.mark.parametrize(
    ("encoder", "width", "most"),
    [
        (lambda: ClipVit(224, 32, 768, 12, 12, 512), 512, 1e-5),
        # Random norms amplify the rounding errors of 55 convolutions; in torch as in the graph.
        (lambda: ClipResNet((3, 4, 6, 3), 64, 32, 1024, size=224, bias=False), 1024, 1e-3),
    ],
    ids=["ViT-B/32", "RN50"],
)
def test_an_encoder_of_clip_in_its_own_size(
    encoder: Callable[[], nn.Module], width: int, most: float, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    bundle = export(with_texts(encoder(), width, 10).eval(), tmp_path / "bundle", input_size=(224, 224), max_batch=1)
    (figures,) = bundle.manifest.parity
    assert figures.weights < most
    assert figures.residual < 1e-5


@pytest.mark.parametrize("normalised", [True, False])
def test_contributions_that_cancel_on_a_grey_image_are_no_error(tmp_path: Path, normalised: bool) -> None:
    torch.manual_seed(0)
    bundle = export(TwinStem(normalised=normalised).eval(), tmp_path / "bundle", input_size=(8, 8), max_batch=2)
    for figures in bundle.manifest.parity:
        assert figures.weights < 1e-5
        assert figures.contributions < 1e-5


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpoints_are_exported(tmp_path: Path, reentrant: bool) -> None:
    module = Checkpointed(reentrant=reentrant).eval()
    bundle = export(module, tmp_path / "bundle", input_size=(8, 8), max_batch=2)
    assert max(figures.weights for figures in bundle.manifest.parity) < 1e-5


def test_the_switch_of_the_first_release_is_called_and_set_back() -> None:
    torch.manual_seed(0)
    first, second = SwitchedConv(6, 8, 3), SwitchedConv(8, 4, 3)
    module = nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    second.explanation_mode(True)
    with explanation_mode(module):
        check_against_jacobian(module, images())
    assert (first.detach, second.detach) == (False, True)


@pytest.mark.parametrize("live", ["query", "key"])
def test_attention_with_a_live_query_or_key_is_refused(live: str) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(2).transpose(1, 2)
            query, key = (x if live == name else x.detach() for name in ("query", "key"))
            result: Tensor = self.attention(query, key, x, need_weights=False)[0].mean(1)
            return result

    with pytest.raises(NotDynamicLinearError):
        compile_module(Attention().eval(), (4, 4))


class Branch(nn.Module):
    """Doubles its result if a value is positive."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value = value
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.mean((2, 3))
        constants = {"parameter": self.scale - 1, "list": torch.tensor([0.0, 1.0]).max(), "image": rows.sum()}
        result: Tensor = self.head(rows * 2 if constants[self.value] > 0 else rows)
        return result


@pytest.mark.parametrize("value", ["parameter", "list"])
def test_branches_on_constants_are_taken(value: str) -> None:
    check_against_jacobian(Branch(value), images())


def test_branches_on_the_image_are_refused() -> None:
    with pytest.raises(CaptureError, match="must not branch"):
        capture(Branch("image").eval(), (4, 4))


def test_branches_on_a_constant_that_the_image_has_changed_are_refused() -> None:
    class Changed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            total = torch.zeros(2)
            first, _ = total.chunk(2)
            first.add_(x.sum())
            rows = x.mean((2, 3))
            return rows * 2 if total.sum() > 0 else rows

    with pytest.raises(CaptureError, match="must not branch"):
        capture(Changed().eval(), (4, 4))
