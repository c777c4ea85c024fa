"""Our network in torch, from arrays to arrays: eager or with `torch.compile`, explained by autograd, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bcos_sdk.backends import parse_device
from bcos_sdk.registry import ModelSpec

__all__ = ["TorchNetwork", "torch_place"]

Floats = npt.NDArray[np.float32]


def torch_place(devices: Sequence[str]) -> str:
    """Where torch runs so that it can be compared with these devices: on the first GPU among them, else on the CPU."""
    for name in devices:
        device = parse_device(name)
        if device is not None and device.runtime.on_gpu:
            return f"cuda:{device.index}"
    return "cpu"


class TorchNetwork:
    """Computes what our graphs do. In eval mode its gradient is W(x). TF32 is off, as it is for ours by default."""

    def __init__(
        self, spec: ModelSpec, state: dict[str, Any], place: str, *, compiled: bool, backend: str = "inductor"
    ) -> None:
        from bcos_sdk.models import build_model

        network = build_model(spec)
        network.load_state_dict(state)
        network = network.eval().requires_grad_(False).to(place)
        self._place = place
        self._network: Any = torch.compile(network, backend=backend) if compiled else network
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def predict(self, images: Floats) -> Floats:
        """Images [B, 6, H, W] → logits."""
        with torch.no_grad():
            logits: Floats = self._network(torch.from_numpy(images).to(self._place)).cpu().numpy()
        return logits

    def explain(self, images: Floats) -> Floats:
        """Images [B, 6, H, W] → contributions [B, H, W] to the largest logit of each image.

        The images of a batch are independent, so the gradient of the sum of the largest logits has a row of each W(x).
        """
        x = torch.from_numpy(images).to(self._place).requires_grad_()
        (weights,) = torch.autograd.grad(self._network(x).amax(1).sum(), x)
        contributions: Floats = (weights * x.detach()).sum(1).cpu().numpy()
        return contributions
