"""Engines of every family are built ahead of time in both precisions. With fp16, only products are in fp16."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fast import only_fast
from support.halves import layers_with_halves, misplaced_halves
from support.members import MEMBERS, Size, images, member_graphs, prepare, write_graphs
from support.walking import execute, parse

from bcos_sdk.backends.tensorrt import run_worker
from bcos_sdk.bundle import builtin_bundle, open_bundle
from bcos_sdk.contract import TOLERANCE_CAPS
from bcos_sdk.models import build_model

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' builds engines without a GPU")

CAPABILITIES = {"fp32": ["8.6", "8.9", "12.0"], "fp16": ["7.5", "8.6", "8.9", "12.0"]}
PRECISIONS = list(CAPABILITIES)
PUBLISHED = ["resnet152", "resnext50_32x4d", "densenet121", "vgg11_bnu", "convnext_tiny", "simple_vit_s_patch16_224"]
PUBLISHED += ["vitc_s_patch1_14"]

ReportEngine = Callable[[str, int, float, int | None], None]


def build(graph: Path, folder: Path, size: Size, precision: str, batch: int) -> tuple[int, float, int | None]:
    """Build an engine for any batch and any number of targets; return plan size, seconds and peak memory."""
    sample = [6, *size]
    profile = {"image": [[1, *sample], [batch, *sample], [batch, *sample]]}
    if graph.stem == "explain":
        profile["targets"] = [[1, 1], [batch, 1], [batch, batch]]
    plan = folder / f"{graph.stem}.plan"
    job: dict[str, Any] = {"task": "build", "flavour": "tensorrt_rtx", "graph": str(graph), "plan": str(plan)}
    began = time.monotonic()
    reply = run_worker(
        {**job, "profiles": [profile], "capabilities": CAPABILITIES[precision], "tf32": False, "gpu": None}
    )
    return plan.stat().st_size, time.monotonic() - began, reply["peak_memory"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", only_fast(MEMBERS, ["ResNet", "DenseNet", "VGG", "ConvNeXt", "ViT-C"]))
def test_engines_of_every_family_are_built(name: str, precision: str, tmp_path: Path) -> None:
    """Of the explaining graph, which contains the predicting one."""
    graph = member_graphs(name, half=precision == "fp16").explain
    assert build(graph, tmp_path, MEMBERS[name][0], precision, batch=4)[0] > 1000


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["SimpleViT", *(pytest.param(name, marks=pytest.mark.full) for name in MEMBERS)])
def test_engines_that_only_predict_are_built(name: str, precision: str, tmp_path: Path) -> None:
    graph = member_graphs(name, half=precision == "fp16").predict
    assert build(graph, tmp_path, MEMBERS[name][0], precision, batch=4)[0] > 1000


@pytest.mark.parametrize("name", MEMBERS)
def test_fp16_is_in_products_only_and_certificates_hold(name: str) -> None:
    """Each product in fp16 is rounded once, as TensorRT does. ONNX Runtime on a CPU would not round it."""
    size, _ = MEMBERS[name]
    predict, explain = (parse(graph, for_engine=True) for graph in member_graphs(name, half=True)[:2])
    for parsed in (predict, explain):
        assert misplaced_halves(parsed) == []
        kinds = {kind for kind, _ in layers_with_halves(parsed)}
        assert kinds & {"Convolution", "MatrixMultiply"}
    outputs = execute(explain, {"image": images(2, size), "targets": torch.tensor([[-1], [2]])})
    contributions, terms = outputs["contributions"].double(), outputs["bias_terms"].double()
    total = contributions.sum((2, 3)) + terms.sum(2)
    scale = contributions.abs().sum((2, 3)) + terms.abs().sum(2)
    logits = outputs["logits"].double().gather(1, outputs["classes"])
    assert float(((logits - total).abs() / scale).max()) < TOLERANCE_CAPS["fp16"]


@pytest.mark.full
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_engines_of_published_models_are_built(
    name: str, precision: str, tmp_path: Path, report_engine: ReportEngine
) -> None:
    size = (224, 224)
    network = build_model(name)
    prepare(network, size)
    for graph in write_graphs(network, size, tmp_path, half=precision == "fp16")[:2]:
        report_engine(f"{name} {graph.stem} {precision}", *build(graph, tmp_path, size, precision, batch=8))


@pytest.mark.parametrize("name", ["features.onnx", "relay.onnx", "explain_2_layer3.onnx"])
def test_engines_of_layers_are_built(name: str, tmp_path: Path) -> None:
    bundle = open_bundle(builtin_bundle())
    graph = bundle.path / name
    job: dict[str, Any] = {"task": "build", "flavour": "tensorrt_rtx", "graph": str(graph)}
    plan = tmp_path / "layer.plan"
    profile = bundle.input_shapes(graph)
    run_worker({**job, "plan": str(plan), "profiles": [profile], "capabilities": ["8.9"], "tf32": False, "gpu": None})
    assert plan.stat().st_size > 1000
