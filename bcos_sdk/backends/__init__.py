"""Run the graphs of a bundle on a device. Each runtime is one package here and one line of `RUNTIMES`."""

from bcos_sdk.backends._backend import Backend, GraphBackend
from bcos_sdk.backends._devices import RUNTIMES, device_names, list_devices, parse_device
from bcos_sdk.backends._driver import Driver, Gpu, probe_driver
from bcos_sdk.backends._graph import Arrays, Graph, TensorSpec, explain_specs, inference_error
from bcos_sdk.backends._open import open_backend, open_graph
from bcos_sdk.backends._runtime import Device, OpenOptions, Runtime, check_device

__all__ = [
    "RUNTIMES",
    "Arrays",
    "Backend",
    "Device",
    "Driver",
    "Gpu",
    "Graph",
    "GraphBackend",
    "OpenOptions",
    "Runtime",
    "TensorSpec",
    "check_device",
    "device_names",
    "explain_specs",
    "inference_error",
    "list_devices",
    "open_backend",
    "open_graph",
    "parse_device",
    "probe_driver",
]
