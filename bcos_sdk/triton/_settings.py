"""How a model is served by Triton: its backend, device, inputs, outputs, and the limits of its queue."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

__all__ = ["Flavour", "InstanceDevice", "RepositorySettings"]

Flavour: TypeAlias = Literal["onnxruntime", "tensorrt", "python"]
"""The backend of Triton. "python" runs ONNX Runtime in Python, for tests and for servers without the others."""
InstanceDevice: TypeAlias = Literal["auto", "cpu", "gpu"]
"""Where instances run; "auto": on every GPU, on the CPU if there is none."""


class RepositorySettings(BaseModel):
    """What to write. The numbers are limits for each of the two models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = None
    """The name of the model that predicts; by default that of the manifest."""
    flavour: Flavour = "onnxruntime"
    device: InstanceDevice = "auto"
    input_size: tuple[int, int] | None = None
    """Which size of the input, for a bundle with several; None: its default."""
    pixels: bool = False
    """Take 8-bit pixels [B, H, W, colours], which the graph encodes: the input `pixels` instead of `image`."""
    weights: bool = False
    """Whether NAME_explain returns W(x), which is as large as the encoded images, times the number of targets."""
    max_batch: PositiveInt | None = None
    """The largest batch; None: that of the export."""
    max_targets: PositiveInt | None = None
    """The most targets of one image in one request; None: the largest batch of the export."""
    instances: PositiveInt = 2
    """Copies of each model per device. With one copy, Triton stalled under load."""
    threads: PositiveInt | None = None
    """CPU threads of each instance; None: one per core."""
    queue: PositiveInt = 64
    """Most requests that wait for each model; Triton answers further ones with UNAVAILABLE."""
    queue_delay: NonNegativeInt = 500
    """Microseconds that a request waits for others to share its batch."""
    timeout: float = Field(default=30.0, gt=0, le=3600)
    """Seconds that a request may wait in the queue before it is refused."""
    tf32: bool = False
    """Let a GPU round the factors of float32 products to TF32."""
