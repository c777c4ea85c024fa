"""The operator cases in OpenVINO, compared with the Jacobian in float64. `main` runs in a child process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from bcos_sdk.backends import TensorSpec
from bcos_sdk.backends.openvino import OpenvinoGraph
from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.onnx import WeightsFile, emit
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.program import Program
from support.compiling import jacobian_of
from support.operator_cases import CASES, Flat, image

DIFFERS = {
    "rounded to half": "OpenVINO computes in float32 and leaves out a rounding to fp16",
    "rounded to bfloat16": "OpenVINO computes in float32 and leaves out a rounding to bfloat16",
}
"""The cases for which OpenVINO does not compute what ONNX Runtime computes, and why."""


def main() -> None:
    """For each case named in argv, print its name, then the largest error of each output."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        print(name, flush=True)
        torch.manual_seed(0)
        print(json.dumps(_errors(name)), flush=True)


def _errors(name: str) -> dict[str, float]:
    """The largest error of each output, relative to its largest value, or to the sum of what was added up."""
    module = Flat(CASES[name]).double().eval()
    x = image().float().double()
    compiled = compile_module(module, (x.shape[2], x.shape[3]), channels=x.shape[1])
    logits, weights = module(x).detach(), jacobian_of(module, x)
    contributions = torch.einsum("nkchw,nchw->nkhw", weights, x)
    bias = logits - contributions.sum((2, 3))
    total = float((contributions.abs().sum((2, 3)) + bias.abs()).max()) or 1.0
    terms = len(compiled.bias_terms)
    every = torch.arange(logits.shape[1])
    last = torch.tensor([0, logits.shape[1] - 1])
    worst: dict[str, float] = {}

    def compare(graph: OpenvinoGraph, images: slice, targets: Tensor, chosen: tuple[Tensor, ...]) -> None:
        """`chosen` are the indices of images and classes that the targets ask for."""
        truth = {"weights": weights[chosen], "contributions": contributions[chosen], "bias": bias[chosen]}
        truth |= {"logits": logits[images], "bias_terms": bias.new_zeros(*targets.shape, terms)}
        feed = {"image": x[images].float().numpy(), "targets": targets.numpy()}
        got = graph.run(feed, {key: TensorSpec(tuple(value.shape), "float32") for key, value in truth.items()})
        truth["bias_terms"], got["bias_terms"] = truth["bias"], got["bias_terms"].sum(-1)
        for key, value in truth.items():
            size = (float(value.abs().max()) or 1.0) if key in ("weights", "contributions") else total
            error = float((torch.from_numpy(got[key]).double() - value).abs().max()) / size
            worst[key] = max(worst.get(key, 0.0), error)

    with TemporaryDirectory() as folder:
        rows = _graph(compiled.explain_rows, Path(folder), "rows")
        compare(rows, slice(0, 1), every, (torch.zeros_like(every), every))
        compare(rows, slice(0, 2), last, (torch.arange(2), last))
        grid = _graph(compiled.explain, Path(folder), "grid")
        both = torch.arange(2)[:, None].expand(-1, len(every))
        compare(grid, slice(0, 2), every.expand(2, -1).contiguous(), (both, every.expand(2, -1)))
    return worst


def _graph(program: Program, folder: Path, name: str) -> OpenvinoGraph:
    with WeightsFile(folder / f"{name}.bin") as weights:
        model = emit(program, name, weights, SPELLINGS)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return OpenvinoGraph(path, threads=1)
