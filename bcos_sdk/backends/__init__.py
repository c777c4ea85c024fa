"""Run the graphs of a bundle on a device. Each runtime is one package here and one line of `RUNTIMES`."""

from bcos_sdk.backends._backend import Backend, GraphBackend, RunsAtOnce
from bcos_sdk.backends._devices import RUNTIMES, device_names, list_devices, parse_device
from bcos_sdk.backends._driver import Driver, Gpu, probe_driver
from bcos_sdk.backends._graph import Arrays, Graph, ImageList, Images, TensorSpec, explain_specs, inference_error
from bcos_sdk.backends._open import open_backend, open_graph
from bcos_sdk.backends._pixel_input import Encoding, with_only_pixels
from bcos_sdk.backends._probe import Outcome
from bcos_sdk.backends._runtime import Device, OpenOptions, Runtime, check_device, examine_device
from bcos_sdk.backends.remote import Connected, Remote, connect, is_address

__all__ = [
    "RUNTIMES",
    "Arrays",
    "Backend",
    "Connected",
    "Device",
    "Driver",
    "Encoding",
    "Gpu",
    "Graph",
    "GraphBackend",
    "ImageList",
    "Images",
    "OpenOptions",
    "Outcome",
    "Remote",
    "RunsAtOnce",
    "Runtime",
    "TensorSpec",
    "check_device",
    "connect",
    "device_names",
    "examine_device",
    "explain_specs",
    "inference_error",
    "is_address",
    "list_devices",
    "open_backend",
    "open_graph",
    "parse_device",
    "probe_driver",
    "with_only_pixels",
]
