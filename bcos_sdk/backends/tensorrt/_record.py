"""The key of an engine (everything that it depends on) and its record. An engine is used only if its key matches."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt

from bcos_sdk.backends.tensorrt._flavours import Flavour
from bcos_sdk.bundle import InputShapes

__all__ = ["CacheRecord", "EngineKey", "EngineRecord", "SealedRecord"]

RECIPE = 3
"""Increase it when the worker builds a different engine from the same key."""
_MEANING = {
    "recipe": "build recipe",
    "graph_sha256": "graph",
    "weights_sha256": "weights",
    "precision": "precision",
    "tf32": "use of TF32",
    "channels": "encoding of pixels",
    "profiles": "shapes",
    "flavour": "TensorRT",
    "version": "TensorRT version",
    "gpu": "GPU",
    "cuda": "CUDA version",
    "driver": "driver version",
}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineKey(_Record):
    """Everything that an engine depends on. One built ahead of time has compute capabilities, but no GPU or driver."""

    recipe: int = RECIPE
    graph_sha256: str
    weights_sha256: str
    precision: str
    tf32: bool
    channels: str | None = None
    """How the engine encodes pixels, as the manifest names it; None: it takes encoded images only."""
    profiles: tuple[InputShapes, ...]
    """The ranges of shapes that it is tuned for."""
    flavour: Flavour
    version: str
    compute_capabilities: tuple[str, ...]
    gpu: str | None = None
    cuda: str | None = None
    driver: str | None = None

    def stem(self, graph: str) -> str:
        """The name of the engine's files. It contains a hash of the key, so that environments can share a folder."""
        everything = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        where = "-".join(f"sm{capability.replace('.', '')}" for capability in self.compute_capabilities)
        return f"{graph}.{self.flavour}.{where}.{hashlib.sha256(everything.encode()).hexdigest()[:8]}"

    def is_of_another_model(self, wanted: EngineKey) -> bool:
        """Whether both the graph and the weights differ."""
        return self.graph_sha256 != wanted.graph_sha256 and self.weights_sha256 != wanted.weights_sha256

    def mismatches(self, wanted: EngineKey) -> list[str]:
        """Each reason why an engine with this key cannot be used for the wanted key; empty if it can."""
        differing = [field for field in _MEANING if getattr(self, field) != getattr(wanted, field)]
        reasons = [_differs(_MEANING[field], getattr(self, field), getattr(wanted, field)) for field in differing]
        if not set(wanted.compute_capabilities) <= set(self.compute_capabilities):
            have, want = ", ".join(self.compute_capabilities), ", ".join(wanted.compute_capabilities)
            reasons.append(_differs("compute capability", have, want))
        return reasons


class SealedRecord(_Record):
    """A record with a seal, which proves to the user who wrote it that it is theirs. It means nothing to others."""

    seal: str = ""


class CacheRecord(SealedRecord):
    """What a runtime cache of TensorRT for RTX depends on, and its hash and size; written as JSON beside it."""

    plan_sha256: str
    gpu: str
    driver: str
    sha256: str
    size: NonNegativeInt

    def stem(self, graph: str) -> str:
        """The name of the cache's files."""
        key = json.dumps([self.plan_sha256, self.gpu, self.driver])
        return f"{graph}.kernels.{hashlib.sha256(key.encode()).hexdigest()[:16]}"


class EngineRecord(SealedRecord):
    """Key, hash, size, build time, peak memory and seal of a plan, written as JSON beside it."""

    key: EngineKey
    plan_sha256: str
    size: NonNegativeInt
    seconds: NonNegativeFloat
    peak_memory: NonNegativeInt | None


def _differs(what: str, have: Any, want: Any) -> str:
    return f"its {what} is {_short(have)}, not {_short(want)}"


def _short(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, (dict, tuple)) else str(value)
    return f"{text[:8]}…" if len(text) == 64 else text
