"""ONNX Runtime sessions that run where they were told to, or are not made."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bcos_sdk.backends._devices import PROVIDERS, Device, unavailable
from bcos_sdk.errors import BundleError

__all__ = ["check_session", "foreign_nodes", "open_session", "provider_options"]

_RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
# Sizes are computed on the CPU on purpose: they decide where data goes and are no data themselves.
_SIZE_OPERATORS = {"Shape", "Gather", "Slice", "Concat", "Cast", "Unsqueeze", "Squeeze"}


def provider_options(device: Device, *, tf32: bool = False) -> list[tuple[str, dict[str, str]]]:
    """The execution provider for the device, with its options."""
    if device.kind == "cpu":
        return [(PROVIDERS["cpu"], {})]
    cuda = {
        "device_id": str(device.index),
        "use_tf32": str(int(tf32)),  # its 11 binary digits break the certificate of full precision
        "cudnn_conv_algo_search": "HEURISTIC",  # the exhaustive one searches again for every batch size
        "arena_extend_strategy": "kSameAsRequested",
    }
    return [(PROVIDERS["cuda"], cuda)]


def open_session(graph: Path | bytes, device: Device, threads: int | None, providers: Sequence[tuple[str, Any]]) -> Any:
    """An `onnxruntime.InferenceSession` whose work is all done by the device."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    if device.kind != "cpu":
        options.add_session_config_entry(_RECORD_ASSIGNMENT, "1")
        with contextlib.redirect_stdout(sys.stderr):  # what it cannot find it prints
            onnxruntime.preload_dlls()
    try:
        session = onnxruntime.InferenceSession(graph, options, providers=list(providers), enable_fallback=False)
    except Exception as error:  # its errors have no common base but this
        if device.kind == "cpu":
            name = graph.name if isinstance(graph, Path) else "the graph"
            raise BundleError(
                f"ONNX Runtime cannot load {name}: {error}", source=name, hint="Export the model again."
            ) from error
        raise unavailable(device, str(error)) from error
    check_session(session, device)
    return session


def check_session(session: Any, device: Device) -> None:
    """Ask the session itself where it runs: what it was given is only a wish."""
    running = session.get_providers()
    if PROVIDERS[device.kind] not in running:
        raise unavailable(
            device,
            f"ONNX Runtime went to {', '.join(running)} instead; its log says what it misses, often the CUDA libraries "
            "(pip install 'onnxruntime-gpu[cuda,cudnn]')",
        )
    if device.kind != "cpu":
        assigned = [
            (node.op_type, node.name)
            for part in session.get_provider_graph_assignment_info()
            if part.ep_name == PROVIDERS["cpu"]
            for node in part.get_nodes()
        ]
        left = foreign_nodes(assigned)
        if left:
            raise unavailable(device, f"ONNX Runtime would run these on the CPU: {', '.join(left[:5])}")


def foreign_nodes(on_cpu: Sequence[tuple[str, str]]) -> list[str]:
    """Of the (operator, name) that were left to the CPU, those that work on images and not on sizes."""
    return [f"{operator} {name}" for operator, name in on_cpu if operator not in _SIZE_OPERATORS]
