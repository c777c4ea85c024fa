"""One entry of the model registry: network, input, labels, weights and published figures."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args
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

from bcos_sdk.contract import InputSpec
from bcos_sdk.registry.architectures import ArchitectureConfig

__all__ = [
    "LabelSet",
    "LocalWeights",
    "ModelSpec",
    "PackagedWeights",
    "PublishedFigures",
    "WeightsSource",
    "load_labels",
]

LabelSet = Literal["imagenet", "cifar10", "pets37"]

_DIGITS = 64
_PREFIX = 10  # the digits of the hash in the name of a file, as published files have them

Percentage = Annotated[float, Field(ge=0, le=100)]


@cache
def load_labels(name: LabelSet) -> tuple[str, ...]:
    """Return the class names of a label set, in class order: line i of `labels/<name>.txt` names class i.

    "imagenet" has the short English names of ILSVRC-2012, as in the public package `bcos` 0.1.3.
    """
    assert name in get_args(LabelSet)
    return tuple(files(__package__).joinpath("labels").joinpath(f"{name}.txt").read_text("utf-8").splitlines())


def _labels_kind(labels: Any) -> str:
    return "set" if isinstance(labels, str) else "names"


Labels = Annotated[
    Annotated[LabelSet, Tag("set")] | Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Tag("names")],
    Discriminator(_labels_kind),
]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _names_a_file(url: str) -> str:
    """Return the URL if it is http(s) and ends with a file name that is valid on every platform, else raise."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname or not re.fullmatch(r"[!-~]+", url):
        raise ValueError("must be an http(s) URL with a host, in ASCII")
    if address.port == 0:  # `port` itself raises ValueError if it is not a number or too large
        raise ValueError("the port must not be 0")
    name = address.path.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not name.strip("."):
        raise ValueError("the last part must be a file name of letters, digits, '.', '_' and '-'")
    return url


class WeightsSource(_Entry):
    """URL of the published weights, their SHA-256 or its first digits, their size if it is known, and their licence."""

    url: Annotated[str, AfterValidator(_names_a_file)]
    sha256_prefix: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    """The first digits of the SHA-256, as many as the publisher states. It may be left out if `sha256` is given."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    size: PositiveInt | None = None
    """Bytes of the file. A download that is larger is cut off."""
    licence: str

    @model_validator(mode="before")
    @classmethod
    def _prefix_from_hash(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(full := fields.get("sha256"), str):
            return {"sha256_prefix": full[:_PREFIX]} | fields
        return fields

    @model_validator(mode="after")
    def _one_hash(self) -> WeightsSource:
        if self.sha256 is not None and not self.sha256.startswith(self.sha256_prefix):
            raise ValueError(f"'sha256' does not begin with 'sha256_prefix' {self.sha256_prefix}")
        return self

    @property
    def full_sha256(self) -> str | None:
        """The whole SHA-256; None if the publisher states only its first digits."""
        return self.sha256 or (self.sha256_prefix if len(self.sha256_prefix) == _DIGITS else None)

    @property
    def file_name(self) -> str:
        """The file name in the cache: `<stem>-<hash prefix><suffix>`, as published files are named.

        Two sources have the same name only if they have the same hash prefix.
        """
        name = PurePosixPath(urlsplit(self.url).path)
        if name.stem.endswith(f"-{self.sha256_prefix}"):
            return name.name
        return f"{name.stem}-{self.sha256_prefix}{name.suffix}"


class LocalWeights(_Entry):
    """A weights file of your own. In a registry file its path is relative to that file."""

    file: Path
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


def _weights_kind(weights: Any) -> str:
    names_a_file = "file" in weights if isinstance(weights, dict) else isinstance(weights, LocalWeights)
    return "local" if names_a_file else "published"


Weights = Annotated[
    Annotated[WeightsSource, Tag("published")] | Annotated[LocalWeights, Tag("local")], Discriminator(_weights_kind)
]


class PackagedWeights(_Entry):
    """Weights that are part of this package: a file in `bcos_sdk/builtin/`, its SHA-256 and its licence."""

    file: str = Field(pattern=r"^[A-Za-z0-9._-]+\.safetensors$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str


class PublishedFigures(_Entry):
    """Accuracy and localisation score in %, as reported by the authors.

    `parameters` is counted on the network that this package builds.
    """

    top1: Percentage | None = None
    top5: Percentage | None = None
    localisation: Percentage | None = None
    parameters: PositiveInt | None = None
    note: str | None = None


class ModelSpec(_Entry):
    """A model that can be built by its name, and loaded if weights are known."""

    name: str
    base: str | None = None
    """The built-in model whose architecture and input an entry of your own changes."""
    description: str = ""
    labels: Labels | None = None
    """A label set, or the name of each class; None if the classes have no names."""
    input: InputSpec
    architecture: ArchitectureConfig
    weights: Weights | None = None
    classes_open: bool = False
    """Whether the number of classes is that of the weights file: an entry of your own states neither it nor labels."""
    packaged: PackagedWeights | None = None
    published: PublishedFigures = PublishedFigures()

    @property
    def family(self) -> str:
        return self.architecture.family

    @property
    def dataset(self) -> str:
        """The name of the label set, or "own" if the entry lists its labels or has none."""
        return self.labels if isinstance(self.labels, str) else "own"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each class; None if the classes have no names."""
        return load_labels(self.labels) if isinstance(self.labels, str) else self.labels

    @property
    def published_weights(self) -> WeightsSource | None:
        return self.weights if isinstance(self.weights, WeightsSource) else None

    @property
    def local_weights(self) -> LocalWeights | None:
        return self.weights if isinstance(self.weights, LocalWeights) else None

    @model_validator(mode="after")
    def _one_label_per_class(self) -> ModelSpec:
        classes, names = self.architecture.classes, self.class_names
        if names is not None and len(names) != classes:
            raise ValueError(f"the network has {classes} classes, but 'labels' ({self.dataset}) has {len(names)} names")
        return self

    @model_validator(mode="after")
    def _the_network_takes_the_size(self) -> ModelSpec:
        step = self.architecture.size_step
        if any(side % step for side in self.input.size):
            raise ValueError(f"'size' {self.input.size} is not a multiple of the patch size {step}")
        return self

    @model_validator(mode="after")
    def _the_network_takes_the_channels(self) -> ModelSpec:
        taken, depth = self.architecture.channels, self.input.depth
        if taken != depth:
            raise ValueError(f"'channels' must be {depth} for {self.input.channels!r}, got {taken}")
        return self
