"""torchvision, imported beside any build of torch."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["import_torchvision"]


def import_torchvision() -> Any:
    """The package; what needs it indirectly, as `bcos` does, can be imported afterwards."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        # A CUDA build of torchvision finds its operators missing beside a CPU torch. Their schemas
        # are enough to import it, and no classifier uses them.
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision
    return torchvision
