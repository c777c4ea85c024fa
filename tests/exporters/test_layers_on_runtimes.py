"""Inner layers of every family in ONNX Runtime and OpenVINO, against autograd in float64 with hooks; their engines."""

from __future__ import annotations

from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.bundles import cpu_backend
from support.members import MEMBERS, build_member, images

from bcos_sdk.backends import Backend, open_backend
from bcos_sdk.backends.tensorrt import run_worker
from bcos_sdk.bundle import Bundle, LayerRecord
from bcos_sdk.exporters import export, list_layers

CLOSE = 1e-3
# With random weights, maxima of "windows" are nearly equal, so that W of its stem jumps, and the export refuses it.
FAMILIES = [one for one in MEMBERS if one != "windows"]


def chosen_layers(module: torch.nn.Module, size: tuple[int, int]) -> list[str]:
    """The stem, a layer that a path goes round if there is one, one in the middle, and the last that has positions."""
    listed = [one for one in list_layers(module, size) if len(one.shape) > 1]
    partial = [one.path for one in listed if not one.complete]
    paths = [listed[0].path, *partial[:1], listed[len(listed) // 2].path, listed[-1].path]
    return list(dict.fromkeys(paths))


def difference(value: Any, truth: torch.Tensor) -> float:
    expected = truth.detach().numpy()
    return float(np.linalg.norm(value - expected) / max(np.linalg.norm(expected), 1e-30))


def check(backend: Backend, module: torch.nn.Module, record: LayerRecord, index: int, batch: torch.Tensor) -> None:
    """W from the image to the layer, and from the layer to the logits, with several queries for each image."""
    count, places = len(batch), prod(record.positions)
    directions = torch.randn(count, 3, record.channels, generator=torch.Generator().manual_seed(1))
    positions = np.tile(np.array([[places // 3, places, 0]]), (count, 1))
    targets = np.tile(np.array([[2, 0]]), (count, 1))
    got = backend.explain_layer(batch.float().numpy(), index, positions, directions.numpy())
    relay = backend.relay(batch.float().numpy(), targets, index)
    kept: list[torch.Tensor] = []
    handle = module.get_submodule(record.path).register_forward_hook(lambda _m, _i, result: kept.append(result))
    for place in range(count):
        kept.clear()
        pixels = batch[place : place + 1].clone().requires_grad_()
        logits = module(pixels)[0]
        output = kept[0]
        matrix = output[0].T if output.ndim == 3 else output[0].reshape(record.channels, -1)
        for query in range(3):
            values = directions[place, query].double() @ matrix
            position = int(positions[place, query])
            value = values.mean() if position == places else values[position]
            (row,) = torch.autograd.grad(value, pixels, retain_graph=True)
            limit = 1e-4 * float(got.magnitude[place, query])  # a value may be the small rest of large terms
            assert abs(got.value[place, query] - float(value.detach())) < limit
            assert difference(got.weights[place, query], row[0]) < CLOSE
            total = got.contributions[place, query].sum() + got.bias_terms[place, query].sum()
            assert abs(total - float(value.detach())) < limit
        for query in range(2):
            (above,) = torch.autograd.grad(logits[int(targets[place, query])], output, retain_graph=True)
            assert difference(relay.features[place, query], (above * output)[0]) < CLOSE
    handle.remove()


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_layers_of_every_family_run_in_both_runtimes(name: str, tmp_path: Path) -> None:
    size, module = MEMBERS[name][0], build_member(name).eval()
    paths = chosen_layers(module, size)
    exported = export(module, tmp_path / "bundle", input_size=size, max_batch=3, layers=paths)
    module.double()
    backends = [cpu_backend(exported), open_backend(exported, "openvino", threads=1)]
    for index, record in enumerate(exported.manifest.layer_records):
        for backend in backends:
            for count in (1, 3):
                check(backend, module, record, index, images(count, size).double())
    for backend in backends:
        backend.close()
    if find_spec("tensorrt_rtx") is not None:
        for graph in exported.engine_graphs[2:]:
            build_engine(exported, graph, tmp_path)


def build_engine(exported: Bundle, graph: Path, folder: Path) -> None:
    plan = folder / f"{graph.stem}.plan"
    job: dict[str, Any] = {"task": "build", "flavour": "tensorrt_rtx", "graph": str(graph), "plan": str(plan)}
    profiles = [exported.input_shapes(graph)]
    run_worker({**job, "profiles": profiles, "capabilities": ["8.9"], "tf32": False, "gpu": None})
    assert plan.stat().st_size > 1000
