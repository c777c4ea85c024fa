"""TensorRT plans for Triton. They take one input for the images, so that Triton can merge requests.

The plans of a bundle take images in two inputs with batches of their own, `pixels` and `encoded`, and one of them is
blank. Triton has one batch size for all inputs, so that it could not feed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bcos_sdk.backends.tensorrt import choose_flavour, flavour_version, run_worker
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError
from bcos_sdk.triton._tensors import Tensor

__all__ = ["build_plan", "check_plans", "profiles_of"]

Shapes = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


def check_plans(precision: GraphPrecision) -> str:
    """Return the version of TensorRT that builds plans here, or raise the reason why none can be built."""
    try:
        flavour = choose_flavour((), precision)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            error.message,
            hint="Run this on a machine with the GPU of the server (pip install 'bcos-sdk[trt]'), or choose flavour "
            "onnxruntime: it is written without a GPU, and runs on the GPU of the server as well.",
        ) from error
    if flavour != "tensorrt":
        raise InputError(
            "Triton runs plans of TensorRT, and only TensorRT for RTX is installed here",
            source="flavour",
            hint="Install TensorRT (pip install 'bcos-sdk[trt]'), in the version of the server.",
        )
    return flavour_version("tensorrt")


def build_plan(graph: Path, plan: Path, profiles: Sequence[Shapes], *, tf32: bool) -> None:
    """Build the plan of a graph for GPU 0 of this machine. The weights file lies beside the graph."""
    job = {"task": "build", "flavour": "tensorrt", "graph": str(graph), "channels": None, "capabilities": ()}
    try:
        run_worker({**job, "profiles": profiles, "tf32": tf32, "gpu": 0, "plan": str(plan)})
    except EngineError as error:
        raise EngineError(f"cannot build a plan for Triton: {error.message}", source=str(plan)) from error


def profiles_of(inputs: Sequence[Tensor], batch: int, targets: int) -> tuple[Shapes, Shapes]:
    """The two profiles of a plan. Both take all shapes; one is tuned for one image and target, one for a full batch.

    Triton uses the profile whose tuned shape is nearest, and loads no plan with a profile that ends below its largest
    batch.
    """
    shapes: Shapes = {}
    for one in inputs:
        sizes = [(count, *(most if side < 0 else side for side in one.dims)) for count, most in _sizes(batch, targets)]
        shapes[one.name] = (sizes[0], sizes[1], sizes[2])
    return {name: (smallest, smallest, largest) for name, (smallest, _, largest) in shapes.items()}, shapes


def _sizes(batch: int, targets: int) -> tuple[tuple[int, int], ...]:
    """Smallest, usual and largest numbers of images and of targets per image."""
    return (1, 1), (batch, 1), (batch, targets)
