"""Every network in eval mode: W(x)·x + b(x) is the logit, also with several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.explaining import explain, random_image, relative_error

from bcos_sdk.models import build_model, calibrate
from bcos_sdk.registry import builtin_registry

WITHOUT_BIAS = ["resnet18", "resnext50_32x4d", "densenet121", "convnext_tiny", "cifar10_plain9_b1.5"]


@pytest.mark.parametrize("name", WITHOUT_BIAS)
def test_contributions_add_up_to_the_logit(name: str) -> None:
    spec = builtin_registry()[name]
    x = random_image(2, 32)
    network = build_model(name).double()
    calibrate(network, x)
    classes = [1, spec.architecture.classes - 1]
    logits, weights = explain(network, x, classes)
    contributions = (weights * x).sum((1, 2, 3))
    expected = logits[[0, 1], classes] - spec.architecture.resolved_logit_bias
    torch.testing.assert_close(contributions, expected, rtol=1e-9, atol=0)


def test_dynamic_weights_are_not_the_ordinary_gradient() -> None:
    """Both give the same sum (the layers are homogeneous), so W itself must be compared."""
    x = random_image(1, 64)
    network = build_model("resnet18").double()
    calibrate(network, x)
    _, weights = explain(network, x, [5])
    for module in network.modules():
        if not hasattr(module, "running_var"):
            module.training = True
    _, gradient = explain(network, x, [5])
    torch.testing.assert_close((gradient * x).sum(), (weights * x).sum(), rtol=1e-4, atol=0)
    assert relative_error(gradient, weights) > 1


def test_threads_can_share_a_network() -> None:
    network = build_model("cifar10_resnet20_bnu-linear").double()
    images = [random_image(1, 32) for _ in range(12)]
    calibrate(network, torch.cat(images))
    alone = [explain(network, image, [index % 10]) for index, image in enumerate(images)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda case: explain(network, case[1], [case[0] % 10]), enumerate(images)))
    for (logits, weights), (expected_logits, expected_weights) in zip(together, alone, strict=True):
        torch.testing.assert_close(logits, expected_logits, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-12, atol=1e-12)


def test_a_network_is_built_in_eval_mode() -> None:
    assert not any(module.training for module in build_model("resnet18").modules())


def test_every_family_takes_other_input_sizes() -> None:
    for name in ("resnet18", "densenet121", "convnext_tiny_bnu", "vitc_ti_patch1_14"):
        assert build_model(name)(random_image(1, 96, dtype=torch.float32)).shape == (1, 1000)


def test_a_size_that_is_not_a_multiple_of_the_patch_is_refused() -> None:
    with pytest.raises(ValueError, match="100×100 cannot be divided into patches of 16×16"):
        build_model("simple_vit_ti_patch16_224")(random_image(1, 100, dtype=torch.float32))
