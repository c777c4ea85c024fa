"""Targets: classes by index or label, the mean of all logits, contrasts of two; by default the most likely classes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice, repeat
from typing import Any, TypeAlias

from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import mean_target, rank_target
from bcos_sdk.errors import BcosError, InputError, UnknownTargetError, shown

__all__ = ["Contrast", "ResolvedTargets", "TargetResolver", "Targets"]

MEAN = "mean"
_VERSUS = " vs "


@dataclass(frozen=True)
class Contrast:
    """Explain why `target` and not `against`: the difference of their logits.

    Against "mean" it is the mean-corrected explanation. The text "tabby vs lynx" means `Contrast("tabby", "lynx")`.
    """

    target: int | str
    against: int | str = MEAN


Target: TypeAlias = "int | str | Contrast"
Targets: TypeAlias = "Target | Sequence[Target] | Sequence[Sequence[Target]] | None"


@dataclass(frozen=True)
class ResolvedTargets:
    """The targets of the explain graph for one image, and the explanations to make from them.

    `rows` are encoded targets (see `bcos_sdk.contract`), without repetition. Each explanation is a pair of indices into
    `rows`: the target, and the target to subtract or None.
    """

    rows: tuple[int, ...]
    explanations: tuple[tuple[int, int | None], ...]


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
        pairs = [self._pair(target) for target in targets]
        rows = tuple(dict.fromkeys(row for pair in pairs for row in pair if row is not None))
        if len(rows) > self._most:
            raise self._too_many(f"the contrasts need {len(rows):,} targets for one image", "Pass fewer contrasts")
        places = {row: place for place, row in enumerate(rows)}
        explanations = tuple((places[row], None if against is None else places[against]) for row, against in pairs)
        return ResolvedTargets(rows, explanations)

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
        return self._row_of_label(target) if isinstance(target, str) else self._row_of_index(target)

    def _row_of_index(self, target: Any) -> int:
        try:
            index = operator.index(target)
        except TypeError:
            raise InputError(
                f"target {shown(target)} is neither a class index nor a label", source=shown(target), hint=_HINT
            ) from None
        if isinstance(target, bool) or not 0 <= index < self._manifest.classes:
            raise UnknownTargetError(
                f"there is no class {shown(target, quote=False)}",
                source=shown(target, quote=False),
                hint=f"Classes are 0 to {self._manifest.classes - 1}. For the most likely classes, use top_k.",
            )
        return index

    def _row_of_label(self, label: str) -> int:
        found = self._index_of.get(label.casefold(), [])
        exact = [index for index in found if self._labels[index] == label]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if not found and label == MEAN:
            return mean_target(self._manifest.classes)
        if found:
            hint = f"Several classes have this label: {', '.join(map(str, found))}. Use an index."
        elif not self._labels:
            hint = "This model has no labels. Use an index."
        else:
            near = get_close_matches(label.casefold(), self._index_of, n=3)
            hint = f"Similar labels: {', '.join(near)}." if near else "`client.labels` lists all labels."
        raise UnknownTargetError(f"there is no class {shown(label)}", source=shown(label, quote=False), hint=hint)


def _is_list(target: Any) -> bool:
    return not isinstance(target, (str, bytes)) and isinstance(target, Iterable) and not _is_number(target)


def _is_number(target: Any) -> bool:
    """Return whether this is a numpy scalar or an array without axes."""
    return getattr(target, "shape", None) == ()


_HINT = (
    'A target is a class index, a label, "mean", or a Contrast of two. Pass one target, a list of targets for all '
    "images, or a list of lists with one list for each image."
)
