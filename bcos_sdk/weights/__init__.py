"""Weights: download them by registry name, read a file safely, load them into a network.

Downloading needs no torch. The functions that need torch are imported on first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bcos_sdk._extras import require
from bcos_sdk.weights._download import download_weights, weights_dir

if TYPE_CHECKING:
    from bcos_sdk.weights._checkpoint import read_checkpoint
    from bcos_sdk.weights._loading import load_model, load_weights

__all__ = ["download_weights", "load_model", "load_weights", "read_checkpoint", "weights_dir"]

_NEEDS_TORCH = {"load_model": "_loading", "load_weights": "_loading", "read_checkpoint": "_checkpoint"}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "safetensors", purpose="Loading weights")
    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
