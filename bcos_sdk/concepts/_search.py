"""The search for concepts: two passes over the images, in constant memory."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bcos_sdk.bundle import LayerRecord
from bcos_sdk.client import Client
from bcos_sdk.concepts._directions import candidate_of, choose
from bcos_sdk.concepts._places import cell_of, position_of
from bcos_sdk.concepts._records import Concept, Concepts, Example, LayerConcepts
from bcos_sdk.concepts._state import Best, Chosen, Hit, LayerState, SearchState, Shape, State
from bcos_sdk.errors import ImagesFailedError, InputError
from bcos_sdk.images import source_name
from bcos_sdk.results import Failure

__all__ = ["OnFailure", "OnProgress", "check_arguments", "find_concepts"]

OnProgress = Callable[[str, int, int], None]
"""Called after each image with the name of the pass, the number of images done and their total."""

OnFailure = Callable[[Failure], None]
"""Called when an image fails."""

MOST_CANDIDATES = 200
"""Of so many images, those with the largest logits of the class, a position is a candidate for a direction."""
COUNTED = 50
"""The predicted classes of so many images are counted for each direction."""
_SECONDS_BETWEEN_SAVES = 5.0
_MOST_DIRECTIONS = 100
_MOST_EXAMPLES = 200


def find_concepts(
    client: Client,
    images: Sequence[str | os.PathLike[str]],
    *,
    layers: str | Iterable[str],
    target: int | str,
    directions: int = 6,
    examples: int = 9,
    state_file: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
    on_failure: OnFailure | None = None,
) -> Concepts:
    """Find the directions of inner layers that contribute most to a class, and the images that activate each most.

    Pass 1 predicts all images. Of those that the model takes for the class, the 200 with the largest logits give
    candidates: the activation at the position that adds most to the logit. Directions are chosen by contribution, with
    a limit on their cosines that fits the layer. Pass 2 computes the activations of all images and keeps the best of
    each direction. Images that give a direction are not among the examples of their layer if there are enough others.

    Images are paths, since they are read twice. Images that fail are in `failures`, and `on_failure` is called with
    each. If all fail, an `ImagesFailedError` has the failures as its `results`. With `state_file` a search that was
    interrupted goes on where it was; the file of a search with another model, images or arguments is an
    `OutputExistsError`. A damaged file is not used.
    """
    search = _Search(client, images, layers, target, directions, examples, on_progress, on_failure)
    state = State(None if state_file is None else Path(state_file), search.fresh_state(), search.shape)
    try:
        search.run(state)
    finally:
        state.save()
    return search.result(state.now)


class _Search:
    def __init__(
        self,
        client: Client,
        images: Sequence[str | os.PathLike[str]],
        layers: str | Iterable[str],
        target: int | str,
        directions: int,
        examples: int,
        on_progress: OnProgress | None,
        on_failure: OnFailure | None,
    ) -> None:
        for name, count, most in (("directions", directions, _MOST_DIRECTIONS), ("examples", examples, _MOST_EXAMPLES)):
            if not 1 <= count <= most:
                raise InputError(f"{name} is {count!r}, expected 1 to {most}", source=name, hint="Choose fewer.")
        self._client = client
        self._paths = [os.fsdecode(one) for one in images]
        self._layers = (layers,) if isinstance(layers, str) else tuple(layers)
        self._target = check_arguments(client, self._layers, target)
        known = {one.path: one for one in client.manifest.layer_records}
        self._records: list[LayerRecord] = [known[path] for path in self._layers]
        self._directions = directions
        self._examples = examples
        self._on_progress = on_progress or (lambda _name, _done, _total: None)
        self._on_failure = on_failure or (lambda _failure: None)

    def fresh_state(self) -> SearchState:
        arguments = (self._client.manifest.digest, self._layers, self._target, self._directions, self._examples)
        digest = hashlib.sha256(json.dumps(arguments).encode())
        for path in self._paths:
            digest.update(f"{os.path.abspath(path)}\n{_version_of(path)}\n".encode("utf-8", "surrogateescape"))  # noqa: PTH100
        return SearchState(key=digest.hexdigest(), confident=Best(most=MOST_CANDIDATES))

    @property
    def shape(self) -> Shape:
        """What a state of this search must fit to."""
        return Shape(len(self._paths), tuple((one.channels, prod(one.positions)) for one in self._records))

    def run(self, state: State) -> None:
        self._find_confident(state)
        if state.now.layers is None:
            if not state.now.confident.hits:
                raise self._no_image_of_the_class(state.now)
            state.now.layers = [self._choose(state.now, place) for place in range(len(self._layers))]
            state.save()
        self._find_examples(state)

    def _no_image_of_the_class(self, now: SearchState) -> ImagesFailedError | InputError:
        failed, total = len(now.failures), len(self._paths)
        if failed == total > 0:
            return ImagesFailedError(
                "the only image failed" if total == 1 else f"all {total:,} images failed",
                results=[now.failures[index] for index in sorted(now.failures)],
                hint="Check the paths of the images.",
            )
        return InputError(
            f"the model takes none of the images for {self._client.labels[self._target]!r}, so no direction can be "
            f"found: {total - failed:,} searched, {failed:,} failed",
            hint="Choose another class, or pass more images.",
        )

    def _note(self, now: SearchState, index: int, failure: Failure) -> None:
        now.failures[index] = failure
        self._on_failure(failure)

    def _find_confident(self, state: State) -> None:
        now = state.now
        todo = range(now.predicted_done, len(self._paths))
        results = self._client.predict_stream((self._paths[index] for index in todo), top_k=1)
        for index, result in self._saved("predict", state, zip(todo, results, strict=True)):
            if isinstance(result, Failure):
                self._note(now, index, result)
            elif result.classes[0].index == self._target:
                now.confident.add(Hit(value=result.classes[0].logit, index=index))
                now.predicted += 1
            now.predicted_done = index + 1

    def _choose(self, now: SearchState, place: int) -> LayerState:
        hits = now.confident.hits
        results = self._client.explain_features_stream(
            (self._paths[hit.index] for hit in hits), layer=self._layers[place], target=self._target, top_k=1
        )
        candidates = []
        for done, (hit, result) in enumerate(zip(hits, results, strict=True), 1):
            if isinstance(result, Failure):
                self._note(now, hit.index, result)
            elif (candidate := candidate_of(hit.index, result)) is not None:
                candidates.append(candidate)
            self._on_progress(f"directions of {self._layers[place]}", done, len(hits))
        chosen, limit = choose(candidates, self._directions)
        most = max(COUNTED, self._examples) + self._directions
        return LayerState(
            candidates=len(candidates),
            cosine_limit=limit,
            chosen=[
                Chosen(
                    vector=one.vector.astype(np.float32).tolist(),
                    index=one.index,
                    position=one.position,
                    contribution=one.contribution,
                    logit=one.logit,
                    best=Best(most=most),
                )
                for one in chosen
            ],
        )

    def _find_examples(self, state: State) -> None:
        now = state.now
        assert now.layers is not None
        if not any(layer.chosen for layer in now.layers):
            raise InputError(
                f"no position of {', '.join(self._layers)} adds to the logit of {self._client.labels[self._target]!r} "
                f"in any of {len(now.confident.hits)} images, so no direction can be found",
                hint="Choose another layer or class.",
            )
        active = [place for place, layer in enumerate(now.layers) if layer.chosen]
        vectors = {place: now.vectors(place) for place in active}
        todo = [index for index in range(now.features_done, len(self._paths)) if index not in now.failures]
        paths = (self._paths[index] for index in todo)
        results = self._client.features_stream(paths, layers=[self._layers[place] for place in active])
        for index, result in self._saved("features", state, zip(todo, results, strict=True)):
            if isinstance(result, Failure):
                self._note(now, index, result)
            else:
                label = result.prediction.classes[0].label
                for place, features in zip(active, result.layers, strict=True):
                    values = vectors[place] @ features.arrays["activations"]
                    where = values.argmax(1)
                    for one, row, position in zip(now.layers[place].chosen, values, where, strict=True):
                        if np.isfinite(row[position]):
                            value = float(row[position])
                            one.best.add(Hit(value=value, index=index, position=int(position), predicted=label))
            now.features_done = index + 1

    def _saved(self, name: str, state: State, results: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yield the results, report progress, and save the state every few seconds."""
        saved = time.monotonic()
        for index, result in results:
            yield index, result
            self._on_progress(name, index + 1, len(self._paths))
            if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                state.save()
                saved = time.monotonic()

    def result(self, now: SearchState) -> Concepts:
        assert now.layers is not None
        return Concepts(
            model=self._client.manifest.model.name,
            digest=self._client.manifest.digest,
            input=self._client.manifest.input.size,
            target=self._target,
            label=self._client.labels[self._target],
            images=len(self._paths) - len(now.failures),
            predicted=now.predicted,
            layers=tuple(
                LayerConcepts(
                    layer=record.path,
                    partial=not record.complete,
                    candidates=layer.candidates,
                    cosine_limit=layer.cosine_limit,
                    concepts=tuple(self._concept(record, one, layer) for one in layer.chosen),
                )
                for record, layer in zip(self._records, now.layers, strict=True)
            ),
            failures=tuple(now.failures[index] for index in sorted(now.failures)),
        )

    def _concept(self, record: LayerRecord, chosen: Chosen, layer: LayerState) -> Concept:
        givers = {one.index for one in layer.chosen}
        others = [hit for hit in chosen.best.hits if hit.index not in givers]
        hits = others if len(others) >= self._examples else chosen.best.hits
        counts = Counter(hit.predicted for hit in hits[:COUNTED])
        return Concept(
            vector=tuple(chosen.vector),
            source=self._source(chosen.index),
            position=position_of(record, chosen.position),
            contribution=chosen.contribution,
            logit=chosen.logit,
            class_counts=dict(counts.most_common()),
            counted=counts.total(),
            examples=tuple(
                Example(
                    source=self._source(hit.index),
                    predicted=hit.predicted,
                    value=hit.value,
                    position=position_of(record, hit.position),
                    cell=cell_of(record, hit.position, self._client.manifest.input.size),
                )
                for hit in hits[: self._examples]
            ),
        )

    def _source(self, index: int) -> str:
        return source_name(self._paths[index], index)


def check_arguments(client: Client, layers: Sequence[str], target: int | str) -> int:
    """The index of the class. Raise an error if there is no such class or layer."""
    client.features_stream([], layers=layers)
    if client.manifest.map is not None:
        raise InputError(
            f"{client.manifest.model.name} returns a map {list(client.manifest.map)}, expected one value per class",
            source=client.manifest.model.name,
            hint="Export a module that takes the mean of the map over its pixels.",
        )
    labels = client.labels
    if isinstance(target, str) and labels.count(target) == 1:
        return labels.index(target)
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(labels):
        return target
    raise InputError(
        f"the class is {target!r}, expected a label of the model or an index from 0 to {len(labels) - 1}",
        source="target",
        hint=_class_hint(target, labels),
    )


def _class_hint(target: object, labels: Sequence[str]) -> str:
    """Which label was meant; the first labels if none is similar."""
    if isinstance(target, str) and (same := [index for index, label in enumerate(labels) if label == target]):
        return f"Several classes have this label: {', '.join(map(str, same))}. Use an index."
    by_lower = {label.casefold(): label for label in labels}
    near = get_close_matches(target.casefold(), by_lower, n=3) if isinstance(target, str) else []
    if near:
        return f"Did you mean {' or '.join(by_lower[one] for one in near)}?"
    return f"The first labels are {', '.join(labels[:10])}."


def _version_of(path: str) -> str:
    """Size and time of the last change; a file that was replaced is another image."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a path may be no valid text
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"
