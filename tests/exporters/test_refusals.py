"""Modules that are not dynamic linear, or cannot be captured, are refused with operator and module path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcos_sdk.errors import CaptureError, NotDynamicLinearError
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import explain_program


class Layer(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def network(function: Callable[[Tensor], Tensor]) -> nn.Module:
    return nn.Sequential(nn.Conv2d(6, 4, 1), Layer(function), nn.Flatten(), nn.Linear(4 * 9, 5)).eval()


@pytest.mark.parametrize(
    ("function", "operator", "message"),
    [
        (F.gelu, "aten.gelu.default", "no transpose rule exists"),
        (lambda x: x * x, "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: x * x.abs(), "aten.mul.Tensor", "it multiplies two live values"),
        (lambda x: 1 / (x.abs() + 1), "aten.reciprocal.default", "no transpose rule exists"),
        (lambda x: x @ x.transpose(-1, -2), "aten.matmul.default", "it multiplies two live matrices"),
        (lambda x: F.layer_norm(x, (3,)), "aten.layer_norm.default", "no transpose rule exists"),
        (lambda x: x / torch.var_mean(x, 1, keepdim=True)[0], "aten.div.Tensor", "it divides by a live value"),
        (lambda x: x - torch.var_mean(x, 1, keepdim=True)[0], "aten.var_mean", "its variance is not detached"),
        (lambda x: x - x.mean(0, keepdim=True), "aten.mean.dim", "it reduces the batch axis"),
        (lambda x: F.pad(x, (1, 1), value=2.0)[..., 1:-1], "aten.pad.default", "values other than zero"),
        (torch.sigmoid, "aten.sigmoid.default", "no transpose rule exists"),
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


def changed_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, :2].mul_(0)
    return y


def changed_after_detach(x: Tensor) -> Tensor:
    y = x * 2
    frozen = y.detach()
    y.mul_(3)
    return y * frozen


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (network(changed_view), "in place"),
        (network(changed_after_detach), "in place"),
        (network(lambda x: x + x.new_ones(x.shape[0], 4, 3, 3)), "depends on the batch size"),
        (network(F.relu).half(), "float16"),
        (nn.Sequential(nn.BatchNorm2d(6, track_running_stats=False), nn.Flatten()).eval(), "running statistics"),
        (network(F.relu).train(), "train mode"),
        (network(lambda x: x.reshape(-1, 3, 3).reshape(-1, 4, 3, 3)), "mixes the batch"),
        (network(lambda x: x * 2 if x.sum() > 0 else x), "cannot capture"),
        (nn.Sequential(nn.Conv2d(6, 4, 1)).eval(), "expected logits of shape"),
        (Layer(lambda x: (x, x)).eval(), "more than one tensor"),  # type: ignore[arg-type, return-value]
    ],
)
def test_modules_that_cannot_be_captured_are_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        capture(module, (3, 3))
    assert caught.value.hint
