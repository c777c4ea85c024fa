"""Optional packages: which extra installs each, whether it is installed, and the error if it is missing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from bcos_sdk.errors import MissingExtraError

__all__ = ["installed_version", "is_installed", "require"]

_EXTRA_OF_MODULE = {
    "bcos": "bench",
    "cuda.bindings": "trt",
    "einops": "bench",
    "filelock": "export",
    "matplotlib": "bench",
    "onnx": "export",
    "onnxruntime": "cpu",
    "onnxscript": "export",
    "pyarrow": "parquet",
    "safetensors": "export",
    "tensorrt": "trt",
    "tensorrt_rtx": "trt-rtx",
    "torch": "export",
    "torchvision": "bench",
}


def require(*modules: str, purpose: str) -> None:
    """Raise a `MissingExtraError` that names the extra to install, unless every module can be imported."""
    missing = [module for module in modules if not is_installed(module)]
    if missing:
        extras = ",".join(sorted({_EXTRA_OF_MODULE[module] for module in missing}))
        choice = "" if extras != "cpu" else "  (on a GPU machine: 'bcos-sdk[gpu]')"
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            hint=f"Install with: pip install 'bcos-sdk[{extras}]'{choice}",
        )


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is not installed
        return False


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
