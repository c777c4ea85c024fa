"""The interface of a graph that is ready to run, and the error that a failed run becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import Arrays, ExplainOutputs, Floats, Integers, Port
from bcos_sdk.errors import BcosError, InferenceError, OutOfMemoryError

__all__ = [
    "Arrays",
    "Feed",
    "Floats",
    "Graph",
    "ImageList",
    "Images",
    "Integers",
    "TensorSpec",
    "batch_size",
    "check_outputs",
    "explain_specs",
    "inference_error",
    "is_out_of_memory",
    "output_specs",
]

Images: TypeAlias = npt.NDArray[Any]
"""Encoded images [B, 6, H, W] as float32, or pixels [B, H, W, 3] as uint8."""
Feed: TypeAlias = Mapping[str, Any]
"""An array for each input. Runtimes that overlap runs also take an `ImageList`."""

_OUT_OF_MEMORY = ("out of memory", "failed to allocate", "bad allocation", "bad_alloc", "cuda failure 2:")


@dataclass(frozen=True)
class TensorSpec:
    """The shape and dtype of an output, known before the graph runs."""

    shape: tuple[int, ...]
    dtype: str


class ImageList:
    """Images of one shape and type that are not stacked yet. A device may write them straight into its memory."""

    def __init__(self, images: Sequence[Images]) -> None:
        self._images = images
        self.shape = (len(images), *images[0].shape)
        self.dtype = images[0].dtype

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, part: slice) -> ImageList:
        return ImageList(self._images[part])

    def write_to(self, batch: Images) -> None:
        """Write the images into an array of this shape."""
        for place, image in enumerate(self._images):
            np.copyto(batch[place], image, casting="safe")


class Graph(Protocol):
    """One graph, loaded on a device."""

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        """Return the named outputs as new arrays, which the caller owns. Every failure is a `BcosError`."""

    def start(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Callable[[], Arrays]:
        """Start a run. The returned function waits for it and returns its outputs. By default it has run already."""
        arrays = self.run(feed, outputs)
        return lambda: arrays

    def make_room(self) -> bool:
        """Free the memory that is kept for later runs. Return whether there was any. Runs that were started go on."""
        return False

    def stop(self) -> None:
        """Let a run in another thread fail as soon as the runtime can end it, and every later run. Does not wait."""

    def close(self) -> None:
        """Free the memory of the device. The graph cannot run afterwards."""


def output_specs(
    ports: Sequence[Port], manifest: Manifest, batch: int, targets: tuple[int, ...] = ()
) -> dict[str, TensorSpec]:
    """The spec of each output for `batch` images and targets of shape `targets`."""
    return {port.name: TensorSpec(port.shape(batch, targets, manifest.sizes), port.dtype) for port in ports}


def explain_specs(manifest: Manifest, batch: int, targets: tuple[int, ...], *, weights: bool) -> dict[str, TensorSpec]:
    """The spec of each output that is fetched from an explain graph; W(x) only with `weights`."""
    return output_specs(ExplainOutputs.ports(weights=weights), manifest, batch, targets)


def check_outputs(outputs: Arrays, specs: Mapping[str, TensorSpec]) -> None:
    """Raise an error if an output has another shape or type than the manifest says."""
    for name, spec in specs.items():
        found = outputs[name]
        if found.shape != spec.shape or found.dtype != spec.dtype:
            raise InferenceError(
                f"the graph returned {name} as {found.dtype} {list(found.shape)}, expected {spec.dtype} "
                f"{list(spec.shape)}",
                hint="The bundle is damaged: its manifest is not that of its graphs. Export the model again.",
            )


def batch_size(feed: Feed) -> int:
    """The largest first axis of the inputs: the number of images, or of the targets of one image."""
    return max(len(array) for array in feed.values())


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of a runtime means that memory ran out. Runtimes have no type for it, so the text decides."""
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in _OUT_OF_MEMORY)


def inference_error(error: Exception, batch: int, message: str | None = None) -> BcosError:
    """Translate an error of a runtime: `OutOfMemoryError` if a smaller batch may help, else `InferenceError`."""
    if is_out_of_memory(error):
        return OutOfMemoryError(f"a batch of {batch} does not fit into the memory of the device")
    return InferenceError(f"the graph failed on a batch of {batch}: {message or error}")
