"""How the targets of a caller become targets of the explain graph."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from support.bundles import LABELS, small_bundle

from bcos_sdk import Contrast, Limits
from bcos_sdk.client._targets import ResolvedTargets, TargetResolver
from bcos_sdk.errors import BcosError, InputError, UnknownTargetError

CLASSES = len(LABELS)


@pytest.fixture(scope="module")
def resolver() -> TargetResolver:
    return TargetResolver(small_bundle().manifest, Limits().targets)


def first(resolver: TargetResolver, targets: Any, top_k: int = 1) -> ResolvedTargets:
    resolved = next(resolver.for_each_image(targets, top_k))
    assert isinstance(resolved, ResolvedTargets)
    return resolved


@pytest.mark.parametrize(
    ("target", "row"),
    [
        (0, 0),
        (CLASSES - 1, CLASSES - 1),
        (np.int64(2), 2),
        ("tabby, tabby cat", 0),
        ("tabby", 0),
        ("TABBY CAT", 0),
        ("lynx", 1),
        ("crane, bird", 3),
        ("bird", 3),
        ("Boxer", 5),
        ("boxer", 6),
        ("mean", CLASSES),
    ],
)
def test_a_class_or_the_mean_is_one_row(resolver: TargetResolver, target: Any, row: int) -> None:
    assert first(resolver, target) == ResolvedTargets((row,), ((0, None),))


@pytest.mark.parametrize("contrast", [Contrast("tabby", "lynx"), "tabby vs lynx", Contrast(0, 1), Contrast("tabby", 1)])
def test_a_contrast_is_two_rows(resolver: TargetResolver, contrast: Any) -> None:
    assert first(resolver, contrast) == ResolvedTargets((0, 1), ((0, 1),))


def test_a_contrast_with_the_mean_is_a_class_and_the_mean(resolver: TargetResolver) -> None:
    expected = ResolvedTargets((2, CLASSES), ((0, 1),))
    assert first(resolver, Contrast("fox")) == first(resolver, "fox vs mean") == expected


def test_explanations_of_one_image_share_rows(resolver: TargetResolver) -> None:
    resolved = first(resolver, ["fox", Contrast("fox", "lynx"), "lynx", "fox vs mean", 2])
    assert resolved.rows == (2, 1, CLASSES)
    assert resolved.explanations == ((0, None), (0, 1), (1, None), (0, 2), (0, None))


def test_without_targets_the_most_likely_classes_are_explained(resolver: TargetResolver) -> None:
    assert first(resolver, None, 3) == ResolvedTargets((-1, -2, -3), ((0, None), (1, None), (2, None)))
    assert first(resolver, None, 99).rows == tuple(range(-1, -CLASSES - 1, -1)), "never more than there are classes"


def test_a_list_per_image_gives_one_entry_per_image_and_a_shared_list_has_no_end(resolver: TargetResolver) -> None:
    wanted: Any = [["fox"], [0, 1], ["lion"], (Contrast(1, 2),)]
    each = list(resolver.for_each_image(wanted, 1, 4))
    assert [type(one) for one in each] == [ResolvedTargets, ResolvedTargets, UnknownTargetError, ResolvedTargets]
    common: Any = ["fox", 1]
    shared = list(islice(resolver.for_each_image(common, 1), 3))
    assert [one.rows for one in shared if isinstance(one, ResolvedTargets)] == [(2, 1)] * 3


@pytest.mark.parametrize(
    ("targets", "kind", "message"),
    [
        (-1, UnknownTargetError, r"no class -1(.|\n)*Classes are 0 to 6\. For the most likely classes, use top_k"),
        (CLASSES, UnknownTargetError, "no class 7"),
        (True, UnknownTargetError, "no class True"),
        ("lyns", UnknownTargetError, r"no class 'lyns'(.|\n)*Similar labels: lynx"),
        ("crane", UnknownTargetError, r"Several classes have this label: 3, 4"),
        ("BOXER", UnknownTargetError, r"Several classes have this label: 5, 6"),
        ("zzz", UnknownTargetError, "Labels are, for example, tabby, tabby cat; lynx; fox"),
        ("fox vs lion", UnknownTargetError, "no class 'lion'"),
        (1.5, InputError, "target 1.5 is neither"),
        ([], InputError, "empty"),
        ([["fox"], "lynx"], InputError, "mixes targets for all images with lists"),
        ([["fox"]], InputError, "targets for 1 images, but 2"),
        (object(), InputError, "is neither a class index nor a label"),
    ],
)
def test_wrong_targets_are_refused(resolver: TargetResolver, targets: Any, kind: type[BcosError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        resolver.for_each_image(targets, 1, 2)
    assert caught.type is kind, "not one of its family"


def test_a_model_without_labels_takes_class_indices() -> None:
    resolver = TargetResolver(small_bundle(labels=False).manifest, Limits().targets)
    assert first(resolver, 3).rows == (3,)
    with pytest.raises(UnknownTargetError, match="no labels"):
        resolver.for_each_image("fox", 1)
