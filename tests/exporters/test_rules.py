"""Each operator in a small module: compare W(x) and b(x) with the Jacobian in float64, and with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.compiling import check_against_jacobian
from support.operator_cases import CASES, Flat, image
from torch import Tensor, nn


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    check_against_jacobian(Flat(CASES[name]), image())


windows = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(st.data())
def test_convolutions_of_any_shape(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 3))
    kernel, stride, dilation = data.draw(windows), data.draw(windows), data.draw(windows)
    padding = (data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    inputs, outputs = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    size = [
        max(d * (k - 1) + 1 - 2 * p, 1) + data.draw(st.integers(0, 4))
        for d, k, p in zip(dilation, kernel, padding, strict=True)
    ]
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=data.draw(st.booleans()))
    check_against_jacobian(nn.Sequential(conv, nn.Flatten()), image(inputs, *size))


@given(st.data())
def test_pools_of_any_shape(data: st.DataObject) -> None:
    kernel, stride = data.draw(windows), data.draw(windows)
    padding = (data.draw(st.integers(0, kernel[0] // 2)), data.draw(st.integers(0, kernel[1] // 2)))
    size = [k + data.draw(st.integers(0, 4)) for k in kernel]
    pool: Any = data.draw(st.sampled_from([nn.AvgPool2d, nn.MaxPool2d]))
    check_against_jacobian(Flat(pool(kernel, stride, padding)), image(2, *size))


def test_the_first_of_equal_values_gets_the_cotangent() -> None:
    """If several values are the largest, the first one gets the whole cotangent, as in autograd."""
    x = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    check_against_jacobian(Flat(nn.MaxPool2d(2)), x)
    check_against_jacobian(Flat(lambda x: x.max(dim=1).values), x)


def test_parameters_with_similar_names_stay_distinct() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.ParameterDict({"scale": torch.rand(4, 1, 1)})
            self.mix_scale = nn.Parameter(torch.rand(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x * self.mix["scale"], x * self.mix_scale], dim=1).flatten(1)

    check_against_jacobian(Alike(), image())


@pytest.mark.parametrize("name", ["image", "targets", "logits", "weights", "number"])
@pytest.mark.parametrize("kind", ["parameter", "module"])
def test_a_module_may_use_the_names_of_inputs_and_outputs(name: str, kind: str) -> None:
    """A constant that the exporter makes has the name of its parameter, or of the module that uses it."""

    class Flip(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flip(2)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("precision", torch.zeros(()))
            if kind == "parameter":
                self.register_parameter(name, nn.Parameter(torch.rand(4, 5, 6)))
            else:
                self.add_module(name, Flip())

        def forward(self, x: Tensor) -> Tensor:
            used = getattr(self, name)
            result: Tensor = x + used * 2 if kind == "parameter" else used(x)
            return result.flatten(1)

    check_against_jacobian(Named(), image())
