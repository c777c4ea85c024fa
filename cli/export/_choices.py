"""What the options of `export` say about the model, and how they change a registry entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from bcos_sdk.cli.export._assumptions import Assumption, assumed_input
from bcos_sdk.contract import InputSpec, Interpolation
from bcos_sdk.errors import InputError
from bcos_sdk.registry import ModelSpec, derive, read_labels

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices:
    """The options that describe the model; None where an option was not given."""

    weights: Path | None
    random_weights: bool
    ema: bool
    weights_key: str | None
    classes: int | None
    labels: Path | None
    input_size: tuple[int, int] | None
    resize: int | None
    no_resize: bool
    interpolation: Interpolation | None
    probability: str | None
    channels: str | None = None
    """A name of `Channels`, or a number: then the network takes arrays with so many channels."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Keys of the architecture and their values."""

    @cached_property
    def label_names(self) -> tuple[str, ...] | None:
        """The labels of the file. Raises if it has another number of labels than `--classes`."""
        if self.labels is None:
            return None
        names = read_labels(self.labels)
        if self.classes not in (None, len(names)):
            raise click.UsageError(f"--classes is {self.classes}, but {self.labels} has {len(names)} labels")
        return names

    @property
    def stated_keys(self) -> set[str]:
        """The keys of the architecture that the options state, also those inside a mapping: norm={eps: 1e-6}."""
        inside = {f"{key}.{part}" for key, value in self.settings.items() if isinstance(value, dict) for part in value}
        return {*self.settings, *inside}

    def check(self, spec: ModelSpec | None) -> None:
        """Raise if the options contradict each other or the registry entry; None stands for a factory."""
        if spec is None:
            _ = self.label_names
        else:
            self.applied_to(spec)

    def check_labels(self, classes: int, source: object) -> None:
        """Raise if the file of labels does not have one label for each of the classes of `source`."""
        if self.label_names is not None and len(self.label_names) != classes:
            raise InputError(
                f"{self.labels} has {len(self.label_names)} labels, but {source} has {classes} classes",
                source=str(self.labels),
                hint="Write one label per class into the file, in class order.",
            )

    def applied_to(self, spec: ModelSpec) -> ModelSpec:
        """The spec with these choices. Raises if they contradict the weights that the registry names."""
        try:
            changed = derive(spec, input_spec=self.input_of(spec.input), settings=self.settings)
        except InputError as error:
            raise click.UsageError(str(error)) from error
        names = self.label_names
        if self.weights is None and not self.random_weights and not spec.classes_open:
            have = changed.architecture.classes
            counts = {"--classes": self.classes, str(self.labels): None if names is None else len(names)}
            for origin, count in counts.items():
                if count not in (None, have):
                    raise click.UsageError(
                        f"{origin}: {count} classes, but the weights of {spec.name} have {have}. "
                        "Pass the weights of your own model: --weights FILE"
                    )
        return changed

    def input_of(self, base: InputSpec) -> InputSpec:
        """The preprocessing: that of the base with the options applied."""
        size = self.input_size or base.size
        if self.channels is not None and self.channels.isdecimal():
            if self.resize is not None or self.interpolation is not None:
                raise click.UsageError(f"--channels {self.channels}: arrays are not resized, leave --resize out")
            return InputSpec.arrays(int(self.channels), size)
        spec = base if size == base.size else base.scaled_to(size)
        if self.no_resize:
            spec = InputSpec.exact(size)
        elif self.resize is not None:
            if self.resize < max(size):
                raise click.UsageError(f"--resize {self.resize} is smaller than the crop {size[0]}x{size[1]}")
            spec = InputSpec.for_photographs(size, self.resize)
        channels = self.channels or base.channels
        return spec.model_copy(update={"interpolation": self.interpolation or base.interpolation, "channels": channels})

    def assumed_input(self, spec: InputSpec) -> list[Assumption]:
        """The steps from a photograph to a probability that no option states."""
        return assumed_input(
            spec,
            size_given=self.input_size is not None,
            resize_given=self.no_resize or self.resize is not None,
            interpolation_given=self.interpolation is not None,
            probability_given=self.probability is not None,
        )
