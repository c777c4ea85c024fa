"""The CIFAR-10 networks of the paper against the reference package."""

from __future__ import annotations

import pytest
from support import reference
from support.explaining import explain, random_image, relative_error

from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.models import build_model, calibrate
from bcos_sdk.registry import builtin_registry
from bcos_sdk.registry.architectures import PlainConfig, ResNetConfig

REGISTRY = builtin_registry()
RESNETS = [name for name in REGISTRY if name.startswith("cifar10_resnet") and name != BUILTIN_MODEL]
PLAIN = [name for name in REGISTRY if name.startswith("cifar10_plain9")]
CLASSES = [2, 9]


def check_parity(name: str, size: int = 16) -> None:
    config = REGISTRY[name].architecture
    assert isinstance(config, (ResNetConfig, PlainConfig))
    x = random_image(2, size)
    theirs = reference.plain(config) if isinstance(config, PlainConfig) else reference.cifar_resnet(config)
    calibrate(theirs.double(), x)
    ours = build_model(name).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    expected_logits, expected_weights = explain(theirs, x, CLASSES)
    logits, weights = explain(ours, x, CLASSES)
    assert expected_weights.norm() > 0
    bias = config.resolved_logit_bias
    assert relative_error(logits - bias, expected_logits - bias) < 1e-9
    assert relative_error(weights, expected_weights) < 1e-9


def test_every_variant_of_the_paper_is_in_the_registry() -> None:
    norms, affine, max_out = 12, 3, 2
    assert len(RESNETS) == 4 * (norms * affine + 1) * max_out
    exponents = sorted({REGISTRY[name].architecture.b for name in PLAIN})
    assert exponents == [1, 1.25, 1.5, 1.75, 2, 2.25, 2.5]
    assert len(PLAIN) == len(exponents) * max_out


@pytest.mark.parametrize("name", [name for name in RESNETS if "resnet20" in name])
def test_resnet20_with_every_norm(name: str) -> None:
    check_parity(name)


@pytest.mark.parametrize("depth", [32, 44, 56])
def test_deeper_resnets(depth: int) -> None:
    check_parity(f"cifar10_resnet{depth}_bnu-linear")


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in RESNETS if "resnet20" not in name])
def test_deeper_resnets_with_every_norm(name: str) -> None:
    check_parity(name, 32)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:BcosConv2dWithScale is deprecated")
@pytest.mark.parametrize("name", [*PLAIN, *(name for name in RESNETS if "resnet20" in name)])
def test_parity_at_full_size(name: str) -> None:
    check_parity(name, 32)


@pytest.mark.filterwarnings("ignore:BcosConv2dWithScale is deprecated")
@pytest.mark.parametrize("name", PLAIN)
def test_plain_network(name: str) -> None:
    check_parity(name)
