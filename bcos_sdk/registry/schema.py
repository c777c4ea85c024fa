"""One entry of the model registry: the network, its input, its labels, its weights, its published figures."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    model_validator,
)

from bcos_sdk.contract import CHANNELS, InputSpec
from bcos_sdk.registry._labels import LabelSet, load_labels
from bcos_sdk.registry.architectures import ArchitectureConfig

__all__ = ["ModelSpec", "PackagedWeights", "PublishedFigures", "WeightsSource"]

Percentage = Annotated[float, Field(ge=0, le=100)]


def _labels_kind(labels: Any) -> str:
    return "set" if isinstance(labels, str) else "names"


Labels = Annotated[
    Annotated[LabelSet, Tag("set")] | Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Tag("names")],
    Discriminator(_labels_kind),
]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _names_a_file(url: str) -> str:
    """An http(s) address whose last part is fit to be a file's name on any machine."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname or not re.fullmatch(r"[!-~]+", url):
        raise ValueError("must be an http(s) address with a host, written in ASCII")
    if address.port == 0:  # reading the port also refuses one that is no number or too large
        raise ValueError("there is no port 0")
    name = address.path.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not name.strip("."):
        raise ValueError("its last part must be a file's name: letters, digits, '.', '_' and '-'")
    return url


class WeightsSource(_Entry):
    """Where the published weights are, the first digits of their SHA-256, and on what terms."""

    url: Annotated[str, AfterValidator(_names_a_file)]
    sha256_prefix: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    licence: str

    @property
    def file_name(self) -> str:
        """The name of the file in the cache, `<stem>-<hash prefix><suffix>`, as published files have it.

        Two sources share a name only if they promise the same contents.
        """
        name = PurePosixPath(urlsplit(self.url).path)
        if name.stem.endswith(f"-{self.sha256_prefix}"):
            return name.name
        return f"{name.stem}-{self.sha256_prefix}{name.suffix}"


class PackagedWeights(_Entry):
    """Weights that ship with this package: a file in `bcos_sdk/builtin/`, its hash, and on what terms."""

    file: str = Field(pattern=r"^[A-Za-z0-9._-]+\.safetensors$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str


class PublishedFigures(_Entry):
    """What the authors report: accuracy and localisation score in %.

    `parameters` is no report but a count: that of the network as this package builds it.
    """

    top1: Percentage | None = None
    top5: Percentage | None = None
    localisation: Percentage | None = None
    parameters: PositiveInt | None = None
    note: str | None = None


class ModelSpec(_Entry):
    """A model that can be built, and where possible loaded, by its name."""

    name: str
    description: str
    labels: Labels
    input: InputSpec
    architecture: ArchitectureConfig
    weights: WeightsSource | None = None
    packaged: PackagedWeights | None = None
    published: PublishedFigures = PublishedFigures()

    @property
    def family(self) -> str:
        return self.architecture.family

    @property
    def dataset(self) -> str:
        """The name of the label set, or "own" where the entry lists its labels itself."""
        return self.labels if isinstance(self.labels, str) else "own"

    @property
    def class_names(self) -> tuple[str, ...]:
        return load_labels(self.labels) if isinstance(self.labels, str) else self.labels

    @model_validator(mode="after")
    def _one_label_per_class(self) -> ModelSpec:
        classes, names = self.architecture.classes, len(self.class_names)
        if names != classes:
            raise ValueError(f"{classes} classes, but 'labels' ({self.dataset}) has {names} names")
        return self

    @model_validator(mode="after")
    def _the_network_takes_the_size(self) -> ModelSpec:
        step = self.architecture.size_step
        if any(side % step for side in self.input.size):
            raise ValueError(f"'size' {self.input.size} is not a multiple of the network's patch, {step}")
        return self

    @model_validator(mode="after")
    def _six_channels_in(self) -> ModelSpec:
        if self.architecture.channels != CHANNELS:
            raise ValueError(f"'rgb+complement' gives {CHANNELS} channels, not {self.architecture.channels}")
        return self
