"""The runtime "tensorrt": each graph runs as an engine that was built for the GPU."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from bcos_sdk._logs import log
from bcos_sdk.backends._driver import gpu_problem, probe_driver
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._probe import probe_image, probe_model
from bcos_sdk.backends._runtime import OpenOptions, Runtime, unavailable
from bcos_sdk.backends.tensorrt._cache import accept_all, accept_own
from bcos_sdk.backends.tensorrt._cuda import Cuda
from bcos_sdk.backends.tensorrt._flavours import (
    HALF_ONLY,
    Flavour,
    flavour_problem,
    flavours_for,
    installed_flavours,
    look_at_gpu,
)
from bcos_sdk.backends.tensorrt._graph import EngineGraph
from bcos_sdk.backends.tensorrt._model import open_model
from bcos_sdk.backends.tensorrt._obtain import key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.bundle import Bundle, InputShapes
from bcos_sdk.contract import IMAGE, GraphPrecision
from bcos_sdk.errors import EngineError

__all__ = ["TENSORRT"]


class TensorrtRuntime(Runtime):
    """A GPU through TensorRT or TensorRT for RTX."""

    name = "tensorrt"
    on_gpu = True
    takes_pixels = True
    wide_batches = True
    overlaps_runs = True
    captures_graphs = True

    @override
    def problem(self, index: int) -> str | None:
        if not installed_flavours():
            return "TensorRT is not installed; pip install 'bcos-sdk[trt]' or 'bcos-sdk[trt-rtx]'"
        look_at_gpu(index)
        # The flavours come last: without a driver TensorRT may crash, even in its child process.
        return gpu_problem(index) or _flavours_problem(index)

    @override
    def open_probe(self, index: int) -> Graph:
        """Build an engine of the probe, which takes seconds, and load it."""
        shape, precision = probe_image().shape, self.probe_precision(index)
        flavour = self._flavour_for(precision, index)
        return open_model(probe_model(precision), {IMAGE.name: (shape, shape, shape)}, flavour, index, precision)

    @override
    def probe_precision(self, index: int) -> GraphPrecision:
        return "fp32" if _flavours_on(index, "fp32") else "fp16"

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        """Load an engine that fits the GPU. Build one if there is none, or if TensorRT cannot load it.

        A plan is code, so only engines that this user has built are loaded, unless the options trust those of the
        bundle. With `auto` no engine is built.
        """
        keys = _keys(bundle, graph, index, tf32=options.tf32)
        if not keys:
            raise unavailable(self.device_name(index), _no_flavour(bundle.manifest.precision, index))
        accept = accept_all if options.trust_engines else _accept_own
        engine = obtain_engine(bundle, graph, keys, index, accept, build=options.by_name)
        try:
            return EngineGraph(engine, Cuda(index), graph.name, cuda_graphs=options.cuda_graphs)
        except EngineError as error:
            if not options.by_name:
                raise
            log.warning("%s; building it again", error.message)
            failed = engine.record.plan_sha256

        def accept_another(record: EngineRecord) -> str | None:
            return "TensorRT did not load it" if record.plan_sha256 == failed else accept(record)

        engine = obtain_engine(bundle, graph, keys, index, accept_another)
        return EngineGraph(engine, Cuda(index), graph.name, cuda_graphs=options.cuda_graphs)

    @override
    def open_onnx(
        self,
        source: Path | bytes,
        index: int,
        *,
        threads: int | None = None,
        shapes: InputShapes | None = None,
    ) -> Graph:
        """Build an engine for these shapes, which takes minutes, and load it. It is not kept."""
        if shapes is None:
            raise unavailable(self.device_name(index), "TensorRT needs the shapes of the inputs")
        return open_model(source, shapes, self._flavour_for("fp32", index), index)

    def _flavour_for(self, precision: GraphPrecision, index: int) -> Flavour:
        flavours = _flavours_on(index, precision)
        if not flavours:
            raise unavailable(self.device_name(index), _no_flavour(precision, index))
        return flavours[0]


def _accept_own(record: EngineRecord) -> str | None:
    reason = accept_own(record)
    return reason and f"{reason}; trust_engines=True (--trust-engines) runs it nevertheless"


def _keys(bundle: Bundle, graph: Path, index: int, *, tf32: bool) -> list[EngineKey]:
    """The keys of the engines that fit the GPU, one per flavour, the best one first."""
    flavours = _flavours_on(index, bundle.manifest.precision)
    return [key_for_gpu(bundle, graph, flavour, index, tf32=tf32) for flavour in flavours]


def _flavours_on(index: int, precision: GraphPrecision) -> list[Flavour]:
    """The flavours that work on the GPU and have products of this precision there, the best one first."""
    flavours = flavours_for(_capability(index), precision, installed_flavours())
    return [flavour for flavour in flavours if flavour_problem(flavour, index) is None]


def _capability(index: int) -> str:
    gpus = probe_driver().gpus
    return gpus[index].capability if index < len(gpus) else "unknown"


def _no_flavour(precision: GraphPrecision, index: int) -> str:
    capability = _capability(index)
    if precision == "fp32" and capability in HALF_ONLY and "tensorrt_rtx" in installed_flavours():
        return (
            f"TensorRT for RTX cannot multiply in float32 on compute capability {capability}; export the model with "
            "--precision fp16, or pip install 'bcos-sdk[trt]'"
        )
    return "no installed TensorRT supports this GPU"


def _flavours_problem(index: int) -> str | None:
    """Why no installed flavour runs on the GPU; None if one does."""
    problems = [flavour_problem(flavour, index) for flavour in installed_flavours()]
    return None if None in problems else "; ".join(filter(None, problems))


TENSORRT = TensorrtRuntime()
