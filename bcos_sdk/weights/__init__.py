"""Weights: download them by registry name, read a file safely, load them into a network.

Downloading needs no torch. The functions that need torch are imported on first access.
"""

from functools import partial
from typing import TYPE_CHECKING

from bcos_sdk._extras import require
from bcos_sdk._lazy_names import import_on_first_use
from bcos_sdk.weights._download import download_weights, known_sha256, weights_dir, weights_file

if TYPE_CHECKING:
    from bcos_sdk.weights._checkpoint import read_checkpoint
    from bcos_sdk.weights._fine_tuned import FineTuned, load_fine_tuned
    from bcos_sdk.weights._label_search import find_labels
    from bcos_sdk.weights._loading import load_model, load_weights
    from bcos_sdk.weights._stand_ins import StandIn

__all__ = [
    "FineTuned",
    "StandIn",
    "download_weights",
    "find_labels",
    "known_sha256",
    "load_fine_tuned",
    "load_model",
    "load_weights",
    "read_checkpoint",
    "weights_dir",
    "weights_file",
]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__ = import_on_first_use(
        __name__,
        {
            "FineTuned": "_fine_tuned",
            "StandIn": "_stand_ins",
            "find_labels": "_label_search",
            "load_fine_tuned": "_fine_tuned",
            "load_model": "_loading",
            "load_weights": "_loading",
            "read_checkpoint": "_checkpoint",
        },
        prepare=partial(require, "torch", "safetensors", purpose="Loading weights"),
    )
