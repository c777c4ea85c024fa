"""One entry of the model registry: the network, its input, its labels, its weights, its published figures."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from bcos_sdk.labels import LabelSet, load_labels
from bcos_sdk.registry.architectures import ArchitectureConfig

__all__ = ["InputSpec", "ModelSpec", "PublishedFigures", "WeightsSource"]

Percentage = Annotated[float, Field(ge=0, le=100)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputSpec(_Entry):
    """Resize the shorter side, crop the centre, scale to [0, 1], append the complement 1 − x."""

    size: tuple[PositiveInt, PositiveInt]
    resize: PositiveInt | None
    crop: tuple[PositiveInt, PositiveInt] | None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    channels: Literal["rgb+complement"] = "rgb+complement"

    @model_validator(mode="after")
    def _crop_gives_the_size(self) -> InputSpec:
        if self.crop is not None and self.crop != self.size:
            raise ValueError(f"'crop' {self.crop} does not give 'size' {self.size}")
        return self


class WeightsSource(_Entry):
    """Where the published weights are, the first digits of their SHA-256, and on what terms."""

    url: str = Field(pattern=r"^https?://\S+$")
    sha256_prefix: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    licence: str

    @property
    def file_name(self) -> str:
        """The name of the file in the cache; no part of the address but its last can reach it."""
        return PurePosixPath(urlsplit(self.url).path).name


class PublishedFigures(_Entry):
    """What the authors report: accuracy in %, localisation score in %, number of parameters."""

    top1: Percentage | None = None
    top5: Percentage | None = None
    localisation: Percentage | None = None
    parameters: PositiveInt | None = None
    note: str | None = None


class ModelSpec(_Entry):
    """A model that can be built, and where possible loaded, by its name."""

    name: str
    description: str
    labels: LabelSet
    input: InputSpec
    architecture: ArchitectureConfig
    weights: WeightsSource | None = None
    published: PublishedFigures = PublishedFigures()

    @property
    def family(self) -> str:
        return self.architecture.family

    @property
    def class_names(self) -> tuple[str, ...]:
        return load_labels(self.labels)

    @model_validator(mode="after")
    def _one_label_per_class(self) -> ModelSpec:
        if len(self.class_names) != self.architecture.classes:
            raise ValueError(
                f"{self.architecture.classes} classes, but label set "
                f"'{self.labels}' has {len(self.class_names)} names"
            )
        return self

    @model_validator(mode="after")
    def _six_channels_in(self) -> ModelSpec:
        if self.architecture.channels != 6:
            raise ValueError(f"'rgb+complement' gives 6 channels, not {self.architecture.channels}")
        return self
