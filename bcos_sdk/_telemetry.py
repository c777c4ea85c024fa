"""Import runtimes without their telemetry: no identifier on the disk, no message over the network."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["import_onnxruntime", "import_openvino"]

_ONNXRUNTIME_SWITCH = "ORT_DISABLE_TELEMETRY"
_OPENVINO_TELEMETRY = "openvino_telemetry"


def import_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry off.

    Since 1.29 it stores a device identifier in the user's cache and sends events to Microsoft. The environment variable
    prevents both if it is set before the first import; if the application has set it, its value is kept. The call turns
    off the events of an ONNX Runtime that the application imported before.
    """
    os.environ.setdefault(_ONNXRUNTIME_SWITCH, "1")
    onnxruntime = import_module("onnxruntime")
    if os.environ[_ONNXRUNTIME_SWITCH] != "0":
        onnxruntime.disable_telemetry_events()
    return onnxruntime


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry package, which stores an identifier and reports to Google Analytics.

    OpenVINO works without the package. If the application imported OpenVINO before, the message was sent then.
    """
    if "openvino" in sys.modules:
        return import_module("openvino")
    with _not_importable(_OPENVINO_TELEMETRY):
        return import_module("openvino")


@contextmanager
def _not_importable(module: str) -> Iterator[None]:
    before = sys.modules.get(module)
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(module, None)
        if before is not None:
            sys.modules[module] = before
