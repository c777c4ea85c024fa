"""Compare every published model with the reference package: keys, logits and W(x)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import reference
from support.explaining import explain, random_image, relative_error

from bcos_sdk.models import build_model, calibrate
from bcos_sdk.registry import builtin_registry

PUBLISHED = [name for name, spec in builtin_registry().items() if spec.weights is not None]
# Networks that take more than three seconds even at a small size: by default only their keys and shapes are compared.
LARGE = ["vgg11_bnu", "resnet101", "resnet152", "resnet152_long", "convnext_base", "convnext_base_bnu"]
LARGE += ["simple_vit_b_patch16_224", "simple_vit_l_patch16_224", "vitc_l_patch1_14"]
CLASSES = [3, 977]
TOLERANCE = 1e-9

Report = Callable[[str, float, float], None]


def check_parity(name: str, size: int, report: Report) -> None:
    spec = builtin_registry()[name]
    x = random_image(len(CLASSES), size)
    theirs = reference.build(name).double()
    calibrate(theirs, x)
    ours = build_model(name).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    expected_logits, expected_weights = explain(theirs, x, CLASSES)
    logits, weights = explain(ours, x, CLASSES)
    bias = spec.architecture.resolved_logit_bias
    assert (expected_logits - bias).std() > 1e-8, "the logits are all equal, so the comparison could not fail"
    logit_error = relative_error(logits - bias, expected_logits - bias)
    weight_error = relative_error(weights, expected_weights)
    report(f"{name} at {size}×{size}", logit_error, weight_error)
    assert logit_error < TOLERANCE
    assert weight_error < TOLERANCE


def test_all_published_models_are_in_the_registry() -> None:
    assert len(PUBLISHED) == 26


@pytest.mark.parametrize("name", PUBLISHED)
def test_keys_and_shapes_are_those_of_the_reference(name: str) -> None:
    with torch.device("meta"):
        theirs, ours = reference.build(name).state_dict(), build_model(name).state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in LARGE else name for name in PUBLISHED]
)
def test_parity_at_a_small_size(name: str, report_parity: Report) -> None:
    check_parity(name, 64, report_parity)


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_parity_at_full_size(name: str, report_parity: Report) -> None:
    check_parity(name, 224, report_parity)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_is_the_published_one(name: str) -> None:
    with torch.device("meta"):
        network = build_model(name)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == builtin_registry()[name].published.parameters
