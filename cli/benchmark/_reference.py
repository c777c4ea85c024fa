"""The public package `bcos` in torch, as a user would run it, and with its explanations in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bcos_sdk.cli.benchmark._torchvision import import_torchvision

__all__ = ["build_reference", "explain_in_batch", "explain_with_picture", "has_reference", "predict_in_batch"]


def has_reference(name: str) -> bool:
    """Whether the package has an entry point of that name."""
    return name in _entry_points().list_available()


def build_reference(name: str) -> Any:
    """The published entry point of that name with random weights, in eval mode.

    Its parameters ask for no gradient: autograd then keeps less, which is to the reference's advantage.
    """
    network = getattr(_entry_points(), name)(pretrained=False)
    return network.eval().requires_grad_(False)


def predict_in_batch(network: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = network(images)
    return logits


def explain_in_batch(network: Any, images: Tensor) -> Tensor:
    """[B, 6, H, W] → [B, H, W]: what each pixel adds to the largest logit of its image.

    Images do not mix in eval mode, so the gradient of the sum of all largest logits has each image's row of W(x).
    """
    x = images.detach().requires_grad_()
    with network.explanation_mode():
        (weights,) = torch.autograd.grad(network(x).amax(1).sum(), x)
    return (weights * images).sum(1)


def explain_with_picture(network: Any, image: Tensor) -> Callable[[], dict[str, Any]]:
    """The package's own `explain()` of one image [1, 6, H, W], which returns W(x) and its picture."""
    x = image.detach().clone().requires_grad_()

    def explain() -> dict[str, Any]:
        explained: dict[str, Any] = network.explain(x)
        return explained

    return explain


def _entry_points() -> Any:
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        import bcos.models.pretrained

    return bcos.models.pretrained
