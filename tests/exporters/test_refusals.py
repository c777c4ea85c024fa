"""Modules that are not dynamic linear, or cannot be captured, are refused with operator and module path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcos_sdk.errors import CaptureError, NotDynamicLinearError, UnsupportedOperatorError
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import explain_program


class Layer(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def headless(function: Callable[[Tensor], Tensor]) -> nn.Module:
    """For functions whose result has another shape than their input."""
    return nn.Sequential(nn.Conv2d(6, 4, 1), Layer(function), nn.Flatten()).eval()


def network(function: Callable[[Tensor], Tensor]) -> nn.Module:
    return nn.Sequential(nn.Conv2d(6, 4, 1), Layer(function), nn.Flatten(), nn.Linear(4 * 9, 5)).eval()


@pytest.mark.parametrize(
    ("function", "operator", "message"),
    [
        (F.gelu, "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: x * x, "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: x * x.abs(), "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: 1 / (x.abs() + 1), "aten.reciprocal.default", "it is not linear"),
        (lambda x: x @ x.transpose(-1, -2), "aten.matmul.default", "it multiplies two live matrices"),
        (lambda x: F.layer_norm(x, (3,)), "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: x / torch.var_mean(x, 1, keepdim=True)[0], "aten.div.Tensor", "it divides by a live value"),
        (lambda x: x - torch.var_mean(x, 1, keepdim=True)[0], "aten.var_mean", "its variance is not detached"),
        (torch.sigmoid, "aten.sigmoid.default", "it is not linear"),
    ],
)
def test_operators_that_are_not_dynamic_linear_are_refused(
    function: Callable[[Tensor], Tensor], operator: str, message: str
) -> None:
    with pytest.raises(NotDynamicLinearError) as caught:
        explain_program(capture(network(function), (3, 3)))
    error = caught.value
    assert error.operator.startswith(operator)
    assert error.path == "1"
    assert message in str(error)
    assert error.hint is not None
    assert "detach" in error.hint.lower()


def test_a_detached_nonlinear_factor_is_allowed() -> None:
    explain_program(capture(network(lambda x: x * F.gelu(x).detach()), (3, 3)))


def test_a_network_that_detaches_every_path_is_refused() -> None:
    with pytest.raises(NotDynamicLinearError, match="do not depend on the image"):
        explain_program(capture(network(lambda x: x.detach()), (3, 3)))


def test_an_unknown_operator_is_refused_with_its_name_and_layer() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"aten\.\w*fft\w*\.default in module '1' is not supported"
    ) as caught:
        capture(headless(lambda x: torch.fft.rfft2(x).real), (3, 3))
    assert caught.value.source == "1"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (network(lambda x: x - x.mean(0, keepdim=True)), "depend on the other images"),
        (network(lambda x: F.dropout(x, 0.5)), "random"),
        (network(lambda x: F.dropout2d(x, 0.5, training=True)), "random"),
        (network(lambda x: F.scaled_dot_product_attention(x.detach(), x.detach(), x, dropout_p=0.1)), "random"),
        (headless(lambda x: F.conv2d(x, x.detach()[:1])), "depend on the other images"),
        (headless(lambda x: F.conv_transpose2d(x, x.detach()[0][:, None])), "filters that depend on the image"),
        (headless(lambda x: x.flatten(2)[:, :, x.detach().flatten(2).argmax(2)[0]]), "index that depends on the image"),
        (headless(lambda x: x.gather(1, x.detach().argmax(1, keepdim=True)[:, :, :2])), "reads 2 of 3 elements"),
        (headless(lambda x: F.max_pool2d(x, 2, return_indices=True)[1] * x[:, :, :1, :1]), "indices that are used"),
        (network(F.relu).half(), "float16"),
        (nn.Sequential(nn.BatchNorm2d(6, track_running_stats=False), nn.Flatten()).eval(), "running statistics"),
        (network(F.relu).train(), "train mode"),
        (network(lambda x: x * 2 if x.sum() > 0 else x), "cannot capture"),
        (nn.Sequential(nn.Conv2d(6, 4, 1), nn.Flatten(2)).eval(), "expected logits of shape"),
        (Layer(lambda x: (x, x)).eval(), "returns 2 tensors"),  # type: ignore[arg-type, return-value]
    ],
)
def test_modules_that_cannot_be_captured_are_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        capture(module, (3, 3))
    assert caught.value.hint
