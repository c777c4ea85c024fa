"""Targets: classes by index or label, the mean of all logits, contrasts of two; by default the most likely classes."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice, repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import mean_target, rank_target
from bcos_sdk.errors import BcosError, InputError, UnknownTargetError, shown
from bcos_sdk.limits import Limits

__all__ = [
    "Contrast",
    "Pixel",
    "Region",
    "ResolvedTargets",
    "RowMean",
    "TargetResolver",
    "Targets",
    "check_targets",
    "target_at",
]

MEAN = "mean"
_VERSUS = " vs "
_MOST_SIMILAR = 3
_AT_PIXEL = re.compile(r"(?P<name>.+?)\s*@\s*(?P<y>[0-9]{1,7}):(?P<x>[0-9]{1,7})")


@dataclass(frozen=True)
class Contrast:
    """Explain why `target` and not `against`: the difference of their logits.

    Against "mean" it is the mean-corrected explanation. The text "tabby vs lynx" means `Contrast("tabby", "lynx")`.
    """

    target: int | str | Pixel
    against: int | str | Pixel = MEAN


@dataclass(frozen=True)
class Pixel:
    """Explain a class at one pixel (y, x) of the map that the network returns. As text: "road @ 12:30"."""

    target: int | str
    y: int
    x: int


def target_at(manifest: Manifest, index: int) -> int | Pixel:
    """The target that explains the logit at this index: a class, or a class at a pixel of a map."""
    if manifest.map is None:
        return index
    number, y, x = (int(place) for place in np.unravel_index(index, manifest.map))
    return Pixel(number, y, x)


@dataclass(frozen=True, eq=False)
class Region:
    """Explain the mean of a class over a mask: an array of bool [height, width] of the map that the network returns.

    Each pixel of the mask is computed as a target of its own, so `Limits(targets=…)` bounds their number.
    """

    target: int | str
    mask: npt.NDArray[np.bool_]


Target: TypeAlias = "int | str | Contrast | Pixel | Region"
Targets: TypeAlias = "Target | Sequence[Target] | Sequence[Sequence[Target]] | None"


@dataclass(frozen=True)
class ResolvedTargets:
    """The targets of the explain graph for one image, and the explanations to make from them.

    `rows` are encoded targets (see `bcos_sdk.contract`), without repetition. Each explanation is a pair of indices into
    `rows`: the target, and the target to subtract or None.
    """

    rows: tuple[int, ...]
    explanations: tuple[tuple[int, int | None] | RowMean, ...]


@dataclass(frozen=True)
class RowMean:
    """The mean of these rows, given as indices into `rows`, and its label."""

    places: tuple[int, ...]
    label: str


def check_targets(manifest: Manifest, targets: Targets, top_k: int, limits: Limits) -> None:
    """Raise an error unless these targets can be explained for every image of this model, without opening a device."""
    if isinstance(targets, (list, tuple)) and any(map(_is_list, targets)):
        raise InputError("targets has a list for each image, expected targets for all images", hint=_HINT)
    TargetResolver(manifest, limits.targets).for_each_image(targets, top_k)


class TargetResolver:
    """Turns the caller's targets into targets of the explain graph."""

    def __init__(self, manifest: Manifest, most: int) -> None:
        """`most` is the largest number of targets of one image."""
        self._manifest = manifest
        self._most = most
        self._labels = manifest.labels or ()
        self._index_of: dict[str, list[int]] = {}
        for index, label in enumerate(self._labels):
            for name in {label.casefold(), *(part.strip().casefold() for part in label.split(","))}:
                self._index_of.setdefault(name, []).append(index)

    def for_each_image(
        self, targets: Targets, top_k: int, images: int | None = None
    ) -> Iterator[ResolvedTargets | BcosError]:
        """Yield the targets of each image: infinitely often if all images share them, else one entry per list.

        A wrong target that all images share raises an error now. A wrong target of one image is yielded as an error.
        """
        if targets is None:
            return repeat(self._top(top_k))
        if isinstance(targets, (bytes, bytearray, Set, Mapping)):
            raise InputError(f"targets is a {type(targets).__name__}, expected a target or a list", hint=_HINT)
        if isinstance(targets, Iterable) and not isinstance(targets, str) and not _is_number(targets):
            listed = self._listed(targets, images)
            per_image = [list(islice(target, self._most + 1)) for target in listed if _is_list(target)]
            if per_image and len(per_image) < len(listed):
                raise InputError("targets mixes targets for all images with lists for each image", hint=_HINT)
            if per_image and images is not None and len(listed) != images:
                raise InputError(f"there are targets for {len(listed)} images, but {images} images", hint=_HINT)
            return map(self._try_resolve, per_image) if per_image else repeat(self._resolve(listed))
        return repeat(self._resolve([targets]))

    def _listed(self, targets: Iterable[Any], images: int | None) -> list[Any]:
        """The list of targets, or of lists for each image. It ends soon after it is too long: it may be endless."""
        rest = iter(targets)
        listed = list(islice(rest, self._most + 1))
        if len(listed) > self._most and any(map(_is_list, listed)):
            listed.extend(rest if images is None else islice(rest, max(0, images + 1 - len(listed))))
        return listed

    def _top(self, top_k: int) -> ResolvedTargets:
        top_k = min(top_k, self._manifest.classes)
        if top_k > self._most:
            raise self._too_many(f"top_k is {top_k}", "Use a smaller top_k")
        if not 1 <= top_k <= self._manifest.ranks:
            raise UnknownTargetError(
                f"top_k is {top_k}, expected 1 to {self._manifest.ranks} for this model",
                source=str(top_k),
                hint="Use a smaller top_k, or pass targets.",
            )
        rows = tuple(rank_target(rank) for rank in range(1, top_k + 1))
        return ResolvedTargets(rows, tuple((place, None) for place in range(top_k)))

    def _try_resolve(self, targets: Sequence[Any]) -> ResolvedTargets | BcosError:
        try:
            return self._resolve(targets)
        except BcosError as error:
            return error

    def _resolve(self, targets: Sequence[Any]) -> ResolvedTargets:
        if not targets:
            raise InputError("the list of targets is empty", hint=_HINT)
        if len(targets) > self._most:
            raise self._too_many(f"there are more than {self._most:,} targets for one image", "Pass fewer targets")
        wanted = [self._region(target) if isinstance(target, Region) else self._pair(target) for target in targets]
        needed = (row for one in wanted for row in (one.rows if isinstance(one, _RegionRows) else one))
        rows = tuple(dict.fromkeys(row for row in needed if row is not None))
        if len(rows) > self._most:
            advice = "Pass fewer contrasts, or a mask with fewer pixels"
            raise self._too_many(f"contrasts and masks need {len(rows):,} targets for one image", advice)
        places = {row: place for place, row in enumerate(rows)}
        explanations: list[tuple[int, int | None] | RowMean] = []
        for one in wanted:
            if isinstance(one, _RegionRows):
                explanations.append(RowMean(tuple(places[row] for row in one.rows), one.label))
            else:
                row, against = one
                explanations.append((places[row], None if against is None else places[against]))
        return ResolvedTargets(rows, tuple(explanations))

    def _region(self, region: Region) -> _RegionRows:
        index = self._class_of_map(region.target)
        assert self._manifest.map is not None
        size = self._manifest.map[1:]
        mask = np.asarray(region.mask)
        if mask.dtype != np.bool_ or mask.shape != size or not mask.any():
            found = f"{mask.dtype} {list(mask.shape)} with {np.count_nonzero(mask):,} pixels"
            raise InputError(
                f"the mask is {found}, expected bool {list(size)} with at least one pixel",
                source="mask",
                hint="Resize the mask to the map of the model, for example with PIL's NEAREST, and compare: mask > 0.",
            )
        places = (index * mask.size + np.flatnonzero(mask)).tolist()
        return _RegionRows(tuple(places), f"{self._name(index)} over {len(places)} pixels")

    def _pixel(self, pixel: Pixel) -> int:
        index = self._class_of_map(pixel.target)
        assert self._manifest.map is not None
        _, height, width = self._manifest.map
        if not _is_inside(pixel.y, height) or not _is_inside(pixel.x, width):
            at = f"({shown(pixel.y)}, {shown(pixel.x)})"
            raise UnknownTargetError(
                f"there is no pixel {at} in the map, which has {height} rows and {width} columns",
                source=at,
                hint=f"y is 0 to {height - 1} and x is 0 to {width - 1}, in pixels of the map and not of the image.",
            )
        return int((index * height + operator.index(pixel.y)) * width + operator.index(pixel.x))

    def _class_of_map(self, target: Any) -> int:
        if self._manifest.map is None:
            raise InputError(
                "this model returns no map, so a target has no pixel and no mask",
                source="targets",
                hint="Pass a class index or a label.",
            )
        if isinstance(target, str):
            return self._class_of_label(target)
        return self._checked_index(target, self._manifest.map[0])

    def _name(self, index: int) -> str:
        return self._labels[index] if self._labels else str(index)

    def _too_many(self, found: str, advice: str) -> InputError:
        return InputError(
            f"{found}, the limit is {self._most:,}", source="targets", hint=f"{advice}, or raise Limits(targets=…)."
        )

    def _pair(self, target: Any) -> tuple[int, int | None]:
        if isinstance(target, Contrast):
            return self._row(target.target), self._row(target.against)
        if isinstance(target, str) and _VERSUS in target and target.casefold() not in self._index_of:
            one, _, other = target.partition(_VERSUS)
            return self._row(one.strip()), self._row(other.strip())
        return self._row(target), None

    def _row(self, target: Any) -> int:
        if isinstance(target, str) and (at := _AT_PIXEL.fullmatch(target)) and target.casefold() not in self._index_of:
            name = at["name"]
            known = name.isdecimal() and name.casefold() not in self._index_of
            target = Pixel(int(name) if known else name, int(at["y"]), int(at["x"]))
        if isinstance(target, Pixel):
            return self._pixel(target)
        if self._manifest.map is not None and target != MEAN:
            raise InputError(
                f"target {shown(target)} has no pixel, and this model returns a map",
                source=shown(target),
                hint='Pass Pixel(target, y, x), Region(target, mask), or the text "label @ y:x".',
            )
        if isinstance(target, str) and not self._labels and target != MEAN and self._manifest.probability == "none":
            raise UnknownTargetError(
                f"there is no component {shown(target)}: this model returns values without names",
                source=shown(target, quote=False),
                hint=f"Use an index, 0 to {self._manifest.classes - 1}, or export the model with --labels.",
            )
        return self._row_of_label(target) if isinstance(target, str) else self._row_of_index(target)

    def _row_of_index(self, target: Any) -> int:
        return self._checked_index(target, self._manifest.classes)

    def _checked_index(self, target: Any, count: int) -> int:
        try:
            index = operator.index(target)
        except TypeError:
            raise InputError(
                f"target {shown(target)} is neither a class index nor a label", source=shown(target), hint=_HINT
            ) from None
        if isinstance(target, bool) or not 0 <= index < count:
            raise UnknownTargetError(
                f"there is no class {shown(target, quote=False)}",
                source=shown(target, quote=False),
                hint=f"Classes are 0 to {count - 1}. For the most likely classes, use top_k.",
            )
        return index

    def _row_of_label(self, label: str) -> int:
        if label == MEAN and label not in self._index_of:
            return mean_target(self._manifest.classes)
        return self._class_of_label(label)

    def _class_of_label(self, label: str) -> int:
        found = self._index_of.get(label.casefold(), [])
        exact = [index for index in found if self._labels[index] == label]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            hint = f"Several classes have this label: {', '.join(map(str, found))}. Use an index."
        elif not self._labels:
            hint = "This model has no labels. Use an index."
        else:
            hint = self._similar(label.casefold())
        raise UnknownTargetError(f"there is no class {shown(label)}", source=shown(label, quote=False), hint=hint)

    def _similar(self, name: str) -> str:
        """Labels that are spelled like the name, or contain it; else some labels."""
        containing = [known for known in self._index_of if name.strip() and name in known]
        near = (get_close_matches(name, self._index_of, n=_MOST_SIMILAR) or containing)[:_MOST_SIMILAR]
        if near:
            return f"Similar labels: {', '.join(near)}."
        some = "; ".join(self._labels[:_MOST_SIMILAR])
        return f"Labels are, for example, {shown(some, quote=False)}."


@dataclass(frozen=True)
class _RegionRows:
    rows: tuple[int, ...]
    label: str


def _is_inside(place: Any, count: int) -> bool:
    return not isinstance(place, bool) and hasattr(place, "__index__") and 0 <= operator.index(place) < count


def _is_list(target: Any) -> bool:
    return not isinstance(target, (str, bytes)) and isinstance(target, Iterable) and not _is_number(target)


def _is_number(target: Any) -> bool:
    """Return whether this is a numpy scalar or an array without axes."""
    return getattr(target, "shape", None) == ()


_HINT = (
    'A target is a class index, a label, "mean", or a Contrast of two. Pass one target, a list of targets for all '
    "images, or a list of lists with one list for each image."
)
