"""The number of classes of a checkpoint, from the shapes of those tensors that grow with the number of classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bcos_sdk.models import build_model
from bcos_sdk.registry import ArchitectureConfig

__all__ = ["Shapes", "shapes_of"]

_PRIME = 1_000_003


@dataclass(frozen=True)
class Shapes:
    """The state of a network without values. The size of some axes is `units` times the number of classes."""

    state: Mapping[str, Tensor]
    """The state with _PRIME classes, on the meta device."""
    classifier: Mapping[str, tuple[int, int]]
    """For each tensor that grows with the number of classes, the axis and the units per class (MaxOut has several)."""

    def with_classes(self, classes: int) -> dict[str, Tensor]:
        """The state with that many classes, on the meta device."""
        return {key: self._sized(key, tensor, classes) for key, tensor in self.state.items()}

    def classes_of(self, tensors: Mapping[str, Tensor]) -> int | None:
        """The number of classes of a state dict; None if it has no such classifier."""
        counts = set()
        for key, (axis, units) in self.classifier.items():
            tensor = tensors.get(key)
            if tensor is None or tensor.ndim != self.state[key].ndim:
                return None
            count, rest = divmod(tensor.shape[axis], units)
            if rest or not count:
                return None
            counts.add(count)
        return counts.pop() if len(counts) == 1 else None

    def _sized(self, key: str, tensor: Tensor, classes: int) -> Tensor:
        if key not in self.classifier:
            return tensor
        axis, units = self.classifier[key]
        shape = list(tensor.shape)
        shape[axis] = units * classes
        return tensor.new_empty(shape)


@cache
def shapes_of(config: ArchitectureConfig) -> Shapes:
    """Build the network without memory for _PRIME classes: an axis with a multiple of it grows with the classes.

    No other axis can have such a size. The function is generic: it does not know where a family has its classifier.
    """
    with torch.device("meta"):
        state = build_model(config.model_copy(update={"classes": _PRIME})).state_dict()
    classifier = {
        key: (axis, size // _PRIME)
        for key, tensor in state.items()
        for axis, size in enumerate(tensor.shape)
        if size and size % _PRIME == 0
    }
    return Shapes(state, classifier)
