"""Optional packages: which extra installs each, whether it is installed, and the error if it is missing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from bcos_sdk.errors import MissingExtraError

__all__ = ["installed_version", "is_installed", "require", "torch_support"]

_EXTRA_OF_MODULE = {
    "OpenSSL": "sign",
    "bcos": "bench",
    "captum": "evaluate",
    "cuda.bindings": "trt",
    "einops": "bench",
    "fastapi": "serve",
    "fsspec": "ray",
    "grpc": "remote",
    "httptools": "serve",
    "matplotlib": "bench",
    "model_signing": "sign",
    "onnx": "export",
    "onnxruntime": "cpu",
    "onnxscript": "export",
    "pandas": "pandas",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "python_multipart": "serve",
    "ray": "ray",
    "safetensors": "export",
    "tensorrt": "trt",
    "tensorrt_rtx": "trt-rtx",
    "torch": "export",
    "torchvision": "bench",
    "urllib3": "remote",
    "uvicorn": "serve",
}

_TRIED_TORCH = ("2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.12.0", "2.13.0")
"""The versions of torch with which `make test-torch TORCH=…` passes, oldest first. The first is the oldest supported
version, as in the extra `export` of pyproject.toml."""


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


def torch_support(installed: str) -> str:
    """Whether the exporter was tested with this version of torch: "tried", or why not.

    Versions are compared by their first two numbers: 2.8.1+cpu counts as tried if 2.8.0 was.
    """
    tried = [_minor(version) for version in _TRIED_TORCH]
    oldest, newest = (".".join(map(str, version)) for version in (tried[0], tried[-1]))
    if _minor(installed) in tried:
        return "tried"
    if _minor(installed) < tried[0]:
        return f"older than {oldest}, the oldest supported version"
    if _minor(installed) > tried[-1]:
        return f"newer than {newest}, the newest version that was tried"
    return f"not tried, but {oldest} and {newest} were"


def _minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
