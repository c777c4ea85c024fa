"""What TensorRT does in a process of its own: say its version, show that it runs, build one engine.

A job is one line of JSON on stdin; the plan goes to the file it names, the answer to stdout as JSON, and what TensorRT
says to stderr. When stdin ends nobody waits for the answer any more, and the process ends without leaving a file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bcos_sdk._processes import peak_memory

__all__ = ["build", "main", "probe", "version"]


def main() -> None:
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_caller, args=(job.get("plan"),), daemon=True).start()
    answers = os.dup(1)
    os.dup2(2, 1)  # TensorRT says on stdout what goes wrong
    try:
        answer = _TASKS[job["task"]](import_module(job["flavour"]), job)
    except Exception as error:  # TensorRT's, CUDA's and Python's: whatever it is, the caller is told in one line
        answer = {"problem": " ".join(str(error).split()) or type(error).__name__}
    os.write(answers, json.dumps(answer).encode())


def version(trt: Any, _job: dict[str, Any]) -> dict[str, Any]:
    return {"version": trt.__version__}


def probe(trt: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Do what a client does first: take the GPU, some of its memory, and a runtime."""
    from bcos_sdk.backends.tensorrt._cuda import Cuda

    cuda = Cuda(job["gpu"])
    cuda.free(cuda.allocate(256))
    trt.Runtime(trt.Logger(trt.Logger.WARNING))
    return version(trt, job)


def build(trt: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Parse the graph, and build an engine for the shapes and GPUs that the job names."""
    if job["gpu"] is not None:
        from bcos_sdk.backends.tensorrt._cuda import Cuda

        Cuda(job["gpu"])
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    # The parser does not keep the network alive, so a name must.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(job["graph"]):
        problems = (parser.get_error(place) for place in range(parser.num_errors))
        listed = (f"{error.node_operator()} in {error.node_name()}: {error.desc()}" for error in problems)
        return {"problem": "; ".join(listed)}
    config = builder.create_builder_config()
    if not job["tf32"]:  # it is on by default, and its 11 binary digits break the certificate of full precision
        config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    for name, shapes in job["profile"].items():
        profile.set_shape(name, *shapes)
    config.add_optimization_profile(profile)
    if job["capabilities"]:
        config.num_compute_capabilities = len(job["capabilities"])
        for place, capability in enumerate(job["capabilities"]):
            level = getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}")
            config.set_compute_capability(level, place)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        sys.exit("TensorRT builds no engine of it")
    Path(job["plan"]).write_bytes(plan)
    return {"version": trt.__version__, "layers": network.num_layers, "peak_memory": peak_memory()}


_TASKS: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    "build": build,
    "probe": probe,
    "version": version,
}


def _end_with_caller(plan: str | None) -> None:
    sys.stdin.read()
    if plan is not None:
        Path(plan).unlink(missing_ok=True)
    os._exit(1)
