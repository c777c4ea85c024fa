"""The reference: the public package `bcos` in torch, with its own `explain()` and with explanations of batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bcos_sdk.cli.benchmark._conventional import import_torchvision

__all__ = ["build_reference", "explain_in_batch", "explain_with_picture", "has_reference", "predict_in_batch"]


def has_reference(name: str) -> bool:
    """Whether the package has a network of that name."""
    return name in _entry_points().list_available()


def build_reference(name: str) -> Any:
    """Return the network of that name with fresh weights, in eval mode.

    Its parameters do not require gradients. This saves time and memory in autograd, to the advantage of the reference.
    """
    network = getattr(_entry_points(), name)(pretrained=False)
    return network.eval().requires_grad_(False)


def predict_in_batch(network: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = network(images)
    return logits


def explain_in_batch(network: Any, images: Tensor) -> Tensor:
    """Return the contributions [B, H, W] of the pixels of images [B, 6, H, W] to the largest logit of each image.

    In eval mode the images of a batch are independent. The gradient of the sum of the largest logits is therefore the
    row of W(x) of each image.
    """
    x = images.detach().requires_grad_()
    with network.explanation_mode():
        (weights,) = torch.autograd.grad(network(x).amax(1).sum(), x)
    return (weights * images).sum(1)


def explain_with_picture(network: Any, image: Tensor) -> Callable[[], dict[str, Any]]:
    """Return a function that calls the package's `explain()` on one image [1, 6, H, W]: W(x) and its picture."""
    x = image.detach().clone().requires_grad_()

    def explain() -> dict[str, Any]:
        explained: dict[str, Any] = network.explain(x)
        return explained

    return explain


def _entry_points() -> Any:
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies emit deprecation warnings
        import bcos.models.pretrained

    return bcos.models.pretrained
