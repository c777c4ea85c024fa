"""What is compared is comparable: the same weights give the same explanations on both sides."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import support.needs_torch  # noqa: F401
import torch
from support.explaining import explain, random_image, relative_error

from bcos_sdk._extras import installed_version
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli.benchmark._contenders import (
    conventional_contenders,
    our_contenders,
    reference_contenders,
    without_comparison,
)
from bcos_sdk.cli.benchmark._conventional import build_conventional, export_conventional, open_conventional
from bcos_sdk.cli.benchmark._race import Contender
from bcos_sdk.cli.benchmark._random_weights import random_network
from bcos_sdk.cli.benchmark._reference import explain_in_batch, predict_in_batch
from bcos_sdk.cli.benchmark._samples import sample_images, top_targets
from bcos_sdk.cli.benchmark._subjects import Subject
from bcos_sdk.cli.benchmark._torchvision import import_torchvision
from bcos_sdk.exporters import export
from bcos_sdk.registry import InputSpec, builtin_registry

REGISTRY = builtin_registry()
PUBLISHED = [spec for spec in REGISTRY.values() if spec.weights is not None]
SIZE = (32, 32)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """ResNet-18 for small images, with the weights that it was exported with."""
    spec = REGISTRY["resnet18"].model_copy(update={"input": InputSpec(size=SIZE, resize=None, crop=None)})
    network = random_network(spec)
    bundle = export(
        network, tmp_path_factory.mktemp("bundle") / "b", name="resnet18", preprocessing=spec.input, max_batch=2
    )
    return Subject("resnet18", bundle, spec, 1.0, network.state_dict())


def by_name(contenders: list[Contender]) -> dict[tuple[str, int], Contender]:
    found: dict[tuple[str, int], Contender] = {(one.what, one.batch): one for one in contenders}
    assert len(found) == len(contenders)
    return found


def test_the_reference_explains_what_we_explain(subject: Subject) -> None:
    theirs = by_name(list(reference_contenders(subject, [1, 2])))
    with ExitStack() as stack:
        ours = by_name(list(our_contenders(subject, "cpu", 2, [1, 2], stack)))
        for batch in (1, 2):
            logits = torch.from_numpy(ours["forward", batch].run())
            assert relative_error(logits, theirs["forward", batch].run()) < 1e-5  # type: ignore[arg-type]
            outputs = ours["explain", batch].run()
            maps = torch.from_numpy(outputs.contributions[:, 0])  # type: ignore[attr-defined]
            assert relative_error(maps, theirs["explain", batch].run()) < 1e-4  # type: ignore[arg-type]
            explained = ours["client explain", batch].run()
            for one, expected in zip(explained, maps, strict=True):  # type: ignore[call-overload]
                np.testing.assert_array_equal(one.explanations[0].contributions, expected.numpy())
        five = ours["explain top 5", 1].run()
        assert five.classes[0].tolist() == logits_order(ours["forward", 1].run())[:5]  # type: ignore[attr-defined]
        picture = np.asarray(ours["explain with picture", 1].run()) / 255
    expected = theirs["explain with picture", 1].run()["explanation"]  # type: ignore[index]
    assert picture.shape == expected.shape
    assert np.abs(picture - expected).mean() < 0.01, "the reference draws the same picture"


def logits_order(logits: object) -> list[int]:
    order: list[int] = np.argsort(-np.asarray(logits)[0], kind="stable").tolist()
    return order


def test_batched_explanations_are_those_of_single_images(subject: Subject) -> None:
    from bcos_sdk.cli.benchmark._reference import build_reference

    network = build_reference("resnet18")
    network.load_state_dict(subject.state)
    images = random_image(3, 32, dtype=torch.float32)
    logits = predict_in_batch(network, images)
    _, weights = explain(network, images, logits.argmax(1).tolist())
    assert relative_error(explain_in_batch(network, images), (weights * images).sum(1)) < 1e-5
    assert not images.requires_grad


ONE_OF_EACH = ["resnext50_32x4d", "densenet121", "vgg11_bnu", "convnext_tiny", "simple_vit_ti_patch16_224"]


@pytest.mark.parametrize(
    "name",
    ["resnet18", "vitc_ti_patch1_14", *(pytest.param(name, marks=pytest.mark.full) for name in ONE_OF_EACH)],
)
def test_the_conventional_graph_is_the_torch_network(name: str, tmp_path: Path) -> None:
    network = build_conventional(REGISTRY[name], SIZE)
    export_conventional(network, SIZE, tmp_path / "c.onnx")
    for device in ["cpu", *(["openvino"] if installed_version("openvino") else [])]:
        forward = open_conventional(tmp_path / "c.onnx", device, 2, 1000)
        assert forward is not None
        for batch in (1, 3):
            images = torch.rand(batch, 3, *SIZE)
            with torch.no_grad():
                expected = network(images)
            assert float(expected.std()) > 1e-3
            assert relative_error(torch.from_numpy(forward(images.numpy())), expected) < 1e-5
    assert open_conventional(tmp_path / "c.onnx", "tensorrt", 2, 1000) is None


def test_conventional_contenders_run(subject: Subject, tmp_path: Path) -> None:
    found = list(conventional_contenders(subject, ["cpu"], 2, [1, 2], tmp_path))
    assert [(one.device, one.batch) for one in found] == [("cpu", 1), ("cpu", 2)]
    assert found[1].run().shape == (2, 1000)  # type: ignore[attr-defined]


def test_a_transformer_has_the_tokens_and_the_stem_of_ours() -> None:
    network = build_conventional(REGISTRY["vitc_ti_patch1_14"], (64, 64))
    kinds = [type(module).__name__ for module in network.conv_proj.modules()]
    assert kinds.count("Conv2d") == 5, "four of the stem, one to the tokens"
    assert kinds.count("BatchNorm2d") == 4
    assert network.seq_length == 4 * 4 + 1
    assert len(network.encoder.layers) == 11
    plain = build_conventional(REGISTRY["simple_vit_ti_patch16_224"], (64, 64))
    assert (plain.conv_proj.kernel_size, plain.conv_proj.stride) == ((16, 16), (16, 16))


@pytest.mark.parametrize("spec", PUBLISHED, ids=lambda spec: str(spec.name))
def test_every_published_model_has_both_counterparts(spec: object, subject: Subject) -> None:
    known = Subject(spec.name, subject.bundle, spec)  # type: ignore[attr-defined, arg-type]
    assert without_comparison(known, "reference") is None
    assert without_comparison(known, "conventional") is None


def test_conventional_networks_are_about_as_large_as_ours() -> None:
    """Within the first convolution's three channels, norms and biases: a wrong depth or width would show."""
    from bcos_sdk.cli.benchmark._conventional import _BUILDERS

    models = import_torchvision().models
    for name, builder in _BUILDERS.items():
        with torch.device("meta"):
            network = getattr(models, builder)()
        count = sum(parameter.numel() for parameter in network.parameters())
        assert count == pytest.approx(REGISTRY[name].published.parameters, rel=0.03), name


def test_what_has_no_counterpart_is_noted(subject: Subject) -> None:
    cifar = Subject("c", subject.bundle, REGISTRY["cifar10_resnet20"])
    own = Subject("own", subject.bundle, None)
    assert "no entry point for cifar10_resnet20" in str(without_comparison(cifar, "reference"))
    assert "torchvision has no network for cifar10_resnet20" in str(without_comparison(cifar, "conventional"))
    assert "the registry knows no model 'own'" in str(without_comparison(own, "reference"))
    tuned = subject.bundle.manifest.model_copy(update={"classes": 7})
    seven = Subject("resnet18", Bundle(subject.bundle.path, tuned), REGISTRY["resnet18"])
    assert "resnet18 has another number of classes" in str(without_comparison(seven, "conventional"))


def test_samples() -> None:
    images = sample_images(2, (4, 6))
    assert images.shape == (2, 6, 4, 6)
    np.testing.assert_allclose(images[:, :3] + images[:, 3:], 1, atol=1e-6)
    assert top_targets(2, 3).tolist() == [[-1, -2, -3], [-1, -2, -3]]


def test_random_networks_are_the_same_every_time_and_disturb_nobody() -> None:
    spec = REGISTRY["cifar10_plain9_b2-nomaxout"]
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = random_network(spec).state_dict(), random_network(spec).state_dict()
    assert torch.rand(1) == expected
    assert all(torch.equal(first[key], second[key]) for key in first)
