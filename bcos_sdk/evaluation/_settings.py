"""What to measure, on how many images, and how."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["MEASURES", "GridMode", "MeasureName", "Settings"]

MeasureName = Literal["accuracy", "localisation", "masks", "faithfulness", "bias", "stability"]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
GridMode = Literal["auto", "network", "windows"]


class Settings(BaseModel):
    """The settings of an evaluation. Equal settings, model and data give equal figures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    measures: tuple[MeasureName, ...] = ("accuracy", "bias")
    explained: int = Field(default=200, ge=1)
    """Number of images for masks, faithfulness, bias and stability, spread evenly over the data set."""
    grids: int = Field(default=100, ge=1)
    cells: int = Field(default=3, ge=2, le=10)
    """Images along one side of a grid."""
    grid_mode: GridMode = "auto"
    smooth: int | None = Field(default=None, ge=1)
    """Width of the box that maps are smoothed with; None: as in the paper, in proportion to the input."""
    quantile: float = Field(default=0.025, gt=0, le=1)
    """The share of pixels that count in the quantile variant of localisation."""
    patch: int = Field(default=1, ge=1)
    """Side of the squares that faithfulness flips."""
    shift: int = Field(default=4, ge=1)
    """Largest shift of stability in pixels."""
    mean_corrected: bool = False
    """Explain logit − mean of all logits."""
    seed: int = Field(default=42, ge=0, lt=1 << 32)

    @field_validator("measures")
    @classmethod
    def _accuracy_comes_first(cls, names: tuple[MeasureName, ...]) -> tuple[MeasureName, ...]:
        """Accuracy is always measured: the other measures need to know which images can be read and are right."""
        return tuple(name for name in MEASURES if name == "accuracy" or name in names)
