"""What a transport does: metadata, configuration, files and inference of the models of one server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bcos_sdk.backends._graph import Arrays, TensorSpec

__all__ = ["ModelConfig", "ModelMetadata", "Port", "Transport"]

Port = tuple[str, tuple[int, ...]]
"""The datatype of a tensor and its shape; −1 where sizes vary."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a server says about a model."""

    inputs: dict[str, Port]
    outputs: dict[str, Port]
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """How a model is configured: Triton's extension of the protocol."""

    max_batch: int
    """The largest batch; 0 if the server does not batch."""
    parameters: dict[str, str]


class Transport(Protocol):
    """Requests to one server. Threads may share it. Every failure is a `BcosError`."""

    @property
    def connections_made(self) -> int:
        """How many connections were made so far. After a new one, the server may be another one."""

    def metadata(self, model: str) -> ModelMetadata:
        """Inputs, outputs and parameters of a model. A model that does not exist is a `ServerRefusedError`."""

    def config(self, model: str) -> ModelConfig | None:
        """The configuration of a model; None if the server does not tell it."""

    def golden(self, model: str, largest: int) -> bytes | None:
        """The file of the golden record, of at most `largest` bytes; None if the server does not send it."""

    def infer(self, model: str, inputs: Arrays, outputs: Mapping[str, TensorSpec]) -> tuple[Arrays, Mapping[str, str]]:
        """The outputs of a model, as the server sends them, and the parameters of the answer."""

    def stop(self) -> None:
        """Let requests of other threads fail soon, and later ones at once. Does not wait."""

    def close(self) -> None:
        """Close all connections."""
