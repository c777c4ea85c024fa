"""fp16: products in fp16, everything else in float32; layers over the limits stay in float32 and are named."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from support.compiling import run_onnx
from support.explaining import explain, random_image, relative_error
from torch import Tensor, nn

from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.operators import from_half
from bcos_sdk.exporters.passes import HalfAnalysis, in_half, layer_of, products
from bcos_sdk.exporters.program import Program
from bcos_sdk.exporters.verify import probe_images
from bcos_sdk.models import build_model, calibrate
from bcos_sdk.models.layers import BcosConv2d

LARGE = [("densenet121", 64), ("convnext_tiny", 64)]
FAMILIES = [pytest.param(*family, marks=pytest.mark.full) for family in LARGE]
FAMILIES += [pytest.param("resnet18", 64), pytest.param("simple_vit_ti_patch16_224", 64)]
FAMILIES += [pytest.param("vitc_ti_patch1_14", 64, marks=pytest.mark.full), pytest.param("cifar10_resnet20_bn", 32)]
FAMILIES += [pytest.param("cifar10_plain9_b1.5", 32)]
SMALL = "cifar10_resnet20_bnu-linear-nomaxout"
PRODUCTS = {"Conv", "ConvTranspose", "MatMul"}
MOVES = {"Cast", "Reshape", "Slice", "Transpose"}


def calibrated(name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    module = build_model(name)
    calibrate(module, random_image(4, size, dtype=torch.float32))
    return module


def fp16_programs(module: nn.Module, size: int) -> tuple[Program, Program]:
    compiled = compile_module(module, (size, size))
    analysis = HalfAnalysis(compiled.explain, probe_images((size, size)))
    assert not analysis.overflowing
    return in_half(compiled.predict, {}), in_half(compiled.explain, analysis.exponents)


@functools.cache
def small_module() -> nn.Module:
    return calibrated(SMALL, 32)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    folder = tmp_path_factory.mktemp("half")
    first, second = (
        export(small_module(), folder / precision, input_size=(32, 32), max_batch=2, precision=precision)
        for precision in ("fp32", "fp16")
    )
    return first, second


@pytest.mark.parametrize(("name", "size"), FAMILIES)
def test_fp16_graphs_of_every_family_match_autograd_and_are_complete(name: str, size: int) -> None:
    """Compare ONNX Runtime, with every product in fp16, with autograd in float64."""
    module = calibrated(name, size)
    predict, program = fp16_programs(module, size)
    x = random_image(2, size, dtype=torch.float32)
    got = {name: torch.from_numpy(value) for name, value in run_onnx(program, x, torch.tensor([[1], [-1]])).items()}
    classes = got["classes"][:, 0]
    logits, weights = explain(module.double(), x.double(), classes.tolist())
    assert relative_error(got["logits"].double(), logits) < 5e-3
    assert relative_error(got["weights"][:, 0].double(), weights) < 5e-2
    total = got["contributions"].double().sum((2, 3))[:, 0] + got["bias"].double()[:, 0]
    scale = got["contributions"].double().abs().sum((2, 3))[:, 0] + got["bias_terms"].double().abs().sum(2)[:, 0]
    residual = (got["logits"].double().gather(1, classes[:, None])[:, 0] - total).abs() / scale
    assert residual.max() < 5e-4
    assert relative_error(torch.from_numpy(run_onnx(predict, x)["logits"]).double(), logits) < 5e-3


def test_an_fp16_export_is_within_its_limits(bundles: tuple[Bundle, Bundle]) -> None:
    single, half = (bundle.manifest for bundle in bundles)
    assert (single.precision, half.precision) == ("fp32", "fp16")
    assert (single.tolerance, half.tolerance) == (1e-5, 1e-3)
    assert half.float_layers == ()
    for row in half.parity:
        assert all(getattr(row, name) <= limit for name, limit in half.parity_limits.items())
    assert half.parity[0].logits > 10 * single.parity[0].logits, "the fp16 graphs must have been measured"
    ratio = half.files["weights.bin"].size / single.files["weights.bin"].size
    assert 0.49 < ratio < 0.55, "each weight is stored once, in fp16"


@pytest.mark.parametrize("graph", ["predict_graph", "explain_graph"])
def test_only_products_of_layers_are_in_fp16(bundles: tuple[Bundle, Bundle], graph: str) -> None:
    path = getattr(bundles[1], graph)
    session = onnxruntime.InferenceSession(path)
    assert {one.type for one in (*session.get_inputs(), *session.get_outputs())} <= {"tensor(float)", "tensor(int64)"}
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    kinds = {one.name: one.data_type for one in model.graph.initializer}
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    kinds |= {one.name: one.type.tensor_type.elem_type for one in values}
    for node in model.graph.node:
        is_half = onnx.TensorProto.FLOAT16 in {kinds[name] for name in (*node.input, *node.output)}
        is_layer = "linear/" in node.name and node.op_type in PRODUCTS
        assert is_half == is_layer or (is_half and node.op_type in MOVES), node.name
        if is_layer:
            assert {kinds[name] for name in (*node.input, *node.output)} == {onnx.TensorProto.FLOAT16}
    norms = [node for node in model.graph.node if node.op_type == "Conv" and "linear/" not in node.name]
    assert norms, "patch norms are convolutions of squares with ones, and stay in float32"


@pytest.mark.full
def test_matrix_products_of_attention_run_in_fp16() -> None:
    module = calibrated("simple_vit_ti_patch16_224", 32)
    _, program = fp16_programs(module, 32)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(from_half) == len(products(compile_module(module, (32, 32)).explain))


def test_fp16_programs_run_in_torch() -> None:
    _, program = fp16_programs(small_module(), 32)
    x, targets = random_image(2, 32, dtype=torch.float32), torch.tensor([[1], [2]])
    in_torch, in_onnx = program.run(x, targets), run_onnx(program, x, targets)
    assert in_torch["weights"].dtype == torch.float32
    assert relative_error(in_torch["logits"], torch.from_numpy(in_onnx["logits"])) < 5e-3
    assert relative_error(in_torch["weights"], torch.from_numpy(in_onnx["weights"])) < 5e-2


def test_an_operator_and_its_transpose_have_the_same_precision() -> None:
    compiled = compile_module(small_module(), (32, 32))
    kept = {"layer2.0.conv1.linear", "layer3.1.conv2.linear"}
    for original in (compiled.predict, compiled.explain):
        half = in_half(original, {}, kept)
        cast = [layer_of(node) for node in half.graph.nodes if node.target is from_half]
        assert sorted([*cast, *(layer_of(node) for node in products(original) if layer_of(node) in kept)]) == sorted(
            map(layer_of, products(original))
        )
        assert not kept & set(cast)
    assert in_half(compiled.explain, {}, set(map(layer_of, products(compiled.explain)))).constants.keys() == (
        compiled.explain.constants.keys()
    )


class Four(nn.Module):
    """Four layers. An argument makes one of them difficult for fp16.

    `loud`: large values; `fine`: cancellation; `quiet`: small cotangents.
    """

    def __init__(self, *, loud: float = 1.0, fine: float = 3.0, quiet: float = 1.0) -> None:
        super().__init__()
        self.loud = nn.Conv2d(6, 8, 3, padding=1)
        self.loud.weight.data.uniform_(0.5, 1.0).mul_(loud)
        self.body = BcosConv2d(8, 8, 3, padding=1)
        self.fine = nn.Conv2d(16, 8, 1, bias=False)
        once = torch.rand(8, 8, 1, 1) + 0.5
        self.fine.weight.data.copy_(torch.cat([once, -once * (1 + fine)], dim=1))
        self.head = nn.Linear(8, 5)
        self.factors = 1 / loud, quiet / fine

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.loud(x) * self.factors[0])
        x = self.fine(torch.cat([x, x], dim=1)) * self.factors[1]
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def export_four(path: Path, **difficulty: float) -> Bundle:
    return export(Four(**difficulty).eval(), path, input_size=(12, 12), max_batch=2, precision="fp16")


def test_an_easy_module_keeps_no_layer_in_float32(tmp_path: Path) -> None:
    bundle = export_four(tmp_path / "b")
    assert bundle.manifest.float_layers == ()
    assert set(bundle.manifest.bias_terms) == {"head.bias", "loud.bias"}


@pytest.mark.parametrize("loud", [1e4, 1e6], ids=["values beyond 65504", "weights beyond 65504"])
def test_a_layer_that_overflows_stays_in_float32_and_is_named(tmp_path: Path, loud: float) -> None:
    bundle = export_four(tmp_path / "b", loud=loud)
    assert bundle.manifest.float_layers == ("loud",)
    for path in (bundle.predict_graph, bundle.explain_graph):
        casts = {node.name.split("/")[-2] for node in onnx.load(path).graph.node if node.op_type == "Cast"}
        assert casts >= {"body.linear", "fine", "head"}
        assert "loud" not in casts


def test_a_layer_with_cancellation_stays_in_float32_and_is_named(tmp_path: Path) -> None:
    """x − 1.02 x loses nearly two of the three digits of fp16. Nothing overflows."""
    assert export_four(tmp_path / "b", fine=2e-2).manifest.float_layers == ("fine",)


def test_cotangents_too_small_for_fp16_are_scaled(tmp_path: Path) -> None:
    module = Four(quiet=1e-9).eval()
    nn.init.zeros_(module.head.bias)
    compiled = compile_module(module, (12, 12))
    x, targets = random_image(1, 12, dtype=torch.float32), torch.tensor([[1]])
    (_, expected) = explain(module.double(), x.double(), [1])
    analysis = HalfAnalysis(compiled.explain, probe_images((12, 12)))
    scaled = run_onnx(in_half(compiled.explain, analysis.exponents, {"head"}), x, targets)
    plain = run_onnx(in_half(compiled.explain, {}, {"head"}), x, targets)
    assert relative_error(torch.from_numpy(scaled["weights"])[:, 0].double(), expected) < 1e-2
    assert not plain["weights"].any()
    assert all(math.frexp(2.0**exponent)[0] == 0.5 for exponent in analysis.exponents.values())


def test_a_module_beyond_the_range_of_fp16_is_refused(tmp_path: Path) -> None:
    conv = nn.Conv2d(6, 3, 1, bias=False)
    nn.init.uniform_(conv.weight, 1e5, 2e5)
    module = nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.raises(ExportError, match="fp16 gains nothing"):
        export(module, tmp_path / "b", input_size=(8, 8), max_batch=1, precision="fp16")
    with pytest.raises(ExportError, match="in precision 'int8'"):
        export(module, tmp_path / "b", input_size=(8, 8), precision="int8")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
