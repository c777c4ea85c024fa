"""Which values of a network are choices: booleans, integers and steps that are computed from floating-point values."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from support.operator_cases import Flat, Function

from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.verify import choices_of
from bcos_sdk.models.layers import BcosConv2d


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x * x.detach().abs() * x.detach().clamp_min(0.1), 0),
        (lambda x: x * F.relu(x.detach()).amax((2, 3), keepdim=True), 0),
        (lambda x: x * (x.abs() / 2).detach(), 0),
        (lambda x: x * (x > 0.5), 1),
        (lambda x: x * x.detach().round(), 1),
        (F.relu, 1),
        (lambda x: x.abs(), 1),
        (lambda x: x.amax((2, 3)), 1),
        (lambda x: x.clamp(0.2, 0.7), 2),
        (lambda x: F.max_pool2d(F.relu(x - 0.5), 2), 2),
        (lambda x: x.sort(2)[0], 1),
    ],
)
def test_the_choices_of_a_function(function: Function, count: int) -> None:
    assert len(choices_of(compile_module(Flat(function).eval(), (4, 4)).explain)) == count


def test_a_bcos_layer_without_maxout_has_no_choices() -> None:
    layer = BcosConv2d(6, 4, 3)
    assert not choices_of(compile_module(Flat(layer).eval(), (4, 4)).explain)
