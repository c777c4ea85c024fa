"""What a worker needs to know: the model, the client's options, what to explain, and what to store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import bcos_sdk
from bcos_sdk.bundle import Bundle, Manifest
from bcos_sdk.client import Targets, check_targets
from bcos_sdk.errors import InputError, shown
from bcos_sdk.limits import Limits
from bcos_sdk.ray._delivery import Delivery
from bcos_sdk.ray._maps import Maps, check_maps
from bcos_sdk.ray._rows import PICTURES
from bcos_sdk.results import Work

__all__ = ["Question", "WorkerSettings", "batch_of"]


@dataclass(frozen=True)
class Question:
    """What is computed for each image, and what of it is stored."""

    explain: bool = True
    targets: Any = None
    top_k: int = 1
    maps: Maps = "float16"
    pictures: tuple[str, ...] = ()

    def check(self, manifest: Manifest, limits: Limits) -> None:
        """Raise an error if the model has no such target, or if something cannot be stored."""
        check_maps(self.maps)
        if unknown := [kind for kind in self.pictures if kind not in PICTURES]:
            raise InputError(
                f"pictures has {', '.join(map(shown, unknown))}, expected some of {', '.join(PICTURES)}",
                source="pictures",
                hint="npz files and the report are written on one machine only. `maps` stores the numbers.",
            )
        if self.explain:
            check_targets(manifest, self.targets, self.top_k, limits)

    def work(self, manifest: Manifest, *, tf32: bool) -> Work:
        """What decides a row besides the image. It is compared as on one machine."""
        stored = [f"maps:{self.maps}"] if self.explain and self.maps != "none" else []
        return Work(
            model=manifest.digest,
            explain=self.explain,
            targets=tuple(map(str, _listed(self.targets))),
            top_k=self.top_k,
            tf32=tf32,
            outputs=tuple(sorted([*self.pictures, *stored])),
        )


@dataclass(frozen=True)
class WorkerSettings:
    """All that is sent to a worker."""

    delivery: Delivery
    question: Question
    work: str
    """The JSON of the `Work` of the run."""
    client: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Client` besides the bundle and its hash."""
    version: str = bcos_sdk.__version__
    """The version of the driver. A worker with another one refuses to run."""

    @property
    def limits(self) -> Limits:
        return self.client.get("limits") or Limits()


def batch_of(bundle: Bundle, max_batch: int | None, question: Question) -> int:
    """How many images run together."""
    batch = bundle.manifest.max_batch if max_batch is None else max_batch
    targets = len(_listed(question.targets)) or question.top_k
    return max(1, batch // targets) if question.explain else batch


def _listed(targets: Targets) -> Sequence[Any]:
    if targets is None:
        return ()
    return targets if isinstance(targets, (list, tuple)) else (targets,)
