"""TensorRT's parser reads the graphs of every family as ONNX Runtime does: names, types, shapes and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from support.bundles import small_bundle
from support.members import MEMBERS, Size, images, member_graphs, prepare, write_graphs
from support.walking import Parsed, execute, parse
from torch import Tensor

from bcos_sdk.models import build_model

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")

# Both sum float32 in different orders. Over all members the worst row differs by 7e-6 of its norm. A pad on the wrong
# side, a wrong count in an average or a clamped fill changes some row by 2e-3 and more.
TOLERANCE = 2e-5
# Deep networks with random weights amplify rounding errors: 3e-5 for ResNet-50, 1e-5 and less for the others.
FULL_SIZE_TOLERANCE = 2e-4
BUNDLE = "small bundle"
MEAN, LAST = "mean", "last"
TARGETS: dict[str, list[list[int | str]]] = {
    "one image, its first rank": [[-1]],
    "one image, two targets": [[MEAN, 3]],
    "three images": [[-2], [0], [MEAN]],
    "three images, two targets": [[MEAN, -2], [0, -1], [5, LAST]],
}


@dataclass(frozen=True)
class Graphs:
    """Both graphs in TensorRT and in ONNX Runtime, and images at which W(x) is smooth."""

    size: Size
    parsed: dict[str, Parsed]
    sessions: dict[str, Any]
    images: Tensor

    @property
    def classes(self) -> int:
        return int(self.parsed["explain"].outputs[0].shape[1])


def open_graphs(predict: Path, explain: Path, size: Size) -> Graphs:
    paths = {"predict": predict, "explain": explain}
    sessions = {name: session_of(path) for name, path in paths.items()}
    smooth = away_from_jumps(sessions["explain"], images(12, size))
    return Graphs(size, {name: parse(path, for_engine=True) for name, path in paths.items()}, sessions, smooth[:3])


def session_of(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(session: Any, feed: dict[str, Tensor]) -> dict[str, Tensor]:
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: value.numpy() for name, value in feed.items()})
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def away_from_jumps(explain: Any, candidates: Tensor) -> Tensor:
    """The images at which W(x) is smooth. Where two values tie for a maximum, both choices are correct.

    W(x + step) + W(x − step) − 2 W(x) is near zero, unless some maximum has changed its position.
    """
    step = 1e-5 * torch.rand_like(candidates)
    targets = torch.zeros(len(candidates), 1, dtype=torch.int64)
    middle, ahead, behind = (
        run(explain, {"image": candidates + sign * step, "targets": targets})["weights"].flatten(1).double()
        for sign in (0, 1, -1)
    )
    bend = (ahead + behind - 2 * middle).norm(dim=1) / middle.norm(dim=1)
    smooth = candidates[bend < TOLERANCE]
    assert len(smooth) >= 3, "fewer than three images have a smooth W(x)"
    return smooth


@pytest.fixture(scope="module", params=[*MEMBERS, BUNDLE])
def graphs(request: pytest.FixtureRequest) -> Iterator[Graphs]:
    torch.manual_seed(0)
    if request.param == BUNDLE:
        bundle = small_bundle()
        yield open_graphs(bundle.predict_graph, bundle.explain_graph, bundle.manifest.input.size)
    else:
        size, _ = MEMBERS[request.param]
        written = member_graphs(request.param)
        yield open_graphs(written.predict, written.explain, size)


def declared(tensors: list[Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {tensor.name: (tensor.dtype.name, tuple(tensor.shape)) for tensor in tensors}


def test_names_types_and_open_axes(graphs: Graphs) -> None:
    image = {"image": ("FLOAT", (-1, 6, *graphs.size))}
    logits = {"logits": ("FLOAT", (-1, graphs.classes))}
    predict, explain = graphs.parsed["predict"], graphs.parsed["explain"]
    assert declared(predict.inputs) == image
    assert declared(predict.outputs) == logits
    assert declared(explain.inputs) == image | {"targets": ("INT64", (-1, -1))}
    terms = graphs.sessions["explain"].get_outputs()[-1].shape[2]
    assert declared(explain.outputs) == logits | {
        "classes": ("INT64", (-1, -1)),
        "weights": ("FLOAT", (-1, -1, 6, *graphs.size)),
        "contributions": ("FLOAT", (-1, -1, *graphs.size)),
        "bias": ("FLOAT", (-1, -1)),
        "bias_terms": ("FLOAT", (-1, -1, terms)),
    }
    assert list(declared(explain.outputs)) == [output.name for output in graphs.sessions["explain"].get_outputs()]


@pytest.mark.parametrize("batch", [1, 3])
def test_predictions_agree(graphs: Graphs, batch: int) -> None:
    assert worst_difference(graphs, "predict", {"image": graphs.images[:batch]}) < TOLERANCE


@pytest.mark.parametrize("asked", list(TARGETS))
def test_explanations_agree(graphs: Graphs, asked: str) -> None:
    named = {MEAN: graphs.classes, LAST: -graphs.classes}
    rows = [[named.get(str(target), target) for target in row] for row in TARGETS[asked]]
    feed = {"image": graphs.images[-len(rows) :], "targets": torch.tensor(rows)}
    assert worst_difference(graphs, "explain", feed) < TOLERANCE


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet50", "densenet121", "convnext_tiny", "vitc_s_patch1_14"])
def test_published_models_agree_at_full_size(name: str, tmp_path: Path) -> None:
    size = (224, 224)
    network = build_model(name)
    prepare(network, size)
    predict, explain, _rows = write_graphs(network, size, tmp_path)
    paths = {"predict": predict, "explain": explain}
    parsed, sessions = ({key: opened(path) for key, path in paths.items()} for opened in (parse, session_of))
    graphs = Graphs(size, parsed, sessions, images(2, size))
    assert worst_difference(graphs, "predict", {"image": graphs.images}) < FULL_SIZE_TOLERANCE
    for rows in ([[1000]], [[-1, 7]], [[-2], [999]]):
        feed = {"image": graphs.images[: len(rows)], "targets": torch.tensor(rows)}
        assert worst_difference(graphs, "explain", feed) < FULL_SIZE_TOLERANCE


def worst_difference(graphs: Graphs, which: str, feed: dict[str, Tensor]) -> float:
    """The largest relative difference of any output, image and target; classes must be the same."""
    walked, wanted = execute(graphs.parsed[which], feed), run(graphs.sessions[which], feed)
    assert walked.keys() == wanted.keys()
    assert {name: value.shape for name, value in walked.items()} == {
        name: value.shape for name, value in wanted.items()
    }
    classes = wanted.pop("classes", None)
    assert classes is None or torch.equal(walked["classes"], classes)
    return max(float((norms(name, walked[name] - wanted[name]) / scale_of(name, wanted)).max()) for name in wanted)


def scale_of(name: str, wanted: dict[str, Tensor]) -> Tensor:
    """The norm of each row; for logits without their mean, and for b(x) the norm of its terms."""
    if name == "logits":
        return norms(name, wanted[name] - wanted[name].mean(1, keepdim=True))
    return norms(name, wanted["bias_terms" if name == "bias" else name])


def norms(name: str, value: Tensor) -> Tensor:
    """One norm per image, or per image and target."""
    axes = 1 if name == "logits" else 2
    rows: Tensor = value.double().reshape(*value.shape[:axes], -1).norm(dim=-1)
    return rows
