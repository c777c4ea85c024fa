"""The result of an evaluation, as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from bcos_sdk._plain_text import plain_json
from bcos_sdk.evaluation._items import Figures
from bcos_sdk.evaluation._run import Run
from bcos_sdk.evaluation._settings import MeasureName, Settings
from bcos_sdk.evaluation.comparison import Difference, compare
from bcos_sdk.results import Failure

__all__ = ["Evaluated", "Evaluation", "evaluation_of"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Evaluated(_Record):
    """The figures of one model on one device."""

    name: str
    digest: str
    precision: str
    device: str
    figures: dict[MeasureName, Figures]
    failures: dict[MeasureName, tuple[Failure, ...]]


class Evaluation(_Record):
    """Everything that `bcos-sdk evaluate` found."""

    schema_version: Literal[1] = 1
    layout: str
    images: int
    notes: tuple[str, ...]
    settings: Settings
    smooth: int
    grid_mode: str | None
    """"network" or "windows"; None without localisation."""
    model: Evaluated
    other: Evaluated | None = None
    """The model that is compared with."""
    differences: tuple[Difference, ...] = ()
    against: dict[str, Any] | None = None
    """Post-hoc methods on the same grids."""

    def to_json(self) -> str:
        return plain_json(self.model_dump_json(indent=1)) + "\n"


def evaluation_of(run: Run, other: Run | None = None, against: dict[str, Any] | None = None) -> Evaluation:
    """The result of a run, and of the run that it is compared with."""
    differences = [
        difference
        for name, items in run.items.items()
        if other is not None
        for difference in compare(name, items, other.items[name], seed=run.settings.seed)
    ]
    return Evaluation(
        layout=run.dataset.layout,
        images=len(run.dataset.samples),
        notes=(*run.dataset.notes, *run.notes),
        settings=run.settings,
        smooth=run.smooth,
        grid_mode=run.maps.mode if "localisation" in run.items else None,
        model=_evaluated(run),
        other=None if other is None else _evaluated(other),
        differences=tuple(differences),
        against=against,
    )


def _evaluated(run: Run) -> Evaluated:
    manifest = run.subject.client.manifest
    return Evaluated(
        name=manifest.model.name,
        digest=manifest.digest,
        precision=manifest.precision,
        device=run.subject.client.device,
        figures=run.figures(),
        failures={
            name: tuple(item.failure for item in items if item.failure is not None)
            for name, items in run.failures.items()
        },
    )
