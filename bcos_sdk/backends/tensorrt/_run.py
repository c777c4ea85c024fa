"""A run that was queued on the GPU."""

from __future__ import annotations

from bcos_sdk.backends._graph import Arrays
from bcos_sdk.backends.tensorrt._slot import Outputs, Slot

__all__ = ["Run"]


class Run:
    """A run that was queued. Its outputs are fetched once; until then it needs its slot."""

    def __init__(self, slot: Slot, outputs: Outputs) -> None:
        self.slot = slot
        self._outputs = outputs
        self._arrays: Arrays | None = None

    @property
    def finished(self) -> bool:
        return self._arrays is not None

    def finish(self) -> Arrays:
        """Wait for the run and return its outputs."""
        if self._arrays is None:
            self._arrays = self.slot.results(self._outputs)
        return self._arrays
