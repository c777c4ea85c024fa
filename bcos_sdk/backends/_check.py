"""Does a device work? Tried with the smallest graph there is, before any model is at hand."""

from __future__ import annotations

import base64
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import PROVIDERS, Device, problem_of
from bcos_sdk.backends._graphs import Tensor
from bcos_sdk.backends.onnxruntime._sessions import open_session, provider_options
from bcos_sdk.backends.openvino._graph import open_openvino_graph
from bcos_sdk.errors import BcosError

__all__ = ["check_device"]

_ADD = base64.b64decode("CAo6NQoOCgF4CgF4EgF5IgNBZGQSAWdaDwoBeBIKCggIARIECgIIAmIPCgF5EgoKCAgBEgQKAggCQgQKABAS")
"""ONNX, opset 18: y = x + x for two numbers."""


def check_device(device: Device) -> str | None:
    """None if the device computes, else why it does not."""
    if device.kind == "tensorrt":  # asking it for its problems includes trying it
        return problem_of(device)
    if device.kind in PROVIDERS and find_spec("onnxruntime") is None:
        return "ONNX Runtime is not installed; pip install 'bcos-sdk[cpu]' or 'bcos-sdk[gpu]'"
    if problem := problem_of(device):
        return problem
    try:
        result = _added(device, np.array([1, 2], np.float32))
    except BcosError as error:
        return error.message
    except Exception as error:  # the errors of runtimes have no common base but this
        return f"it fails while running: {error}"
    return None if result.tolist() == [2, 4] else "it computes wrongly"


def _added(device: Device, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if device.kind == "openvino":
        return open_openvino_graph(_ADD, threads=None).run({"x": x}, {"y": Tensor(x.shape, x.dtype.name)})["y"]
    session = open_session(_ADD, device, None, provider_options(device))
    (result,) = session.run(None, {"x": x})
    added: npt.NDArray[Any] = result
    return added
