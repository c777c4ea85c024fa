"""Which networks have choices: only one on a live path to the logits makes W(x) jump and allows a larger error."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from support.operator_cases import Flat, Function

from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.models.layers import BcosConv2d


@pytest.mark.parametrize(
    ("function", "has_choices"),
    [
        (lambda x: x * x.detach().abs() * x.detach().clamp_min(0.1), False),
        (lambda x: x * F.relu(x.detach()).amax((2, 3), keepdim=True), False),
        (lambda x: x * (x.abs() / 2).detach(), False),
        (F.relu, True),
        (lambda x: x.abs(), True),
        (lambda x: x.amax((2, 3)), True),
    ],
)
def test_a_choice_counts_if_it_is_on_a_live_path(function: Function, has_choices: bool) -> None:
    assert compile_module(Flat(function).eval(), (4, 4)).has_choices is has_choices


def test_a_bcos_layer_without_maxout_has_no_choices() -> None:
    layer = BcosConv2d(6, 4, 3)
    assert not compile_module(Flat(layer).eval(), (4, 4)).has_choices
