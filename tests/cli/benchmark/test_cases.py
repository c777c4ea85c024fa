"""The compared cases do the same work: with the same weights they give the same logits and explanations."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.needs_torch  # noqa: F401
import torch
from support.explaining import explain, random_image, relative_error
from support.fast import only_fast
from support.gpu_machine import GpuMachine

from bcos_sdk._extras import installed_version
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli.benchmark import import_torchvision
from bcos_sdk.cli.benchmark._cases import (
    conventional_cases,
    our_cases,
    reason_not_compared,
    reference_cases,
    torch_cases,
)
from bcos_sdk.cli.benchmark._conventional import (
    TORCHVISION_BUILDERS,
    build_conventional,
    export_conventional,
    open_conventional,
)
from bcos_sdk.cli.benchmark._reference import build_reference, explain_in_batch, predict_in_batch
from bcos_sdk.cli.benchmark._subject import Subject, sample_images, top_targets
from bcos_sdk.cli.benchmark._timing import Case
from bcos_sdk.cli.benchmark._torch_network import torch_place
from bcos_sdk.exporters import export
from bcos_sdk.models import random_network
from bcos_sdk.registry import InputSpec, builtin_registry

REGISTRY = builtin_registry()
PUBLISHED = [spec for spec in REGISTRY.values() if spec.weights is not None]
SIZE = (32, 32)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """ResNet-18 for small images, with its weights."""
    spec = REGISTRY["resnet18"].model_copy(update={"input": InputSpec(size=SIZE, resize=None, crop=None)})
    network = random_network(spec)
    bundle = export(
        network, tmp_path_factory.mktemp("bundle") / "b", name="resnet18", preprocessing=spec.input, max_batch=2
    )
    return Subject("resnet18", bundle, spec, 1.0, network.state_dict())


def by_name(cases: list[Case]) -> dict[tuple[str, int], Case]:
    found: dict[tuple[str, int], Case] = {(one.what, one.batch): one for one in cases}
    assert len(found) == len(cases)
    return found


def test_the_reference_gives_our_logits_and_explanations(subject: Subject) -> None:
    theirs = by_name(list(reference_cases(subject, [1, 2])))
    with ExitStack() as stack:
        ours = by_name(list(our_cases(subject, "cpu", 2, [1, 2], stack)))
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


def test_explanations_of_a_batch_equal_those_of_single_images(subject: Subject) -> None:
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
    only_fast(["resnet18", "vitc_ti_patch1_14", *ONE_OF_EACH], ["resnet18"]),
)
def test_the_conventional_graph_equals_the_torch_network(name: str, tmp_path: Path) -> None:
    network = build_conventional(REGISTRY[name], SIZE)
    export_conventional(network, SIZE, tmp_path / "c.onnx")
    for device in ["cpu", *(["openvino"] if installed_version("openvino") else [])]:
        forward = open_conventional(tmp_path / "c.onnx", device, 2, 1000, SIZE, 3)
        for batch in (1, 3):
            images = torch.rand(batch, 3, *SIZE)
            with torch.no_grad():
                expected = network(images)
            assert float(expected.std()) > 1e-3
            assert relative_error(torch.from_numpy(forward(images.numpy())), expected) < 1e-5


def test_conventional_cases_run(subject: Subject, tmp_path: Path) -> None:
    found = list(conventional_cases(subject, ["cpu"], 2, [1, 2], tmp_path))
    assert [(one.device, one.batch) for one in found] == [("cpu", 1), ("cpu", 2)]
    assert found[1].run().shape == (2, 1000)  # type: ignore[attr-defined]


def test_the_conventional_transformer_has_our_tokens_and_stem() -> None:
    network = build_conventional(REGISTRY["vitc_ti_patch1_14"], (64, 64))
    kinds = [type(module).__name__ for module in network.conv_proj.modules()]
    assert kinds.count("Conv2d") == 5, "four in the stem, one that makes the tokens"
    assert kinds.count("BatchNorm2d") == 4
    assert network.seq_length == 4 * 4 + 1
    assert len(network.encoder.layers) == 11
    plain = build_conventional(REGISTRY["simple_vit_ti_patch16_224"], (64, 64))
    assert (plain.conv_proj.kernel_size, plain.conv_proj.stride) == ((16, 16), (16, 16))


@pytest.mark.parametrize("spec", PUBLISHED, ids=lambda spec: str(spec.name))
def test_every_published_model_can_be_compared_with_both(spec: object, subject: Subject) -> None:
    known = Subject(spec.name, subject.bundle, spec)  # type: ignore[attr-defined, arg-type]
    assert reason_not_compared(known, "reference") is None
    assert reason_not_compared(known, "conventional") is None


def test_conventional_networks_have_about_as_many_parameters_as_ours() -> None:
    """They differ in three input channels, norms and biases. A wrong depth or width would differ by more than 3 %."""
    models = import_torchvision().models
    for name, builder in TORCHVISION_BUILDERS.items():
        with torch.device("meta"):
            network = getattr(models, builder)()
        count = sum(parameter.numel() for parameter in network.parameters())
        assert count == pytest.approx(REGISTRY[name].published.parameters, rel=0.03), name


def test_models_that_cannot_be_compared_are_noted(subject: Subject) -> None:
    cifar = Subject("c", subject.bundle, REGISTRY["cifar10_resnet20"])
    own = Subject("own", subject.bundle, None)
    assert "no entry point for cifar10_resnet20" in str(reason_not_compared(cifar, "reference"))
    assert "torchvision has no network for cifar10_resnet20" in str(reason_not_compared(cifar, "conventional"))
    assert "the registry has no model 'own'" in str(reason_not_compared(own, "reference"))
    tuned = subject.bundle.manifest.model_copy(update={"classes": 7})
    seven = Subject("resnet18", Bundle(subject.bundle.path, tuned), REGISTRY["resnet18"])
    assert "resnet18 has 1000 classes in the registry, but the bundle has 7" in str(
        reason_not_compared(seven, "conventional")
    )


def test_sample_images_and_targets() -> None:
    images = sample_images(2, (4, 6))
    assert images.shape == (2, 6, 4, 6)
    np.testing.assert_allclose(images[:, :3] + images[:, 3:], 1, atol=1e-6)
    assert top_targets(2, 3).tolist() == [[-1, -2, -3], [-1, -2, -3]]


def test_random_networks_are_always_the_same_and_keep_the_global_random_state() -> None:
    spec = REGISTRY["cifar10_plain9_b2-nomaxout"]
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = random_network(spec).state_dict(), random_network(spec).state_dict()
    assert torch.rand(1) == expected
    assert all(torch.equal(first[key], second[key]) for key in first)


def difference(one: Case, other: Case) -> float:
    """‖a − b‖ / ‖b‖ of logits, or of contributions to the most likely class."""
    values: list[Any] = [one.run(), other.run()]
    a, b = (value.contributions[:, 0] if hasattr(value, "contributions") else value for value in values)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("side", ["torch", "compiled"])
def test_our_network_in_torch_gives_our_logits_and_explanations(
    subject: Subject, side: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda network, **_: compile_with(network, backend=backend))
    theirs = by_name(list(torch_cases(subject, side, ["cpu"], [1, 2])))
    with ExitStack() as stack:
        ours = by_name(list(our_cases(subject, "cpu", 2, [1, 2], stack)))
        for batch in (1, 2):
            assert difference(theirs["forward", batch], ours["forward", batch]) < 1e-4
            assert difference(theirs["explain", batch], ours["explain", batch]) < 1e-3


def test_torch_runs_on_the_gpu_of_the_devices(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_place(["cpu", "openvino"]) == "cpu"
    assert torch_place(["cpu", "tensorrt:1", "cuda"]) == "cuda:1"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no GPU" in str(reason_not_compared(subject, "compiled", ["tensorrt"]))
    assert reason_not_compared(subject, "compiled", ["cpu"]) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert reason_not_compared(subject, "torch", ["tensorrt"]) is None


def test_all_devices_run_on_the_simulated_gpu(subject: Subject, machine: GpuMachine, tmp_path: Path) -> None:
    """Ours uploads pixels; the conventional network gets an engine of its own."""
    conventional = [one for one in conventional_cases(subject, ["tensorrt"], 1, [1, 2], tmp_path) if one.batch == 2]
    assert difference(*conventional) < 1e-5
    assert "conventional.onnx" in machine.builds
    with ExitStack() as stack:
        cpu = by_name(list(our_cases(subject, "cpu", 1, [2], stack)))
        gpu = by_name(list(our_cases(subject, "tensorrt", 1, [2], stack)))
        assert difference(gpu["forward", 2], cpu["forward", 2]) < 1e-4
        assert difference(gpu["explain", 2], cpu["explain", 2]) < 1e-3
        gpu["client explain", 2].run()
    assert {"pixels", "encoded"} <= machine.trt.runs[-1][1].keys()
