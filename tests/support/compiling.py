"""Compare compiled programs with their module: the full Jacobian in float64, and ONNX Runtime in float32."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from bcos_sdk.contract import Layout
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import compile_module, explain_program
from bcos_sdk.exporters.onnx import WeightsFile, emit
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.program import Program


def check_against_jacobian(module: nn.Module, x: Tensor) -> None:
    """Check W(x) = Jacobian, b(x) = logits − W(x)·x and ONNX Runtime = torch, with and without simplifications."""
    module = module.double().eval()
    size, channels = (x.shape[2], x.shape[3]), x.shape[1]
    plain, names = explain_program(capture(module, size, channels=channels))
    compiled = compile_module(module, size, channels=channels)
    assert compiled.bias_terms == names, "simplifications must not rename bias terms"
    logits, jacobian = module(x).detach(), jacobian_of(module, x)
    for program in (plain, compiled.explain, compiled.explain_rows):
        _check_program(program, x, logits, jacobian)


def jacobian_of(module: nn.Module, x: Tensor) -> Tensor:
    """The gradient of every logit of every image: [images, classes, channels, height, width]."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        return torch.stack([torch.func.jacrev(module)(sample[None])[0, :, 0] for sample in x]).detach()


def _check_program(program: Program, x: Tensor, logits: Tensor, jacobian: Tensor) -> None:
    every_class = torch.arange(logits.shape[1]).expand(len(x), -1).contiguous()
    got = run_in_torch(program, x, every_class)
    contributions = torch.einsum("nkchw,nchw->nkhw", jacobian, x)
    bias = logits - contributions.sum((2, 3))
    checks: dict[str, Callable[[Tensor], None]] = {
        "logits": lambda value: torch.testing.assert_close(value, logits, rtol=1e-10, atol=1e-12),
        "classes": lambda value: torch.testing.assert_close(value, every_class),
        "weights": lambda value: torch.testing.assert_close(value, jacobian, rtol=1e-9, atol=1e-12),
        "contributions": lambda value: torch.testing.assert_close(value, contributions, rtol=1e-8, atol=1e-10),
        "bias": lambda value: torch.testing.assert_close(value, bias, rtol=1e-8, atol=1e-10),
        "bias_terms": lambda value: torch.testing.assert_close(value.sum(2), got["bias"], rtol=1e-10, atol=1e-12),
    }
    assert checks.keys() == got.keys(), "every output of the explain graph needs a check against the Jacobian here"
    for name, check in checks.items():
        check(got[name])
    in_onnx = run_onnx(program, x, every_class)
    terms = got["contributions"].abs().sum((2, 3)) + got["bias_terms"].abs().sum(2)
    for name, value in got.items():
        # Terms of a sum cancel, so its rounding error is relative to the sum of absolute values.
        size = terms.max() if name in ("logits", "bias", "bias_terms") else value.abs().max()
        np.testing.assert_allclose(in_onnx[name], value.numpy(), rtol=2e-4, atol=5e-5 * float(size))


def run_in_torch(program: Program, x: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The outputs for images [B, …] and targets [B, K], for a program in either layout."""
    return _in_a_grid(program.run, x, targets) if program.layout is Layout.ROWS else program.run(x, targets)


def _in_a_grid(run: Callable[[Tensor, Tensor], dict[str, Tensor]], x: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Run a program in ROWS per image with all targets. Check that one run with a target of each image agrees."""
    images = [run(x[i : i + 1], targets[i]) for i in range(len(x))]
    grid = {name: torch.stack([image[name] for image in images]) for name in images[0]}
    grid["logits"] = grid["logits"][:, 0]
    one = torch.arange(len(x)) % targets.shape[1]
    at_once = run(x, targets[torch.arange(len(x)), one])
    for name, value in at_once.items():
        alone = grid[name] if name == "logits" else grid[name][torch.arange(len(x)), one]
        exact = value.dtype is torch.float64
        torch.testing.assert_close(value, alone, rtol=1e-9 if exact else 1e-3, atol=1e-12 if exact else 1e-4)
    return grid


def run_onnx(program: Program, x: Tensor, targets: Tensor | None = None) -> dict[str, np.ndarray]:
    """Emit the program as ONNX, check the model, and run it in ONNX Runtime, like `run_in_torch`."""
    with TemporaryDirectory() as folder:
        with WeightsFile(Path(folder) / "weights.bin") as weights:
            model = emit(program, "test", weights, SPELLINGS)
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        onnx.checker.check_model(str(path), full_check=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def run(*inputs: Tensor) -> dict[str, Tensor]:
            feed = {
                str(node.target): (value.float() if value.is_floating_point() else value).numpy()
                for node, value in zip(program.inputs, inputs, strict=True)
            }
            results = session.run(list(program.outputs), feed)
            return dict(zip(program.outputs, map(torch.from_numpy, results), strict=True))

        if targets is not None and program.layout is Layout.ROWS:
            outputs = _in_a_grid(run, x, targets)
        else:
            outputs = run(x, *([] if targets is None else [targets]))
        return {name: value.numpy() for name, value in outputs.items()}
