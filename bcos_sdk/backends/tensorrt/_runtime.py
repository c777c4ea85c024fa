"""The runtime "tensorrt": each graph runs as an engine that was built for the GPU."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from bcos_sdk._logs import log
from bcos_sdk.backends._driver import gpu_problem
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import OpenOptions, Runtime, unavailable
from bcos_sdk.backends.tensorrt._cache import accept_all, accept_own
from bcos_sdk.backends.tensorrt._cuda import Cuda
from bcos_sdk.backends.tensorrt._flavours import flavour_problem, installed_flavours
from bcos_sdk.backends.tensorrt._graph import EngineGraph
from bcos_sdk.backends.tensorrt._obtain import key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import EngineError

__all__ = ["TENSORRT"]


class TensorrtRuntime(Runtime):
    """A GPU through TensorRT or TensorRT for RTX."""

    name = "tensorrt"
    on_gpu = True

    @override
    def problem(self, index: int) -> str | None:
        if not installed_flavours():
            return "TensorRT is not installed; pip install 'bcos-sdk[trt]' or 'bcos-sdk[trt-rtx]'"
        # The flavours come last: without a driver TensorRT may crash, even in its child process.
        return gpu_problem(index) or _flavours_problem(index)

    @override
    def try_out(self, index: int) -> str | None:
        """Return None: `problem` tests TensorRT in a child process, and building an engine for x + x takes long."""
        return None

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        """Load an engine that fits the GPU. Build one if there is none, or if TensorRT cannot load it.

        A plan is code, so only engines that this user has built are loaded, unless the options trust those of the
        bundle. With `auto` no engine is built.
        """
        keys = _keys(bundle, graph, index, tf32=options.tf32)
        if not keys:
            raise unavailable(self.device_name(index), "no installed TensorRT supports this GPU")
        accept = accept_all if options.trust_engines else _accept_own
        engine = obtain_engine(bundle, graph, keys, index, accept, build=options.by_name)
        try:
            return EngineGraph(engine, Cuda(index), graph.name)
        except EngineError as error:
            if not options.by_name:
                raise
            log.warning("%s; building it again", error.message)
            failed = engine.record.plan_sha256

        def accept_another(record: EngineRecord) -> str | None:
            return "TensorRT did not load it" if record.plan_sha256 == failed else accept(record)

        return EngineGraph(obtain_engine(bundle, graph, keys, index, accept_another), Cuda(index), graph.name)

    @override
    def open_onnx(self, source: Path | bytes, index: int, *, threads: int | None = None) -> Graph:
        raise unavailable(self.device_name(index), "TensorRT runs the graphs of a bundle only")


def _accept_own(record: EngineRecord) -> str | None:
    reason = accept_own(record)
    return reason and f"{reason}; trust_engines=True (--trust-engines) runs it nevertheless"


def _keys(bundle: Bundle, graph: Path, index: int, *, tf32: bool) -> list[EngineKey]:
    """The keys of the engines that fit the GPU, one per flavour, the best one first."""
    flavours = [flavour for flavour in installed_flavours() if flavour_problem(flavour, index) is None]
    return [key_for_gpu(bundle, graph, flavour, index, tf32=tf32) for flavour in flavours]


def _flavours_problem(index: int) -> str | None:
    """Why no installed flavour runs on the GPU; None if one does."""
    problems = [flavour_problem(flavour, index) for flavour in installed_flavours()]
    return None if None in problems else "; ".join(filter(None, problems))


TENSORRT = TensorrtRuntime()
