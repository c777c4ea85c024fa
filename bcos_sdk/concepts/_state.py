"""The state of a search, bounded in size. It is written to a file now and then, so that a search can be continued."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from bcos_sdk._files import output_file
from bcos_sdk._logs import log
from bcos_sdk._untrusted import read_bounded
from bcos_sdk.errors import OutputExistsError
from bcos_sdk.results import Failure

__all__ = ["Best", "Chosen", "Hit", "LayerState", "SearchState", "Shape", "State"]

_LARGEST = 1 << 30


class Hit(BaseModel):
    """How strongly an image activates something, where, and what the model takes the image for."""

    value: float
    index: int
    position: int = 0
    predicted: str = ""


class Best(BaseModel):
    """The `most` hits with the largest values, largest first; of equal values the first image."""

    most: int
    hits: list[Hit] = []

    def add(self, hit: Hit) -> None:
        """Adding a hit of the same image again changes nothing: a search may be interrupted at any time."""
        full = len(self.hits) >= self.most
        if (full and hit.value <= self.hits[-1].value) or any(one.index == hit.index for one in self.hits):
            return
        insort(self.hits, hit, key=lambda one: (-one.value, one.index))
        del self.hits[self.most :]


class Chosen(BaseModel):
    """A direction that was chosen, and the images that activate it most so far."""

    vector: list[float]
    index: int
    position: int
    contribution: float
    logit: float
    best: Best


class LayerState(BaseModel):
    """The directions of one layer."""

    candidates: int
    cosine_limit: float
    chosen: list[Chosen]


class SearchState(BaseModel):
    """What is known after a part of a search."""

    key: str
    """The hash of everything that decides the result."""
    predicted_done: int = 0
    """The number of images of the first pass that are done."""
    predicted: int = 0
    """How many of them the model takes for the class."""
    confident: Best
    """The images with the largest logits among these."""
    layers: list[LayerState] | None = None
    """None before the directions are chosen."""
    features_done: int = 0
    """The number of images of the second pass that are done."""
    failures: dict[int, Failure] = {}

    def vectors(self, layer: int) -> Any:
        """[directions, channels] of the layer."""
        assert self.layers is not None
        return np.array([one.vector for one in self.layers[layer].chosen], np.float32)


@dataclass(frozen=True)
class Shape:
    """The number of images, and channels and positions of each layer."""

    images: int
    layers: tuple[tuple[int, int], ...]

    def fits(self, state: SearchState) -> bool:
        """Whether every index of the state is in range and every number finite."""
        seen = [(state.confident, 1)]
        vectors: list[tuple[list[float], int]] = []
        if state.layers is not None:
            if len(state.layers) != len(self.layers):
                return False
            for layer, (channels, positions) in zip(state.layers, self.layers, strict=True):
                seen += [(one.best, positions) for one in layer.chosen]
                vectors += [(one.vector, channels) for one in layer.chosen]
                places = [(one.index, one.position, positions) for one in layer.chosen]
                if not all(0 <= index < self.images and 0 <= place < most for index, place, most in places):
                    return False
        hits = [(hit, positions) for best, positions in seen for hit in best.hits]
        done = (state.predicted_done, state.features_done)
        return (
            all(0 <= one <= self.images for one in done)
            and all(0 <= index < self.images for index in state.failures)
            and all(0 <= hit.index < self.images and 0 <= hit.position < most for hit, most in hits)
            and all(math.isfinite(hit.value) for hit, _ in hits)
            and all(len(one) == channels and all(map(math.isfinite, one)) for one, channels in vectors)
        )


class State:
    """A state in a file, or only in memory if there is no file. A damaged file is not used."""

    def __init__(self, path: Path | None, fresh: SearchState, shape: Shape) -> None:
        self._path = path
        self.now = fresh
        if path is not None and path.exists():
            try:
                found = SearchState.model_validate_json(read_bounded(path, _LARGEST))
            except (OSError, ValueError):
                log.warning("%s is damaged: the search begins again", path)
                return
            if found.key != fresh.key:
                raise OutputExistsError(
                    f"{path} is of a search with another model, other images or other arguments",
                    source=str(path),
                    hint="Repeat the command of that search to continue it, or begin again: --overwrite, or without "
                    "the file.",
                )
            if shape.fits(found):
                self.now = found
            else:
                log.warning("%s is damaged: the search begins again", path)

    def save(self) -> None:
        if self._path is not None:
            with output_file(self._path) as partial:
                partial.write_text(self.now.model_dump_json(), "utf-8")
