"""TensorRT in a child process: report its version, try a GPU, build one engine.

TensorRT may crash the process that it runs in. A crash of the child process becomes an error in the caller.

Protocol: the caller writes a job, one line of JSON, to stdin. The child writes the plan to the file that the job
names, and its reply as JSON to stdout. TensorRT's messages go to stderr. When stdin closes, the caller has ended: the
child then removes its file and exits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from bcos_sdk._processes import last_lines, peak_memory, python_command
from bcos_sdk.backends.tensorrt._cuda import Cuda
from bcos_sdk.backends.tensorrt._source import engine_source
from bcos_sdk.errors import EngineError

__all__ = ["build", "main", "probe", "reason_of_end", "run_child", "run_worker"]

Job: TypeAlias = dict[str, Any]
Reply: TypeAlias = dict[str, Any]

_PROGRAM = """
from bcos_sdk.backends.tensorrt._worker import main
main()
"""

# ----------------------------------------------------------------------------------------------- in the calling process


def run_worker(job: Job) -> Reply:
    """Run a job in a child process and return its reply. A failure is an `EngineError` that quotes TensorRT."""
    output = run_child(json.dumps(job))
    try:
        reply: Reply = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise EngineError("the child process of TensorRT gave no reply") from None
    if "problem" in reply:
        raise EngineError(reply["problem"])
    return reply


def run_child(job: str) -> str:
    """Start the child process, pass it the job, and return its stdout."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        child = subprocess.Popen(  # noqa: S603 - the same Python, and a program of this package
            python_command(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        with child:
            try:
                output = _exchange(child, job)
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            stderr.seek(0)
            raise EngineError(reason_of_end(child.returncode, stderr.read()))
    return output


def _exchange(child: subprocess.Popen[str], job: str) -> str:
    """Write the job and read the reply. Stdin stays open until then, because closing it stops the child."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # the child has ended; its stderr says why
        child.stdin.write(job + "\n")
        child.stdin.flush()
    output = child.stdout.read()
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    return output


def reason_of_end(code: int, stderr: str) -> str:
    """Why a child process ended with this code."""
    quoted = last_lines(stderr)
    if code < 0:
        return f"TensorRT crashed with signal {-code}" + (f"; its last message: {quoted}" if quoted else "")
    return quoted or f"TensorRT exited with code {code}"


# ------------------------------------------------------------------------------------------------ in the child process


def main() -> None:
    """Read a job from stdin, run it, and write the reply to stdout."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_caller, args=(job.get("plan"),), daemon=True).start()
    stdout = os.dup(1)
    os.dup2(2, 1)  # TensorRT prints its errors to stdout
    try:
        reply = _TASKS[job["task"]](import_module(job["flavour"]), job)
    except Exception as error:  # an error of TensorRT, CUDA or Python; the caller gets it as one line
        reply = {"problem": " ".join(str(error).split()) or type(error).__name__}
    os.write(stdout, json.dumps(reply).encode())


def version(trt: Any, _job: Job) -> Reply:
    return {"version": trt.__version__}


def probe(trt: Any, job: Job) -> Reply:
    """Do the first steps of a client: select the GPU, allocate memory, create a TensorRT runtime."""
    cuda = Cuda(job["gpu"])
    cuda.select()
    cuda.free(cuda.allocate(256))
    trt.Runtime(trt.Logger(trt.Logger.WARNING))
    return version(trt, job)


def build(trt: Any, job: Job) -> Reply:
    """Parse the graph, build an engine for the shapes and GPUs of the job, and write the plan to its file."""
    if job["gpu"] is not None:
        Cuda(job["gpu"]).select()
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    # The parser holds no reference to the network, so this variable must.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    source = engine_source(Path(job["graph"]).read_bytes(), job.get("channels"))
    if not parser.parse(source, job["graph"]):  # the weights lie beside the graph
        problems = (parser.get_error(place) for place in range(parser.num_errors))
        listed = (f"{error.node_operator()} in {error.node_name()}: {error.desc()}" for error in problems)
        return {"problem": "; ".join(listed)}
    plan = builder.build_serialized_network(network, _config(trt, builder, job))
    if plan is None:
        sys.exit("TensorRT built no engine from the graph")
    with Path(job["plan"]).open("xb") as file:  # a file or link of that name is not ours
        file.write(plan)
    return {
        "version": trt.__version__,
        "layers": network.num_layers,
        "peak_memory": peak_memory(),
        "plan_sha256": hashlib.sha256(plan).hexdigest(),
        "size": memoryview(plan).nbytes,
    }


def _config(trt: Any, builder: Any, job: Job) -> Any:
    config = builder.create_builder_config()
    if not job["tf32"]:  # on by default; its 11 significant bits break the certificate of fp32
        config.clear_flag(trt.BuilderFlag.TF32)
    for shapes_by_name in job["profiles"]:
        profile = builder.create_optimization_profile()
        for name, shapes in shapes_by_name.items():
            profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    if job["capabilities"]:
        config.num_compute_capabilities = len(job["capabilities"])
        for place, capability in enumerate(job["capabilities"]):
            level = getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}")
            config.set_compute_capability(level, place)
    return config


_TASKS: dict[str, Callable[[Any, Job], Reply]] = {"build": build, "probe": probe, "version": version}


def _exit_with_caller(plan: str | None) -> None:
    sys.stdin.read()
    if plan is not None:
        Path(plan).unlink(missing_ok=True)
    os._exit(1)
