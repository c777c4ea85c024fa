"""Run the measures over a data set. Finished items are kept in a record, from which an interrupted run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from bcos_sdk.errors import InputError
from bcos_sdk.evaluation import accuracy, bias, faithfulness, localisation, masks, stability
from bcos_sdk.evaluation._grid_maps import GridMaps
from bcos_sdk.evaluation._items import Figures, Item
from bcos_sdk.evaluation._settings import MeasureName, Settings
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Dataset, Sample
from bcos_sdk.evaluation.grids import Grid, choose_grids

__all__ = ["Memory", "Record", "Run", "ShowProgress", "check_masks"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Task = TypeVar("Task", bound=_Named)
ShowProgress = Callable[[str, int, int], "AbstractContextManager[Callable[[], None]]"]
"""(measure, items in all, items of an earlier run) → a context whose value is called after each item."""


class Record(Protocol):
    """Keeps finished items by key."""

    def get(self, key: str) -> Item | None: ...
    def put(self, key: str, item: Item) -> None: ...


class Memory(dict[str, Item]):
    """A record that lasts as long as the process."""

    def put(self, key: str, item: Item) -> None:
        self[key] = item


def check_masks(dataset: Dataset, settings: Settings) -> None:
    """Raise an `InputError` if masks are to be measured and there are none."""
    if "masks" in settings.measures and not dataset.has_masks:
        raise InputError(
            "the data set has no masks",
            source="masks",
            hint="Pass --masks DIR, a CSV file with a third column, or Oxford-IIIT Pet with its trimaps.",
        )


def _silent(_measure: str, _total: int, _done: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


@dataclass
class Run:
    """Measures one model. `items` has the scores of every image or grid by measure.

    `of` is the run of the model with which this one is compared: its images and grids are used again.
    """

    subject: Subject
    dataset: Dataset
    settings: Settings
    grid_maps: GridMaps | Callable[[], GridMaps] | None = None
    """How grids are explained. A function is called when it is known that there are grids."""
    record: Record = field(default_factory=Memory)
    show: ShowProgress = _silent
    skip_without_grids: bool = False
    """Leave localisation out, with a note, if the images are not enough for a grid. Otherwise this is an error."""
    other: Subject | None = None
    """Stability also compares with the maps of this model or device."""
    of: Run | None = None
    items: dict[MeasureName, list[Item]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What was not measured, and why."""
    _grids: list[Grid] | None = None
    _maps: GridMaps | None = None

    def finish(self) -> None:
        """Measure everything that the settings name."""
        steps: dict[MeasureName, Callable[[], list[Item]]] = {
            "accuracy": self._accuracy,
            "localisation": self._localisation,
            "masks": self._masks,
            "faithfulness": self._faithfulness,
            "bias": self._bias,
            "stability": self._stability,
        }
        check_masks(self.dataset, self.settings)
        for name in self.settings.measures:
            if name != "localisation" or self._has_grids():
                self.items[name] = steps[name]()

    def figures(self) -> dict[MeasureName, Figures]:
        """The figures of every measure that has at least one item with scores."""
        summaries: dict[MeasureName, Callable[[list[Item]], Figures]] = {
            "accuracy": lambda items: accuracy.summarise(items, self.subject.labels),
            "localisation": lambda items: localisation.summarise(items, self.settings.cells),
            "masks": masks.summarise,
            "faithfulness": faithfulness.summarise,
            "bias": bias.summarise,
            "stability": lambda items: stability.summarise(items, self.settings.shift),
        }
        scored = {name: [item for item in items if item.failure is None] for name, items in self.items.items()}
        return {name: summaries[name](items) for name, items in scored.items() if items}

    @property
    def failures(self) -> dict[MeasureName, list[Item]]:
        found = {name: [item for item in items if item.failure is not None] for name, items in self.items.items()}
        return {name: items for name, items in found.items() if items}

    @property
    def grids(self) -> list[Grid]:
        """The grids of the pointing game, chosen from the classified images of the model."""
        if self.of is not None:
            return self.of.grids
        if self._grids is None:
            one = self.settings
            self._grids = choose_grids(self.items["accuracy"], one.grids, one.cells, one.seed)
        return self._grids

    def _has_grids(self) -> bool:
        try:
            return bool(self.grids)
        except InputError as error:
            if not self.skip_without_grids:
                raise
            if self.of is None:
                self.notes.append(f"localisation was not measured: {error.message}")
            return False

    @property
    def maps(self) -> GridMaps:
        """How grids are explained."""
        if self._maps is None:
            assert self.grid_maps is not None, "localisation needs `grid_maps`"
            self._maps = self.grid_maps() if callable(self.grid_maps) else self.grid_maps
        return self._maps

    @property
    def smooth(self) -> int:
        side = min(self.subject.client.manifest.input.size)
        return self.settings.smooth or localisation.smoothing_window(side)

    def _accuracy(self) -> list[Item]:
        samples = self.dataset.samples
        return self.each("accuracy", samples, lambda rest: accuracy.classify(self.subject, rest))

    def _localisation(self) -> list[Item]:
        samples, top, grids, maps = self.dataset.samples, self.settings.quantile, self.grids, self.maps
        key = "localisation" if maps.mode == "network" else f"localisation by {maps.mode}"  # --resume must not mix them

        def play(rest: Sequence[Grid]) -> Iterator[Item]:
            return localisation.play(self.subject, samples, rest, maps, smooth=self.smooth, top=top)

        return self.each(key, grids, play)

    def _masks(self) -> list[Item]:
        samples = self._chosen(lambda sample: sample.mask is not None)
        return self.each("masks", samples, lambda rest: masks.measure(self.subject, rest, smooth=self.smooth))

    def _faithfulness(self) -> list[Item]:
        one = self.settings
        return self.each(
            "faithfulness",
            self._chosen(),
            lambda rest: faithfulness.measure(self.subject, rest, patch=one.patch, seed=one.seed),
        )

    def _bias(self) -> list[Item]:
        return self.each("bias", self._chosen(), lambda rest: bias.measure(self.subject, rest))

    def _stability(self) -> list[Item]:
        def measure(rest: Sequence[Sample]) -> Iterator[Item]:
            return stability.measure(self.subject, rest, largest=self.settings.shift, other=self.other)

        return self.each("stability", self._chosen(), measure)

    def _chosen(self, condition: Callable[[Sample], bool] = lambda _sample: True) -> list[Sample]:
        """Readable images that are spread evenly over the data set, so that all classes of a sorted one appear."""
        classified = self.items["accuracy"] if self.of is None else self.of.items["accuracy"]
        readable = [
            sample
            for sample, item in zip(self.dataset.samples, classified, strict=True)
            if item.failure is None and condition(sample)
        ]
        count = min(self.settings.explained, len(readable))
        return [readable[int(place)] for place in np.linspace(0, len(readable) - 1, count)] if count else []

    def each(self, measure: str, tasks: Sequence[Task], run: Callable[[Sequence[Task]], Iterator[Item]]) -> list[Item]:
        """The items of all tasks in their order. What the record has is not run again, unless it failed."""
        found = {task.name: self.record.get(f"{measure}/{task.name}") for task in tasks}
        rest = [task for task in tasks if (item := found[task.name]) is None or item.failure is not None]
        with self.show(measure, len(tasks), len(tasks) - len(rest)) as step:
            for item in run(rest) if rest else ():
                self.record.put(f"{measure}/{item.name}", item)
                found[item.name] = item
                step()
        return [item for item in found.values() if item is not None]
