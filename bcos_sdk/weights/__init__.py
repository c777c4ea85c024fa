"""Weights: fetched by registry name, read from a file, and put into a network or refused with reasons."""

from bcos_sdk._extras import require

require("torch", "safetensors", "filelock", purpose="Loading weights")

from bcos_sdk.weights._checkpoint import read_checkpoint  # noqa: E402
from bcos_sdk.weights._download import download_weights, weights_dir  # noqa: E402
from bcos_sdk.weights._fit import load_weights  # noqa: E402

__all__ = ["download_weights", "load_weights", "read_checkpoint", "weights_dir"]
