"""An engine of an ONNX model that belongs to no bundle: built, loaded and forgotten."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bcos_sdk._files import sha256_of
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends.tensorrt._cache import Engine
from bcos_sdk.backends.tensorrt._cuda import Cuda
from bcos_sdk.backends.tensorrt._flavours import Flavour, flavour_version
from bcos_sdk.backends.tensorrt._graph import EngineGraph
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.backends.tensorrt._worker import run_worker
from bcos_sdk.bundle import InputShapes
from bcos_sdk.contract import GraphPrecision

__all__ = ["open_model"]


def open_model(
    source: Path | bytes, shapes: InputShapes, flavour: Flavour, gpu: int, precision: GraphPrecision = "fp32"
) -> Graph:
    """Build an engine of an ONNX file, or of its bytes, for these shapes on this GPU, and load it."""
    capability = probe_driver().gpus[gpu].capability
    with tempfile.TemporaryDirectory() as folder:
        graph, plan = Path(folder) / "model.onnx", Path(folder) / "model.plan"
        if isinstance(source, Path):  # its weights may lie beside it
            graph = source
        else:
            graph.write_bytes(source)
        key = EngineKey(
            graph_sha256=sha256_of(graph),
            weights_sha256="",
            precision=precision,
            tf32=False,
            profiles=(shapes,),
            flavour=flavour,
            version=flavour_version(flavour),
            compute_capabilities=(capability,),
        )
        job = {"task": "build", "flavour": flavour, "graph": str(graph), "profiles": key.profiles, "tf32": False}
        capabilities = key.compute_capabilities if flavour == "tensorrt_rtx" else ()
        reply = run_worker({**job, "capabilities": capabilities, "gpu": gpu, "plan": str(plan)})
        record = EngineRecord(
            key=key, plan_sha256=reply["plan_sha256"], size=reply["size"], seconds=0, peak_memory=reply["peak_memory"]
        )
        return EngineGraph(Engine(plan.read_bytes(), record), Cuda(gpu), graph.name)
