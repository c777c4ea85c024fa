"""OpenVINO agrees with float64 autograd and with ONNX Runtime on every family of networks."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from onnx import helper
from support.members import CLASSES, MEMBERS, Size, build_member, images, member_graphs, prepare, write_graphs
from support.tiny_onnx import write_onnx
from torch import Tensor, nn

from bcos_sdk.backends import Device, Graph, TensorSpec, open_graph
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.openvino import OpenvinoGraph
from bcos_sdk.contract import explain_grid_by_rows
from bcos_sdk.exporters.verify import GraphFiles, Truth, consult
from bcos_sdk.models import build_model

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")

# Correct rows of W(x) differ from the truth by up to 2e-5 of their norm; a transposed weight gives 0.3 and more.
TOLERANCE = 1e-4
FULL_SIZE_TOLERANCE = 1e-3  # deep networks with random weights amplify rounding errors
HALF_TOLERANCE = 2e-2
TARGETS = torch.tensor([[0, -1, CLASSES], [2, -2, 1], [-3, 4, 5]])  # classes, ranks, and the mean of all logits
LAYOUTS = ["explain", "explain_rows"]
SHAPES = [(1, 1), (1, 3), (3, 1), (3, 3)]
# They have square weights that the explain graph transposes, in convolutions and matrix products, and averages whose
# transpose is a broadcast.
TELLING = ["ResNet with bottlenecks", "SimpleViT", "VGG", "DenseNet"]
FULL_SIZE = ["resnet50", "densenet121", "vgg11_bnu", "convnext_tiny", "simple_vit_ti_patch16_224", "vitc_ti_patch1_14"]


@dataclass(frozen=True)
class Case:
    """Images, their explanations by autograd, and each graph in both runtimes."""

    images: Tensor
    truth: Truth
    terms: int
    openvino: dict[str, Graph]
    onnxruntime: dict[str, Graph]


def case_of(network: nn.Module, size: Size, graphs: GraphFiles, targets: Tensor = TARGETS) -> Case:
    paths = graphs._asdict()
    x = images(len(targets), size)
    return Case(
        x,
        consult(network, x, targets),
        onnx.load(paths["explain"], load_external_data=False).graph.output[-1].type.tensor_type.shape.dim[2].dim_value,
        {name: OpenvinoGraph(path, threads=4, images_per_run=2) for name, path in paths.items()},
        {name: open_graph(path, Device(CPU), threads=2) for name, path in paths.items()},
    )


@pytest.fixture(scope="module", params=MEMBERS)
def case(request: pytest.FixtureRequest) -> Case:
    return case_of_member(request.param)


def case_of_member(name: str, *, half: bool = False) -> Case:
    graphs = member_graphs(name, half=half)
    return case_of(build_member(name), MEMBERS[name][0], graphs)


def explained(
    case: Case, graphs: dict[str, Graph], layout: str, targets: Tensor, *, weights: bool = True
) -> dict[str, npt.NDArray[Any]]:
    """Explain the first images, one for each row of targets."""

    def run(x: npt.NDArray[Any], rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        size = x.shape[2:]
        specs = {
            "logits": TensorSpec((len(x), case.truth.logits.shape[1]), "float32"),
            "classes": TensorSpec(rows.shape, "int64"),
            "contributions": TensorSpec((*rows.shape, *size), "float32"),
            "bias_terms": TensorSpec((*rows.shape, case.terms), "float32"),
        }
        if weights:
            specs["weights"] = TensorSpec((*rows.shape, 6, *size), "float32")
        return graphs[layout].run({"image": x, "targets": rows}, specs)

    x, grid = case.images[: len(targets)].numpy(), targets.contiguous().numpy()
    return run(x, grid) if layout == "explain" else explain_grid_by_rows(run, x, grid)


def worst(value: npt.NDArray[Any], truth: Any, axes: int) -> float:
    """The largest ‖value − truth‖ / ‖truth‖ of all rows; a row has the last `axes` axes."""
    got, want = torch.from_numpy(value).double(), torch.as_tensor(truth).double()
    assert got.shape == want.shape
    got, want = got.flatten(-axes), want.flatten(-axes)
    return float(((got - want).norm(dim=-1) / want.norm(dim=-1)).max())


def check(got: dict[str, npt.NDArray[Any]], truth: Truth, tolerance: float) -> None:
    assert worst(got["logits"], truth.logits, 1) < tolerance / 10
    np.testing.assert_array_equal(got["classes"], truth.classes.numpy())
    assert worst(got["contributions"], truth.contributions, 2) < tolerance
    if "weights" in got:
        assert worst(got["weights"], truth.weights, 3) < tolerance


def residual(got: dict[str, npt.NDArray[Any]]) -> float:
    """The largest |residual| / scale of the certificates of all targets."""
    logits = np.concatenate([got["logits"], got["logits"].mean(1, keepdims=True)], axis=1).astype(np.float64)
    chosen = np.take_along_axis(logits, got["classes"], axis=1)
    pixels, terms = got["contributions"].astype(np.float64), got["bias_terms"].astype(np.float64)
    scale = np.abs(pixels).sum((2, 3)) + np.abs(terms).sum(2)
    return float((np.abs(chosen - pixels.sum((2, 3)) - terms.sum(2)) / scale).max())


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("count", "targets"), SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_explanations_agree_with_autograd(case: Case, layout: str, count: int, targets: int, weights: bool) -> None:
    asked = TARGETS[:count, :targets]
    got = explained(case, case.openvino, layout, asked, weights=weights)
    assert ("weights" in got) is weights
    check(got, case.truth.part([*range(count)], targets), TOLERANCE)
    assert residual(got) < 1e-6
    other = explained(case, case.onnxruntime, layout, asked, weights=weights)
    assert {name: (array.shape, array.dtype) for name, array in got.items()} == {
        name: (array.shape, array.dtype) for name, array in other.items()
    }
    scale = np.abs(other["bias_terms"]).max(initial=1.0)
    np.testing.assert_allclose(got["bias_terms"], other["bias_terms"], atol=1e-5 * scale)
    assert worst(got["contributions"], other["contributions"], 2) < TOLERANCE


@pytest.mark.parametrize("count", [1, 3])
def test_predictions_agree_with_torch(case: Case, count: int) -> None:
    feed = {"image": case.images[:count].numpy()}
    logits = case.openvino["predict"].run(feed, {"logits": TensorSpec((count, CLASSES), "float32")})["logits"]
    assert worst(logits, case.truth.logits[:count], 1) < TOLERANCE / 10


@pytest.mark.parametrize("name", TELLING)
def test_fp16_is_within_its_limits(name: str) -> None:
    case = case_of_member(name, half=True)
    for layout in LAYOUTS:
        got = explained(case, case.openvino, layout, TARGETS)
        check(got, case.truth, HALF_TOLERANCE)
        assert residual(got) < 1e-5, "the certificate is computed in float32"


def test_a_square_matrix_and_its_transpose_are_told_apart(tmp_path: Path) -> None:
    """Without the rewrite, OpenVINO multiplies with the same matrix twice."""
    matrix = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)
    x = np.random.default_rng(1).random((2, 24), np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["there"]),
        helper.make_node("MatMul", ["there", "w"], ["y"]),
    ]
    path = write_onnx(tmp_path / "graph.onnx", nodes, x=[24], y=[24], weights={"w": matrix})
    got = OpenvinoGraph(path, threads=1).run({"x": x}, {"y": TensorSpec((2, 24), "float32")})["y"]
    assert worst(got, x.astype(np.float64) @ matrix.T @ matrix, 1) < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build_model(name)
    prepare(network, (224, 224))
    targets = torch.tensor([[7, -1], [-2, 1000]])
    case = case_of(network, (224, 224), write_graphs(network, (224, 224), tmp_path), targets)
    del network
    gc.collect()
    for count, aims in [(1, 1), (2, 1), (2, 2)]:
        got = explained(case, case.openvino, "explain_rows", targets[:count, :aims])
        check(got, case.truth.part([*range(count)], aims), FULL_SIZE_TOLERANCE)
        assert residual(got) < 1e-5
