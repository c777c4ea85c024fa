"""Graphs whose compilation failed or ended the process in OpenVINO 2026.4. Each runs in a child process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from onnx import NodeProto, helper
from support.tiny_onnx import write_onnx

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from bcos_sdk.backends import TensorSpec
from bcos_sdk.backends.openvino import OpenvinoGraph

path, threads, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
inputs = dict(np.load(path.with_suffix(".npz")))
graph = OpenvinoGraph(path, threads=threads)
got = graph.run({"x": inputs["x"][:batch]}, {"y": TensorSpec((batch, 8), "float32")})["y"]
truth = inputs["y"][:batch]
print(float(np.linalg.norm(got - truth) / np.linalg.norm(truth)))
"""
Array: TypeAlias = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
FIRST, SECOND, LAST = (RNG.standard_normal(shape).astype(np.float32) / 4 for shape in ((16, 16), (16, 16), (16, 8)))
X = RNG.standard_normal((8, 16)).astype(np.float32)


def mish(x: Array) -> Array:
    result: Array = x * np.tanh(np.log1p(np.exp(x)))
    return result


CHOICES: dict[str, tuple[list[NodeProto], Callable[[Array], Array]]] = {
    "kept where a gate is open": (
        [helper.make_node("Where", ["open", "z", "zero"], ["chosen"])],
        lambda z: np.where(X > 0, z, 0),
    ),
    "replaced where a gate is open": (
        [helper.make_node("Where", ["open", "zero", "z"], ["chosen"])],
        lambda z: np.where(X > 0, 0, z),
    ),
    "mish": (
        [
            helper.make_node("Softplus", ["z"], ["soft"]),
            helper.make_node("Tanh", ["soft"], ["bounded"]),
            helper.make_node("Mul", ["z", "bounded"], ["chosen"]),
        ],
        mish,
    ),
}


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (1, 8), (2, 4), (8, 1), (8, 4), (8, 8)])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_between_products(tmp_path: Path, choice: str, threads: int, batch: int) -> None:
    """OpenVINO joins products and what lies between them into one kernel, if a thread has few rows."""
    between, function = CHOICES[choice]
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["open"]),
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("MatMul", ["a", "second"], ["z"]),
        *between,
        helper.make_node("MatMul", ["chosen", "last"], ["y"]),
    ]
    weights: dict[str, Array] = {"first": FIRST, "second": SECOND, "last": LAST, "zero": np.zeros((), np.float32)}
    path = write_onnx(tmp_path / "graph.onnx", nodes, x=[16], y=[8], weights=weights)
    truth = function(X.astype(np.float64) @ FIRST @ SECOND) @ LAST
    np.savez(path.with_suffix(".npz"), x=X, y=truth)
    command = [sys.executable, "-c", PROGRAM, str(path), str(threads), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the child process ended with {done.returncode}: {done.stderr[-500:]}"
    assert float(done.stdout) < 1e-6
