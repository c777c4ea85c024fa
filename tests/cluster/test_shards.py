"""How images are cut into files, against what must hold for every plan: each image in exactly one file."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcos_sdk.errors import InputError
from bcos_sdk.ray._shards import LARGEST_SHARD, Outcome, Shard, plan_shards, shard_size

PATHS = st.lists(st.integers(0, 40).map(lambda number: f"/images/{number}.jpg"), max_size=60)
FILES = st.dictionaries(
    st.integers(0, 9).map(lambda number: f"part-old-{number}.parquet"),
    st.lists(st.integers(0, 40).map(lambda number: f"/images/{number}.jpg"), unique=True, max_size=12),
    max_size=5,
)


@given(PATHS, FILES, st.integers(1, 9))
def test_every_image_is_in_one_file_when_all_shards_are_done(
    images: list[str], files: dict[str, list[str]], size: int
) -> None:
    plan = plan_shards(images, files, size=size, prefix="part-new-")
    after = {name: list(paths) for name, paths in files.items()}
    for shard in plan.shards:  # what a worker does with a shard, literally
        there = [path for path in after.get(shard.file, []) if path not in shard.drop]
        after[shard.file] = there + [path for path in shard.images if path not in there]
        assert len(shard.images) <= size or shard.file in files
    counts = Counter(path for paths in after.values() for path in paths)
    assert set(counts) == set(images) | {path for paths in files.values() for path in paths}
    assert set(counts.values()) <= {1}
    assert plan.images == len(set(images))
    compared = [path for shard in plan.shards for path in shard.images]
    assert sorted(compared) == sorted(set(images)), "every image is processed once, by one shard"


def test_finished_files_without_wanted_images_are_left_alone() -> None:
    plan = plan_shards(["b"], {"one": ["a"], "two": ["b"]}, size=4, prefix="new-")
    assert plan.shards == [Shard("two", ("b",))]
    assert plan.recorded == 1


def test_a_second_row_of_an_image_is_dropped() -> None:
    plan = plan_shards(["a", "b", "c"], {"one": ["a", "b"], "two": ["b", "c"]}, size=4, prefix="new-")
    assert plan.shards == [Shard("one", ("a", "b")), Shard("two", ("c",), ("b",))]


def test_a_file_with_an_image_twice_is_not_ours() -> None:
    with pytest.raises(InputError, match="has an image twice"):
        plan_shards(["a"], {"one": ["a", "a"]}, size=4, prefix="new-")


@given(st.integers(1, 10**8), st.integers(1, 1000), st.integers(1, 64))
def test_files_have_whole_batches_and_bounded_size(images: int, workers: int, batch: int) -> None:
    size = shard_size(images, workers, batch)
    assert size % batch == 0
    assert size < LARGEST_SHARD + batch


def test_shards_and_outcomes_travel_as_json() -> None:
    shard = Shard("part.parquet", ("/a b.jpg", "s3://bucket/ü.png"), ("x",))
    assert Shard.from_json(shard.to_json()) == shard
    total = Outcome(done=2, kept=1, device="cpu")
    total.failed("image_unreadable", "message")
    total.add(
        Outcome.from_json(Outcome(done=3, failures={"image_unreadable": 4}, repeated={"failed before": 2}).to_json())
    )
    assert (total.done, total.kept, total.images) == (5, 1, 11)
    assert total.failures == {"image_unreadable": 5}
    assert Outcome.from_json(total.to_json()) == total
