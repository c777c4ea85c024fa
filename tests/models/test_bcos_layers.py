"""Compare the B-cos layers with a slow literal implementation and with the reference package."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reference
from support.explaining import explanation_mode, relative_error
from torch import Tensor

from bcos_sdk.models.layers import BcosConv2d, BcosLinear

EXPONENTS = [1.0, 1.25, 1.5, 2.0, 2.5, 3.0]


def literal_conv(layer: BcosConv2d, x: Tensor) -> Tensor:
    """The formula, computed for one filter and one patch at a time."""
    conv = layer.linear
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel_size, conv.stride, conv.dilation
    assert not isinstance(conv.padding, str)
    ph, pw = conv.padding
    padded = torch.nn.functional.pad(x, (pw, pw, ph, ph))
    out_units = conv.out_channels // layer.max_out
    inputs_per_group = conv.in_channels // conv.groups
    height = (padded.shape[2] - dh * (kh - 1) - 1) // sh + 1
    width = (padded.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = x.new_zeros(len(x), out_units, height, width)
    for n in range(len(x)):
        for unit in range(out_units):
            group = unit // (out_units // conv.groups)
            channels = slice(group * inputs_per_group, (group + 1) * inputs_per_group)
            for i in range(height):
                for j in range(width):
                    rows = slice(i * sh, i * sh + dh * (kh - 1) + 1, dh)
                    columns = slice(j * sw, j * sw + dw * (kw - 1) + 1, dw)
                    patch = padded[n, channels, rows, columns].flatten()
                    out[n, unit, i, j] = literal_unit(layer, unit, patch, (patch.square().sum() + 1e-6).sqrt())
    return out


def literal_unit(layer: BcosConv2d | BcosLinear, unit: int, patch: Tensor, norm: Tensor) -> Tensor:
    rows = layer.linear.weight[unit * layer.max_out : (unit + 1) * layer.max_out].detach().flatten(1)
    linear: Tensor = max((row / row.norm()) @ patch for row in rows)
    if layer.b == 1:
        return linear
    cosine = (linear / norm).abs()
    return linear * (cosine if layer.b == 2 else (cosine + 1e-6).pow(layer.b - 1))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[BcosConv2d, Tensor]:
    groups = draw(st.integers(1, 3))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    layer = BcosConv2d(
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        kernel,
        stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        padding=(draw(st.integers(0, 3)), draw(st.integers(0, 2))),
        dilation=dilation,
        groups=groups,
        b=draw(st.sampled_from(EXPONENTS)),
        max_out=draw(st.integers(1, 3)),
    )
    height = dilation[0] * (kernel[0] - 1) + draw(st.integers(1, 4))
    width = dilation[1] * (kernel[1] - 1) + draw(st.integers(1, 4))
    x = torch.randn(2, layer.linear.in_channels, height, width, dtype=torch.float64)
    return layer.double().eval(), x


@given(convolutions())
@settings(max_examples=60, deadline=None)
def test_convolution_is_the_literal_formula(case: tuple[BcosConv2d, Tensor]) -> None:
    layer, x = case
    torch.testing.assert_close(layer(x), literal_conv(layer, x), rtol=1e-10, atol=1e-12)


@given(convolutions())
@settings(max_examples=30, deadline=None)
def test_convolution_is_its_jacobian_times_its_input(case: tuple[BcosConv2d, Tensor]) -> None:
    layer, x = case
    jacobian = torch.func.jacrev(layer)(x)
    product = torch.tensordot(jacobian, x, dims=x.ndim)
    torch.testing.assert_close(product, layer(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("b", EXPONENTS)
@pytest.mark.parametrize("max_out", [1, 2, 3])
def test_linear_is_the_literal_formula(b: float, max_out: int) -> None:
    layer = BcosLinear(5, 4, b=b, max_out=max_out).double().eval()
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    for sample, out in zip(x.flatten(0, 1), layer(x).flatten(0, 1), strict=True):
        for unit in range(4):
            expected = literal_unit(layer, unit, sample, sample.norm() + 1e-12)
            torch.testing.assert_close(out[unit], expected, rtol=1e-12, atol=0)


CONVOLUTIONS: list[dict[str, Any]] = [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 4, "stride": 4},
    {"kernel_size": 7, "stride": 2, "padding": 3},
    {"kernel_size": 3, "padding": 1, "groups": 2},
    {"kernel_size": 7, "padding": 3, "groups": 6},
    {"kernel_size": (1, 3), "padding": (0, 1)},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("b", EXPONENTS)
@pytest.mark.parametrize("max_out", [1, 2])
def test_convolution_equals_the_reference(options: dict[str, Any], b: float, max_out: int) -> None:
    theirs = reference.BcosConv2d(6, 12, b=b, max_out=max_out, **options).double().eval()
    ours = BcosConv2d(6, 12, b=b, max_out=max_out, **options).double().eval()
    check_against_reference(ours, theirs, torch.randn(2, 6, 11, 9, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:dilation > 1 is much slower")
def test_dilated_convolution_equals_the_reference() -> None:
    theirs = reference.BcosConv2d(6, 4, 3, padding=1, dilation=2).double().eval()
    ours = BcosConv2d(6, 4, 3, padding=1, dilation=2).double().eval()
    check_against_reference(ours, theirs, torch.randn(2, 6, 11, 9, dtype=torch.float64))


@pytest.mark.parametrize("b", EXPONENTS)
@pytest.mark.parametrize("max_out", [1, 2])
def test_linear_equals_the_reference(b: float, max_out: int) -> None:
    theirs = reference.BcosLinear(8, 5, b=b, max_out=max_out).double().eval()
    ours = BcosLinear(8, 5, b=b, max_out=max_out).double().eval()
    check_against_reference(ours, theirs, torch.randn(3, 4, 8, dtype=torch.float64))


def check_against_reference(ours: torch.nn.Module, theirs: torch.nn.Module, x: Tensor) -> None:
    """Same output; same dynamic weights in eval mode; same ordinary gradient in train mode."""
    ours.load_state_dict(theirs.state_dict(), strict=True)
    cotangent = torch.randn_like(theirs(x))
    with explanation_mode(theirs):
        expected_out, expected_row = vector_jacobian(theirs, x, cotangent)
    out, row = vector_jacobian(ours, x, cotangent)
    assert relative_error(out, expected_out) < 1e-12
    assert relative_error(row, expected_row) < 1e-12
    _, expected_gradient = vector_jacobian(theirs, x, cotangent)
    _, gradient = vector_jacobian(ours.train(), x, cotangent)
    assert relative_error(gradient, expected_gradient) < 1e-12


def vector_jacobian(layer: torch.nn.Module, x: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    out = layer(x)
    (gradient,) = torch.autograd.grad(out, x, cotangent)
    return out.detach(), gradient


def test_the_scale_of_a_filter_does_not_matter() -> None:
    layer = BcosConv2d(3, 4, 3).double().eval()
    x = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    before = layer(x)
    with torch.no_grad():
        layer.linear.weight.mul_(7.3)
    torch.testing.assert_close(layer(x), before, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_filter_of_zeros_gives_zeros(dtype: torch.dtype) -> None:
    conv, linear = BcosConv2d(3, 2, 3).to(dtype).eval(), BcosLinear(3, 2).to(dtype).eval()
    with torch.no_grad():
        conv.linear.weight[0].zero_()
        linear.linear.weight[0].zero_()
    assert (conv(torch.rand(1, 3, 5, 5, dtype=dtype))[:, 0] == 0).all()
    assert (linear(torch.rand(1, 3, dtype=dtype))[:, 0] == 0).all()


HALF = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("b", EXPONENTS)
def test_patches_too_large_for_half_precision_are_scaled_as_in_float32(dtype: torch.dtype, b: float) -> None:
    layer = BcosConv2d(512, 8, 3, b=b).to(dtype).eval()
    x = (torch.randn(2, 512, 5, 5) * 5).to(dtype)
    assert 512 * 9 * x.float().square().mean() > torch.finfo(torch.float16).max, "the average patch must overflow"
    out = layer(x)
    assert out.dtype == dtype
    assert relative_error(out.float(), layer.float()(x.float())) < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("b", EXPONENTS)
def test_vectors_too_large_for_half_precision_are_scaled_as_in_float32(dtype: torch.dtype, b: float) -> None:
    layer = BcosLinear(4096, 8, b=b).to(dtype).eval()
    x = (torch.randn(4, 4096) * 5000).to(dtype)
    out = layer(x)
    assert out.dtype == dtype
    assert relative_error(out.float(), layer.float()(x.float())) < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
@pytest.mark.parametrize("b", EXPONENTS)
def test_zero_input_gives_zero_output(dtype: torch.dtype, b: float) -> None:
    linear, conv = BcosLinear(6, 3, b=b).to(dtype).eval(), BcosConv2d(6, 3, 3, b=b).to(dtype).eval()
    assert (linear(torch.zeros(2, 6, dtype=dtype)) == 0).all()
    assert (conv(torch.zeros(1, 6, 4, 4, dtype=dtype)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_captured_graphs_of_full_precision_contain_no_casts(dtype: torch.dtype) -> None:
    layers = [(BcosConv2d(4, 4, 3), (1, 4, 5, 5)), (BcosLinear(4, 4, b=1.5), (2, 4))]
    for layer, shape in layers:
        program = torch.export.export(layer.to(dtype).eval(), (torch.zeros(shape, dtype=dtype),))
        operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
        assert any("abs" in operator for operator in operators)
        assert not [operator for operator in operators if operator.startswith(("aten.to.", "aten._to_copy"))]


@pytest.mark.parametrize(("b", "max_out"), [(0.5, 1), (2, 0)])
def test_b_and_max_out_below_1_are_refused(b: float, max_out: int) -> None:
    with pytest.raises(ValueError, match="b >= 1"):
        BcosConv2d(3, 4, b=b, max_out=max_out)
    with pytest.raises(ValueError, match="b >= 1"):
        BcosLinear(3, 4, b=b, max_out=max_out)
