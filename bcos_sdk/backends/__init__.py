"""What runs the graphs of a bundle: one small interface, one file per kind of runtime."""

from bcos_sdk.backends._check import check_device
from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._driver import Driver, Gpu, probe_driver
from bcos_sdk.backends._interface import Backend
from bcos_sdk.backends._open import open_backend

__all__ = ["Backend", "Device", "Driver", "Gpu", "check_device", "open_backend", "probe_driver"]
