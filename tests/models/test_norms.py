"""Compare every norm with the reference package, in eval and in train mode."""

from __future__ import annotations

import pytest
import torch
from support import reference
from support.explaining import explanation_mode, relative_error
from torch import Tensor, nn

from bcos_sdk.models.layers import TokenNorm, make_norm
from bcos_sdk.registry import NormConfig

CHANNELS = 6
NORMS = [
    NormConfig.model_validate(
        {"kind": kind, "centred": centred, "affine": affine, "bias": bias} | ({"groups": 2} if kind == "group" else {})
    )
    for kind in ("batch", "all", "group", "layer", "instance", "position")
    for centred in (True, False)
    for affine, bias in ((True, True), (True, False), (False, False))
]


def describe(config: NormConfig) -> str:
    affine = "unaffine" if not config.affine else "affine" if config.bias else "nobias"
    return f"{config.kind}-{'centred' if config.centred else 'uncentred'}-{affine}"


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, CHANNELS, 5, 3, dtype=torch.float64) * 2 + 1


@pytest.fixture(params=NORMS, ids=describe)
def norms(request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module]:
    """Our norm and the reference's, with the same random parameters and statistics."""
    theirs = reference.norm_layer(request.param)(CHANNELS).double()
    state = {
        key: torch.rand_like(value) + 0.5 if value.is_floating_point() else value
        for key, value in theirs.state_dict().items()
    }
    theirs.load_state_dict(state)
    ours = make_norm(CHANNELS, request.param).double()
    ours.load_state_dict(state, strict=True)
    return ours, theirs


def test_outputs_and_rows_of_w_equal_the_reference(norms: tuple[nn.Module, nn.Module], x: Tensor) -> None:
    ours, theirs = norms[0].eval(), norms[1].eval()
    cotangent = torch.randn_like(x)
    x.requires_grad_()
    with explanation_mode(theirs):
        expected = theirs(x)
        (expected_row,) = torch.autograd.grad(expected, x, cotangent)
    out = ours(x)
    (row,) = torch.autograd.grad(out, x, cotangent)
    assert relative_error(out, expected) < 1e-12
    assert relative_error(row, expected_row) < 1e-12


def test_gradients_and_running_statistics_equal_the_reference(norms: tuple[nn.Module, nn.Module], x: Tensor) -> None:
    ours, theirs = norms[0].train(), norms[1].train()
    cotangent = torch.randn_like(x)
    x.requires_grad_()
    (expected_gradient,) = torch.autograd.grad(theirs(x), x, cotangent)
    (gradient,) = torch.autograd.grad(ours(x), x, cotangent)
    assert relative_error(gradient, expected_gradient) < 1e-10
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["batch", "all", "group", "layer", "instance", "position"])
def test_an_uncentred_norm_without_beta_adds_no_bias(kind: str, x: Tensor) -> None:
    groups = {"groups": 2} if kind == "group" else {}
    config = NormConfig.model_validate({"kind": kind, "centred": False, "bias": False, **groups})
    norm = make_norm(CHANNELS, config).double().eval()
    x.requires_grad_()
    out = norm(x).sum()
    (row,) = torch.autograd.grad(out, x)
    torch.testing.assert_close((row * x).sum(), out, rtol=1e-12, atol=1e-12)


def test_token_norm_normalises_each_token() -> None:
    norm = TokenNorm(8).double().eval()
    tokens = torch.randn(2, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    expected = nn.functional.layer_norm(tokens, (8,), norm.weight, eps=1e-5)
    torch.testing.assert_close(norm(tokens), expected, rtol=1e-12, atol=1e-12)


def test_group_norm_refuses_groups_that_do_not_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="6 channels cannot be split into 4 groups"):
        make_norm(CHANNELS, NormConfig(kind="group", groups=4))
