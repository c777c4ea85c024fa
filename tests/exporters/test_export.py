"""`export`: correct and reproducible bundles, and no bundle after an error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support import reference
from support.explaining import explain, random_image, relative_error
from support.fast import only_fast
from support.members import MEMBERS, Size, build_member, images
from torch import Tensor, nn

from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.contract import BIAS_TERMS, EXPLAIN_OUTPUTS
from bcos_sdk.errors import BundleExistsError, ExportError, ParityError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.verify import LIMITS, _sessions, _trial
from bcos_sdk.models import build_model, calibrate
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import builtin_registry

REGISTRY = builtin_registry()
PUBLISHED = [name for name, spec in REGISTRY.items() if spec.weights is not None]
SMALL = ["resnet18", "resnext50_32x4d", "densenet121", "convnext_tiny", "convnext_tiny_bnu"]
SMALL += ["simple_vit_ti_patch16_224", "vitc_ti_patch1_14"]
FAMILIES = ["ResNet with bottlenecks", "ResNeXt", "DenseNet", "VGG", "ConvNeXt", "ConvNeXt with batch norm"]
FAMILIES += ["SimpleViT", "ViT-C"]
CIFAR = ["cifar10_resnet20_bn", "cifar10_resnet20_gnu-unaffine", "cifar10_resnet20", "cifar10_plain9_b1.5"]
DEEP = [f"cifar10_resnet{depth}_bnu-linear" for depth in (32, 44, 56)]
ALL_CIFAR = [name for name in REGISTRY if "resnet20" in name or "plain9" in name] + DEEP

ReportExport = Callable[[str, Bundle, float], None]


def calibrated(name: str, size: int, *, from_reference: bool = False) -> nn.Module:
    module: nn.Module = reference.build(name) if from_reference else build_model(name)
    calibrate(module, random_image(4, size, dtype=torch.float32))
    return module


def within_limits(bundle: Bundle) -> bool:
    limits = bundle.manifest.parity_limits
    assert limits.keys() == LIMITS.keys()
    return all(getattr(row, name) <= limit for row in bundle.manifest.parity for name, limit in limits.items())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_small_member_of_every_family(name: str, tmp_path: Path) -> None:
    size, _ = MEMBERS[name]
    module = build_member(name)
    bundle = export(module, tmp_path / "b", input_size=size, max_batch=5)
    assert [row.batch for row in bundle.manifest.parity] == [1, 2, 3, 5]
    assert within_limits(bundle)
    check_session(bundle, module, size)


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_every_family_at_a_small_size(name: str, tmp_path: Path) -> None:
    module = calibrated(name, 64)
    bundle = export(module, tmp_path / name, input_size=(64, 64), max_batch=5)
    assert [row.batch for row in bundle.manifest.parity] == [1, 2, 3, 5]
    assert within_limits(bundle)
    check_session(bundle, module, (64, 64))


@pytest.mark.parametrize("name", only_fast(CIFAR, ["cifar10_resnet20_bn"]))
def test_cifar_networks(name: str, tmp_path: Path) -> None:
    spec = REGISTRY[name]
    module = calibrated(name, 32)
    bundle = export(module, tmp_path / name, preprocessing=spec.input, labels=spec.class_names, max_batch=4)
    assert within_limits(bundle)
    check_session(bundle, module, (32, 32))


@pytest.mark.full
@pytest.mark.parametrize("name", ALL_CIFAR)
def test_every_kind_of_cifar_network(name: str, tmp_path: Path) -> None:
    assert within_limits(export(calibrated(name, 32), tmp_path / name, input_size=(32, 32), max_batch=2))


def check_session(bundle: Bundle, module: nn.Module, size: Size) -> None:
    """Run the explain graph with ONNX Runtime alone, and compare it with the module in float64."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(bundle.explain_graph, options)
    assert [(one.name, one.shape[:1]) for one in session.get_inputs()] == [("image", ["batch"]), ("targets", ["batch"])]
    x = images(2, size)
    names = [output.name for output in session.get_outputs()]
    assert names == ["logits", "classes", "weights", "contributions", "bias", "bias_terms"]
    feed = {"image": x.numpy(), "targets": np.array([[1, -1], [0, -2]])}
    got = {name: torch.from_numpy(value) for name, value in zip(names, session.run(names, feed), strict=True)}
    assert got["bias_terms"].shape[2] == len(bundle.manifest.bias_terms)
    module.double()
    for k in range(2):
        logits, weights = explain(module, x.double(), got["classes"][:, k].tolist())
        assert relative_error(got["weights"][:, k].double(), weights) < bundle.manifest.parity_limits["weights"]
        assert relative_error(got["logits"].double(), logits) < bundle.manifest.parity_limits["logits"]


@pytest.mark.parametrize(
    "name", ["resnet18", "vitc_ti_patch1_14", pytest.param("convnext_tiny", marks=pytest.mark.full)]
)
def test_modules_of_the_public_package(name: str, tmp_path: Path) -> None:
    module = calibrated(name, 32, from_reference=True)
    bundle = export(module, tmp_path / name, input_size=(32, 32), max_batch=2)
    assert within_limits(bundle)
    assert bundle.manifest.bias_terms[0] == "logit_bias"
    assert not any(getattr(part, "is_in_explanation_mode", False) for part in module.modules()), (
        "explanation mode must be off again"
    )


def test_a_large_batch(tmp_path: Path) -> None:
    bundle = export(Own().eval(), tmp_path / "b", input_size=(16, 16), max_batch=32)
    assert within_limits(bundle)
    assert bundle.manifest.parity[-1].batch == 32


@pytest.mark.full
def test_a_large_batch_at_full_size(tmp_path: Path) -> None:
    spec = REGISTRY["resnet18"]
    module = calibrated("resnet18", 224)
    bundle = export(module, tmp_path / "b", preprocessing=spec.input, labels=spec.class_names, max_batch=32)
    assert within_limits(bundle)
    assert bundle.manifest.parity[-1].batch == 32


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_model_at_full_size(name: str, tmp_path: Path, report_export: ReportExport) -> None:
    spec = REGISTRY[name]
    module = calibrated(name, 224)
    began = time.monotonic()
    bundle = export(module, tmp_path / name, preprocessing=spec.input, labels=spec.class_names, max_batch=4)
    report_export(name, bundle, time.monotonic() - began)
    assert within_limits(bundle)


class Own(nn.Module):
    """A user's module: B = 1.5, MaxOut, dilation, groups, concatenation, two branches, a layer with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, 8, 3, stride=2, padding=1, b=1.5, max_out=2)
        self.wide = BcosConv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.mix = nn.Conv2d(16, 8, 1, bias=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        both = torch.cat([self.wide(x), self.pool(x)], dim=1)
        gate = both.mean((2, 3), keepdim=True).sigmoid().detach()
        out: Tensor = self.head(self.mix(both * gate).mean((2, 3)))
        return out


def test_a_users_own_module(tmp_path: Path) -> None:
    module = Own().eval()
    bundle = export(module, tmp_path / "own", input_size=(33, 20), labels=list("abcde"), max_batch=2)
    assert within_limits(bundle)
    assert set(bundle.manifest.bias_terms) == {"mix.bias", "head.bias"}
    assert bundle.manifest.labels == tuple("abcde")


class Fickle(nn.Module):
    """A module whose dynamic weight amplifies rounding errors, so that its float32 results are meaningless."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        factor = 2 + torch.sin(x.detach().sum((1, 2, 3), keepdim=True) * 1e8)
        out: Tensor = self.head((x * factor).mean((2, 3)))
        return out


def test_a_module_that_is_inaccurate_in_float32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError):
        export(Fickle().eval(), tmp_path / "b", input_size=(8, 8), max_batch=2)
    assert list(tmp_path.iterdir()) == []


class Twins(nn.Module):
    """Two biases with equal values, and a parameter with the name of a graph output, `bias`."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.rand(6, 1, 1))
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        nn.init.constant_(self.first.bias, 0.5)
        nn.init.constant_(self.second.bias, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        rgb = (x * self.bias)[:, :3].mean((2, 3))
        out: Tensor = self.second(self.first(rgb))
        return out


def test_equal_biases_keep_their_names(tmp_path: Path) -> None:
    bundle = export(Twins().eval(), tmp_path / "b", input_size=(8, 8), max_batch=2)
    assert bundle.manifest.bias_terms == ("second.bias", "first.bias")


def test_a_target_with_zero_contributions_is_within_the_limits(tmp_path: Path) -> None:
    conv = nn.Conv2d(6, 3, 1, bias=False)
    with torch.no_grad():
        conv.weight[:, 3:] = 0  # so all contributions of the black probe image are zero
    module = nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    assert within_limits(export(module, tmp_path / "b", input_size=(8, 8), max_batch=1))


def test_layers_of_the_public_package_in_a_plain_sequence(tmp_path: Path) -> None:
    layers = [reference.BcosConv2d(6, 8, 3), reference.BcosConv2d(8, 4, 1)]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    assert within_limits(export(module, tmp_path / "b", input_size=(8, 8), max_batch=2))
    assert not any(layer.is_in_explanation_mode for layer in layers)


@pytest.mark.parametrize(
    "options", [{"max_batch": 0}, {"input_size": (0, 8)}, {"labels": "abc"}, {"without": ["everything"]}]
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ExportError) as caught:
        export(Twins().eval(), tmp_path / "b", **({"input_size": (8, 8)} | options))
    assert caught.type is ExportError, "not one of its family"
    assert list(tmp_path.iterdir()) == []


# The trial does not compare bias_terms: the certificate of every explanation does.
@pytest.mark.parametrize("name", [port.name for port in EXPLAIN_OUTPUTS if port is not BIAS_TERMS])
def test_every_output_of_the_explain_graph_is_tried(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _sessions.run_session

    def falsified(session: Any, images: Any, targets: Any = None) -> dict[str, Any]:
        outputs = run(session, images, targets)
        if targets is not None:
            value = outputs[name]
            outputs[name] = (value == 0).astype(np.int64) if name == "classes" else value * np.float32(1.1)
        return outputs

    monkeypatch.setattr(_trial, "run_session", falsified)
    with pytest.raises(ParityError):
        export(Own().eval(), tmp_path / "b", input_size=(16, 16), max_batch=1)


@pytest.fixture(scope="module")
def small() -> nn.Module:
    torch.manual_seed(0)
    return calibrated("cifar10_resnet20_bnu-linear-nomaxout", 32)


def small_export(module: nn.Module, path: Path, **options: Any) -> Bundle:
    return export(module, path, input_size=(32, 32), max_batch=2, **options)


def test_the_same_module_gives_the_same_bytes(small: nn.Module, tmp_path: Path) -> None:
    first, second = (small_export(small, tmp_path / name) for name in ("first", "second"))
    for path in first.path.iterdir():
        assert path.read_bytes() == (second.path / path.name).read_bytes(), path.name


def test_graphs_have_standard_operators_named_by_module_path(small: nn.Module, tmp_path: Path) -> None:
    bundle = small_export(small, tmp_path / "b")
    for path in (bundle.predict_graph, bundle.explain_graph):
        model = onnx.load(path, load_external_data=False)
        assert model.ir_version <= 10
        assert [(one.domain, one.version) for one in model.opset_import] == [("", 18)]
        assert {node.domain for node in model.graph.node} == {""}
        onnx.checker.check_model(str(path), full_check=True)
        names = [node.name for node in model.graph.node]
        assert len(set(names)) == len(names)
        assert any(re.fullmatch(r"layer1\.0\.conv1\.linear/Conv", name) for name in names)
        outside = [one for one in model.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
        assert {entry.value for one in outside for entry in one.external_data if entry.key == "location"} == {
            "weights.bin"
        }
    assert any(node.name.startswith("explain/layer1.0.conv1.linear/") for node in model.graph.node)


def test_weights_are_stored_once(small: nn.Module, tmp_path: Path) -> None:
    bundle = small_export(small, tmp_path / "b")
    parameters = sum(parameter.nbytes for parameter in small.parameters())
    assert bundle.manifest.files["weights.bin"].size < 1.05 * parameters


def test_a_bundle_is_not_replaced_without_force(small: nn.Module, tmp_path: Path) -> None:
    small_export(small, tmp_path / "b")
    with pytest.raises(BundleExistsError, match="--force"):
        small_export(small, tmp_path / "b")
    assert small_export(small, tmp_path / "b", force=True).manifest == open_bundle(tmp_path / "b").manifest


def test_force_does_not_replace_a_folder_that_is_not_a_bundle(small: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    with pytest.raises(BundleExistsError, match="not a bundle"):
        small_export(small, tmp_path / "precious", force=True)


def test_a_wrong_number_of_labels_is_refused(small: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="2 labels for 10 classes"):
        small_export(small, tmp_path / "b", labels=["cat", "dog"])
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_graph_leaves_no_bundle_and_names_the_layer(
    small: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emit one operator of one layer wrongly: the error must name the layer, and no file may remain."""
    right = Emitter.op

    def wrong(self: Emitter, kind: str, *inputs: Any, **attributes: Any) -> str:
        swapped = kind == "Sqrt" and self.scope == "layer2.0.conv2"
        return right(self, "Abs" if swapped else kind, *inputs, **attributes)

    monkeypatch.setattr(Emitter, "op", wrong)
    with pytest.raises(ParityError) as caught:
        small_export(small, tmp_path / "b")
    assert caught.value.exit_code == 3
    assert "'layer2.0.conv2'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rank_of_targets", [1, 2], ids=["rows", "grid"])
def test_an_explanation_that_adds_up_but_is_wrong_is_refused(
    small: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank_of_targets: int
) -> None:
    """A wrong W(x) with the right sum of contributions: only the comparison of W(x) itself detects it."""
    run = _sessions.run_session

    def moved(session: Any, images: Any, targets: Any = None) -> dict[str, Any]:
        got = run(session, images, targets)
        if targets is not None and targets.ndim == rank_of_targets:
            share = got["contributions"].mean((-2, -1), keepdims=True)[..., None, :, :]
            pixels = images.sum(1, keepdims=True)
            spread = share / (pixels[:, None] if rank_of_targets == 2 else pixels)
            got["weights"] = np.broadcast_to(spread, got["weights"].shape).copy()
        return got

    monkeypatch.setattr(_trial, "run_session", moved)
    with pytest.raises(ParityError, match="error of weights"):
        small_export(small, tmp_path / "b")
