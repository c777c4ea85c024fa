"""Compare random dynamic-linear networks, drawn by hypothesis, with their Jacobians."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.compiling import check_against_jacobian
from torch import Tensor, nn

from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.models.layers import BcosConv2d, make_norm
from bcos_sdk.registry import NormConfig

EXPONENTS = st.sampled_from([1.0, 1.5, 2.0, 2.5])
KINDS = st.sampled_from(["none", "batch", "all", "layer", "instance", "position"])


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.branch(x))


class Dense(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], dim=1)


class Gate(nn.Module):
    """x ↦ x · σ(mean x) with a frozen gate: dynamic linear, but not B-cos."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean((2, 3), keepdim=True).sigmoid().detach()


@st.composite
def layers(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    """A layer with `channels` input channels, and its number of output channels."""
    kind = draw(st.sampled_from(["bcos", "norm", "residual", "dense", "pool", "relu", "gate", "conv"]))
    if kind == "bcos":
        groups = 2 if channels % 2 == 0 and draw(st.booleans()) else 1
        out = groups * draw(st.integers(1, 3))
        kernel, stride, units = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
        window = (kernel, stride, kernel // 2, 1, groups)
        return BcosConv2d(channels, out, *window, b=draw(EXPONENTS), max_out=units), out
    if kind == "norm":
        flags = {"kind": draw(KINDS), "centred": draw(st.booleans()), "bias": draw(st.booleans())}
        return make_norm(channels, NormConfig.model_validate(flags)), channels
    if kind in ("residual", "dense"):
        branch = BcosConv2d(channels, channels, 3, padding=1, b=draw(EXPONENTS))
        return (Residual(branch), channels) if kind == "residual" else (Dense(branch), 2 * channels)
    if kind == "conv":
        return nn.Conv2d(channels, 3, 1), 3
    simple = {"pool": nn.AvgPool2d(3, stride=2, padding=1), "relu": nn.ReLU(), "gate": Gate()}
    return simple[kind], channels


@st.composite
def networks(draw: st.DrawFn) -> nn.Module:
    channels, parts = 6, []
    for _ in range(draw(st.integers(1, 4))):
        part, channels = draw(layers(channels))
        parts.append(part)
    head = [BcosConv2d(channels, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return randomised(nn.Sequential(*parts, *head))


def randomised(module: nn.Module) -> nn.Module:
    """Set scales, biases and running statistics of norms to random values; return the module in eval mode."""
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2.0)
            elif value.ndim == 1 and value.is_floating_point():
                value.uniform_(-1.0, 1.0)
    return module.eval()


@given(networks())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_networks_match_their_jacobians(module: nn.Module) -> None:
    rgb = torch.rand(2, 3, 6, 7, dtype=torch.float64)
    check_against_jacobian(module, torch.cat([rgb, 1 - rgb], dim=1))


@given(networks())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_simplifications_do_not_change_outputs_of_random_networks(module: nn.Module) -> None:
    x = torch.rand(2, 6, 6, 7, dtype=torch.float64)
    every_pass = {"merge_scales", "fold_bcos_scale", "skip_unit_windows", "multiply_reciprocals", "share_values"}
    every_pass |= {"flip_convolutions", "repeat_averages"}
    targets = torch.tensor([[0, -1, 3], [2, -2, 1]])
    simple = compile_module(module.double(), (6, 7)).explain.run(x, targets)
    plain = compile_module(module, (6, 7), without=every_pass).explain.run(x, targets)
    for name, value in plain.items():
        torch.testing.assert_close(simple[name], value, rtol=1e-7, atol=1e-10)
