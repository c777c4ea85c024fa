"""Calls about inner layers: which layer, which direction and which position, and the results of their graphs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import LayerRecord, Manifest
from bcos_sdk.client._assemble import Assembler
from bcos_sdk.contract import (
    LARGEST_POSITION,
    FeatureOutputs,
    LayerOutputs,
    RelayOutputs,
    certificate_sum,
    layer_certificate_scale,
    mean_position,
)
from bcos_sdk.errors import InferenceError, InputError, UnknownLayerError, shown
from bcos_sdk.images import LoadedImage
from bcos_sdk.results import (
    Completeness,
    Feature,
    FeatureExplanation,
    Features,
    LayerExplanation,
    LayerFeatures,
    Target,
    feature_sum,
)

__all__ = [
    "Direction",
    "LayerQuery",
    "Position",
    "feature_explanation",
    "features_of",
    "find_layer",
    "find_layers",
    "layer_explanation",
    "layer_queries",
    "one_per_image",
]

Direction: TypeAlias = "int | npt.ArrayLike"
"""A channel, or a vector with one number per channel as an array."""
Position: TypeAlias = 'int | Sequence[int] | Literal["max", "mean"]'
"""(y, x) of a map, the index of a token, "max" for the largest value, "mean" over all positions."""


@dataclass(frozen=True)
class LayerQuery:
    """What to explain of a layer: the index of the layer, the encoded position, and the direction."""

    layer: int
    position: int
    direction: npt.NDArray[np.float32]
    channel: int | None


def find_layer(manifest: Manifest, layer: Any) -> int:
    """The index of the layer of this path."""
    known = [one.path for one in manifest.layer_records]
    if layer in known:
        return known.index(layer)
    if not known:
        raise UnknownLayerError(
            f"{manifest.model.name} has no graphs of inner layers",
            source=shown(layer, quote=False),
            hint="Export the model with --layers PATH,…: `bcos-sdk layers MODEL` lists the paths.",
        )
    raise UnknownLayerError.among(str(layer), known, f"The layers of this bundle are {', '.join(known)}.")


def find_layers(manifest: Manifest, layers: Any) -> tuple[int, ...]:
    """The indices of layers that are given by one path, by several paths, or by None for all."""
    if layers is None:
        layers = [one.path for one in manifest.layer_records] or [None]
    paths = [layers] if isinstance(layers, str) or not isinstance(layers, Iterable) else list(layers)
    if not paths or len(set(map(str, paths))) < len(paths):
        known = ", ".join(one.path for one in manifest.layer_records)
        raise InputError(
            f"layers is {shown(layers)}, expected at least one path, and paths that differ",
            source="layers",
            hint=f"The layers of this bundle are {known}." if known else "This bundle has none.",
        )
    return tuple(find_layer(manifest, path) for path in paths)


def layer_queries(
    manifest: Manifest, layer: Any, direction: Any, position: Any, images: int | None
) -> Iterator[LayerQuery]:
    """One query per image: the same for all, or one of each list. Wrong ones raise an `InputError` now."""
    index = find_layer(manifest, layer)
    record = manifest.layer_records[index]
    vectors = _listed(direction, images, "direction")
    places = _listed(position, images, "position")
    if vectors is None and places is None:
        return repeat(_query(record, index, direction, position))
    count = len(vectors if vectors is not None else places or ())
    if None not in (vectors, places) and len(vectors or ()) != len(places or ()):
        raise InputError("there are not as many directions as positions", hint="Pass one of each for each image.")
    return iter(
        [
            _query(record, index, vectors[i] if vectors is not None else direction, places[i] if places else position)
            for i in range(count)
        ]
    )


def _listed(value: Any, images: int | None, name: str) -> list[Any] | None:
    """The values if there is one for each image: a list, or an array with one more axis; None if it is one value."""
    if not isinstance(value, list) and not (isinstance(value, np.ndarray) and value.ndim == 2):
        return None
    listed = list(value)
    if images is not None and len(listed) != images:
        raise InputError(
            f"the list {name} has {len(listed)} entries for {images} images",
            source=name,
            hint="A list has one entry for each image. Pass a vector as an array, and a position as a tuple.",
        )
    return listed


def _query(record: LayerRecord, index: int, direction: Any, position: Any) -> LayerQuery:
    channel: int | None = None
    try:
        channel = operator.index(direction)
    except TypeError:
        try:
            vector = np.asarray(direction, np.float32)
        except (TypeError, ValueError):
            vector = np.empty(0, np.float32)
        if vector.shape != (record.channels,) or not np.isfinite(vector).all():
            raise InputError(
                f"direction is {shown(direction, most=60)}, expected a channel or a vector of {record.channels} finite "
                "numbers",
                source="direction",
                hint=f"{record.path} has the channels 0 to {record.channels - 1}.",
            ) from None
    else:
        if isinstance(direction, bool) or not 0 <= channel < record.channels:
            raise InputError(
                f"{record.path} has no channel {shown(direction)}",
                source="direction",
                hint=f"Channels are 0 to {record.channels - 1}.",
            )
        vector = np.zeros(record.channels, np.float32)
        vector[channel] = 1
    return LayerQuery(index, _encoded(record, position), vector, channel)


def _encoded(record: LayerRecord, position: Any) -> int:
    count = prod(record.positions)
    if isinstance(position, str) and position in ("max", "mean"):
        return LARGEST_POSITION if position == "max" else mean_position(count)
    try:
        place = [operator.index(position)] if np.ndim(position) == 0 else [operator.index(one) for one in position]
    except TypeError:
        place = [-1]
    sides = record.positions
    if len(place) != len(sides) or not all(0 <= one < side for one, side in zip(place, sides, strict=True)):
        expected = " × ".join(map(str, sides)) or "one position: ()"
        raise InputError(
            f"position is {shown(position)}, expected {len(sides)} whole numbers, 'max' or 'mean'",
            source="position",
            hint=f"{record.path} has {expected} positions, counted from 0.",
        )
    return int(np.ravel_multi_index(place, sides)) if sides else 0


def _decoded(record: LayerRecord, place: int) -> tuple[int, ...]:
    return tuple(int(one) for one in np.unravel_index(place, record.positions)) if record.positions else ()


def layer_explanation(
    assembler: Assembler, source: str, image: LoadedImage, outputs: LayerOutputs, place: int, query: LayerQuery
) -> LayerExplanation:
    """The explanation of the query for the image at index `place` of a batch."""
    record = assembler.manifest.layer_records[query.layer]
    count = prod(record.positions)
    found = int(outputs.places[place, 0])
    if not 0 <= found <= count or (query.position != LARGEST_POSITION and found != query.position):
        raise InferenceError(f"the graph explained position {found}, requested was {query.position}", source=source)
    position: Any = "mean" if found == mean_position(count) else _decoded(record, found)
    weights = outputs.weights[place, 0]
    contributions = np.einsum("chw,chw->hw", weights, image.encoded)
    terms = outputs.bias_terms[place, 0].astype(np.float64)
    value = float(outputs.value[place, 0])
    what = f"channel {query.channel}" if query.channel is not None else "direction"
    arrays: dict[str, npt.NDArray[Any]] = {
        "contributions": contributions,
        "image": image.pixels,
        "weights": weights,
        "direction": query.direction,
    }
    if assembler.manifest.input.channels == "none":
        arrays["input"] = image.encoded
    if image.display is not None:
        arrays["display"] = image.display
    result = LayerExplanation(
        source=source,
        model=assembler.manifest.model.name,
        layer=record.path,
        channel=query.channel,
        position=position,
        target=Target(index=None, label=f"{record.path} {what} at {position}", logit=value, probability=None),
        bias=dict(zip(record.bias_terms, terms.tolist(), strict=True)),
        completeness=Completeness(
            logit=value,
            sum=certificate_sum(contributions, terms),
            scale=float(layer_certificate_scale(contributions, terms, float(outputs.magnitude[place, 0]))),
            tolerance=assembler.tolerance,
            precision=assembler.precision,
        ),
        geometry=image.geometry,
        arrays=arrays,
    )
    if assembler.on_incomplete == "raise":
        result.require_complete()
    return result


def feature_explanation(
    assembler: Assembler,
    source: str,
    image: LoadedImage,
    outputs: RelayOutputs,
    place: int,
    layer: int,
    top_k: int,
    rows: tuple[int, ...],
) -> FeatureExplanation:
    """How much each activation of the layer adds to the logit, for the image at index `place` of a batch."""
    record = assembler.manifest.layer_records[layer]
    logits = outputs.logits[place]
    assembler.check_classes(source, outputs.classes[place], rows)
    target = assembler.target(logits, int(outputs.classes[place, 0]), assembler.probabilities(logits))
    features, activations = (_matrix(one) for one in (outputs.features[place, 0], outputs.activations[place]))
    terms = outputs.bias_above[place, 0].astype(np.float64)[: len(record.bias_above)]
    total, scale = feature_sum(features, terms)
    best = np.argsort(-features, axis=None, kind="stable")[:top_k]
    chosen = [(int(one) // features.shape[1], int(one) % features.shape[1]) for one in best]
    certificate = Completeness(
        logit=target.logit, sum=total, scale=scale, tolerance=assembler.tolerance, precision=assembler.precision
    )
    result = FeatureExplanation(
        source=source,
        model=assembler.manifest.model.name,
        layer=record.path,
        prediction=assembler.prediction(source, logits, 5, image.notes),
        target=target,
        partial=not record.complete,
        bias=dict(zip(record.bias_above, terms.tolist(), strict=True)),
        completeness=certificate if record.complete else None,
        features=tuple(
            Feature(
                channel=channel,
                position=_decoded(record, where),
                contribution=float(features[channel, where]),
                activation=float(activations[channel, where]),
            )
            for channel, where in chosen
        ),
        positions=record.positions,
        arrays={"features": features, "activations": activations},
    )
    if assembler.on_incomplete == "raise":
        result.require_complete()
    return result


def features_of(
    assembler: Assembler, source: str, image: LoadedImage, outputs: FeatureOutputs, place: int, layers: tuple[int, ...]
) -> Features:
    """The activations of the layers for the image at index `place` of a batch."""
    records = [assembler.manifest.layer_records[layer] for layer in layers]
    return Features(
        source=source,
        model=assembler.manifest.model.name,
        prediction=assembler.prediction(source, outputs.logits[place], 5, image.notes),
        layers=tuple(
            LayerFeatures(layer=one.path, positions=one.positions, arrays={"activations": _matrix(array[place])})
            for one, array in zip(records, outputs.activations, strict=True)
        ),
    )


def _matrix(output: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The output of a layer as [channels, positions]."""
    return np.ascontiguousarray(output.T) if output.ndim == 2 else output.reshape(len(output), -1)


def one_per_image(images: Iterable[Any], queries: Iterator[LayerQuery]) -> Iterator[tuple[int, Any, LayerQuery]]:
    """Each image with its index and its query."""
    for place, image in enumerate(images):
        query = next(queries, None)
        if query is None:
            raise InputError(f"there are queries for {place} images, but more images", hint="Pass one per image.")
        yield place, image, query
