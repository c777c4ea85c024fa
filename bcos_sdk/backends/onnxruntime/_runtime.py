"""The two runtimes of ONNX Runtime. A session that would not run on its device is an error."""

from __future__ import annotations

import contextlib
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt
from typing_extensions import override

from bcos_sdk._extras import installed_version, is_installed, require
from bcos_sdk._telemetry import import_onnxruntime
from bcos_sdk.backends._driver import gpu_problem
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import OpenOptions, Runtime, unavailable
from bcos_sdk.backends.onnxruntime._graph import BoundGraph, HostGraph
from bcos_sdk.bundle import Bundle, InputShapes, external_tensors, release_pages
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import BcosError, BundleError

__all__ = ["CPU", "CUDA", "RECORD_ASSIGNMENT"]

RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
"""The session option with which a session reports the provider of each node."""
# Operators that ONNX Runtime may run on the CPU beside a GPU: they compute shapes, which are a few integers.
_SHAPE_OPERATORS = {"Shape", "Gather", "Slice", "Concat", "Cast", "Unsqueeze", "Squeeze"}


class SessionRuntime(Runtime):
    """Base of both runtimes: each graph is one session with one execution provider."""

    provider: ClassVar[str]
    """The execution provider of ONNX Runtime."""

    @override
    def problem(self, index: int) -> str | None:
        if not is_installed("onnxruntime"):
            return "ONNX Runtime is not installed; pip install 'bcos-sdk[cpu]' or 'bcos-sdk[gpu]'"
        return None

    @override
    def require(self, index: int) -> None:
        require("onnxruntime", purpose="Running a model")
        super().require(index)

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        contents = bundle.graph_contents(graph)
        session = self.open_session(
            contents,
            index,
            name=graph.name,
            weights=external_tensors(contents, bundle.weights),
            threads=options.threads,
            tf32=options.tf32,
        )
        release_pages(bundle.weights)  # the session has its own copy of most of them
        return self.graph_of(session, index)

    @override
    def open_onnx(
        self,
        source: Path | bytes,
        index: int,
        *,
        threads: int | None = None,
        shapes: InputShapes | None = None,
    ) -> Graph:
        return self.graph_of(self.open_session(source, index, threads=threads), index)

    def open_session(
        self,
        graph: Path | bytes,
        index: int = 0,
        *,
        name: str = "the graph",
        weights: Mapping[str, npt.NDArray[Any]] | None = None,
        threads: int | None = None,
        tf32: bool = False,
    ) -> Any:
        """Return an `onnxruntime.InferenceSession` that computes only on the device.

        `weights` are the tensors of the graph's external data. ONNX Runtime then opens no file.
        """
        onnxruntime = import_onnxruntime()

        options = onnxruntime.SessionOptions()
        options.log_severity_level = (
            4  # it would write names of the graph to stderr as they are; the exception has them
        )
        options.intra_op_num_threads = threads or 0
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (weights or {}).values()]
        if weights:
            options.add_external_initializers(list(weights), values)
        self.prepare(options)
        providers = [(self.provider, self.provider_options(index, tf32=tf32))]
        try:
            session = onnxruntime.InferenceSession(graph, options, providers=providers, enable_fallback=False)
        except Exception as error:  # the errors of ONNX Runtime have no other common base
            raise self.load_error(name, index, error) from error
        self.check_session(session, index)
        session.bcos_weights = values  # the session does not keep them alive, and does not copy all of them
        return session

    def check_session(self, session: Any, index: int) -> None:
        """Raise an error unless the session uses the execution provider. ONNX Runtime may ignore the request."""
        running = session.get_providers()
        if self.provider not in running:
            raise unavailable(
                self.device_name(index),
                f"ONNX Runtime uses {', '.join(running)} instead; its log names what is missing, often the CUDA "
                "libraries (pip install 'onnxruntime-gpu[cuda,cudnn]')",
            )

    def prepare(self, options: Any) -> None:
        """Set further session options, and load what the session needs."""

    @abstractmethod
    def provider_options(self, index: int, *, tf32: bool = False) -> dict[str, str]:
        """The options of the execution provider."""

    @abstractmethod
    def graph_of(self, session: Any, index: int) -> Graph:
        """The graph that runs the session."""

    @abstractmethod
    def load_error(self, name: str, index: int, error: Exception) -> BcosError:
        """The error for a graph that ONNX Runtime does not load."""


class CpuRuntime(SessionRuntime):
    """The CPU. It is always available, so a graph that does not load means a damaged bundle."""

    name = "cpu"
    provider = "CPUExecutionProvider"

    @override
    def self_tests_on_open(self, *, by_name: bool) -> bool:
        """No device comes after it, so a client that only predicts need not load the explain graph."""
        return False

    @override
    def provider_options(self, index: int, *, tf32: bool = False) -> dict[str, str]:
        return {}

    @override
    def graph_of(self, session: Any, index: int) -> Graph:
        return HostGraph(session)

    @override
    def load_error(self, name: str, index: int, error: Exception) -> BcosError:
        return BundleError(f"ONNX Runtime cannot load {name}: {error}", source=name, hint="Export the model again.")


class CudaRuntime(SessionRuntime):
    """A GPU through CUDA. Nothing but shapes is computed on the CPU."""

    name = "cuda"
    on_gpu = True
    provider = "CUDAExecutionProvider"
    # Its convolutions try again with TF32, in silence, if cuDNN has no plan without tensor cores.
    may_use_tf32_unasked = True

    @override
    def tf32_choices(self, precision: GraphPrecision, *, asked: bool) -> tuple[bool, ...]:
        """Allow TF32 for fp16 first: ONNX Runtime's option takes the tensor cores from products of every type.

        Products of float32 in such a graph are then rounded to 11 bits, as those of fp16 are. If that is too much for
        the self-test, the graph runs without tensor cores.
        """
        return (True, False) if precision == "fp16" and not asked else (asked,)

    @override
    def problem(self, index: int) -> str | None:
        return super().problem(index) or _cuda_problem() or gpu_problem(index)

    @override
    def provider_options(self, index: int, *, tf32: bool = False) -> dict[str, str]:
        return {
            "device_id": str(index),
            "use_tf32": str(int(tf32)),  # on by default; its 11 significant bits break the certificate of fp32
            "cudnn_conv_algo_search": "HEURISTIC",  # the exhaustive search runs again for every batch size
            "arena_extend_strategy": "kSameAsRequested",
        }

    @override
    def prepare(self, options: Any) -> None:
        onnxruntime = import_onnxruntime()

        options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
        with contextlib.redirect_stdout(sys.stderr):  # it prints the libraries that it cannot find
            onnxruntime.preload_dlls()

    @override
    def graph_of(self, session: Any, index: int) -> Graph:
        return BoundGraph(session, "cuda", index)

    @override
    def load_error(self, name: str, index: int, error: Exception) -> BcosError:
        return unavailable(self.device_name(index), str(error))

    @override
    def check_session(self, session: Any, index: int) -> None:
        super().check_session(session, index)
        on_cpu = [
            (node.op_type, node.name)
            for part in session.get_provider_graph_assignment_info()
            if part.ep_name == CpuRuntime.provider
            for node in part.get_nodes()
        ]
        if foreign := _foreign_nodes(on_cpu):
            reason = f"ONNX Runtime would run these nodes on the CPU: {', '.join(foreign[:5])}"
            raise unavailable(self.device_name(index), reason)


def _foreign_nodes(on_cpu: Sequence[tuple[str, str]]) -> list[str]:
    """The nodes on the CPU, as (operator, name), that do more than compute shapes."""
    return [f"{operator} {name}" for operator, name in on_cpu if operator not in _SHAPE_OPERATORS]


def _cuda_problem() -> str | None:
    """Why this installation of ONNX Runtime has no CUDA; None if it has."""
    onnxruntime = import_onnxruntime()

    if CudaRuntime.provider in onnxruntime.get_available_providers():
        return None
    if installed_version("onnxruntime") and installed_version("onnxruntime-gpu"):
        return (
            "onnxruntime and onnxruntime-gpu are both installed and have overwritten each other; "
            "uninstall both, then: pip install 'bcos-sdk[gpu]'"
        )
    return "this ONNX Runtime has no CUDA; pip uninstall onnxruntime, then: pip install 'bcos-sdk[gpu]'"


CPU = CpuRuntime()
CUDA = CudaRuntime()
