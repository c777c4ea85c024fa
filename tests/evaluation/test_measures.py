"""Every measure against a slow literal implementation, and against values that are known."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from bcos_sdk.errors import InputError
from bcos_sdk.evaluation import Item, accuracy, comparison, faithfulness, localisation, masks, spread, stability
from bcos_sdk.evaluation.grids import assemble, choose_grids

RANDOM = np.random.default_rng(7)


def test_calibration_error_by_hand() -> None:
    # Bins of 0.1: (0.6, 0.7] has two images with mean 0.65 and one hit; (0.9, 1] one image with 0.95, right.
    probability, right = [0.62, 0.68, 0.95], [1, 0, 1]
    by_hand = 2 / 3 * abs(0.5 - 0.65) + 1 / 3 * abs(1 - 0.95)
    assert accuracy.expected_calibration_error(probability, right, bins=10) == pytest.approx(by_hand)


def test_calibration_error_literally() -> None:
    probability, right = RANDOM.random(300), RANDOM.random(300) < 0.6
    total = 0.0
    for k in range(15):
        members = [i for i in range(300) if k / 15 < probability[i] <= (k + 1) / 15]
        if members:
            gap = np.mean([right[i] for i in members]) - np.mean([probability[i] for i in members])
            total += len(members) / 300 * abs(gap)
    assert accuracy.expected_calibration_error(probability, right) == pytest.approx(total)


def test_a_certain_model_that_is_right_is_calibrated() -> None:
    assert accuracy.expected_calibration_error([1.0, 1.0], [1, 1]) == 0
    assert accuracy.expected_calibration_error([0.0, 0.0], [0, 0]) == 0


def test_confusion_counts_rows_by_label() -> None:
    assert accuracy.confusion([0, 0, 2], [0, 1, 1], 3).tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]


def test_accuracy_summary() -> None:
    rows = [(0, 0, 1.0), (0, 1, 1.0), (1, 1, 1.0), (1, 0, 0.0)]  # label, predicted, top5
    items = [
        Item(
            name=str(at),
            scores={
                "label": label,
                "predicted": predicted,
                "logit": 1,
                "probability": 0.5,
                "top1": float(label == predicted),
                "top5": top5,
            },
        )
        for at, (label, predicted, top5) in enumerate(rows)
    ]
    figures = accuracy.summarise(items, ("cat", "dog"))
    assert figures.values == {"top1": 0.5, "top5": 0.75, "ece": 0.0}
    assert figures.details["classes"] == [
        {"label": "cat", "images": 2, "top1": 0.5},
        {"label": "dog", "images": 2, "top1": 0.5},
    ]
    assert {"label": "cat", "predicted": "dog", "images": 1} in figures.details["confused"]


def literal_shares(
    maps: npt.NDArray[np.float64], n: int, smooth: int, top: float | None = None
) -> npt.NDArray[np.float64]:
    """The pointing game with loops over pixels."""
    result = []
    for own, one in enumerate(maps):
        height, width = one.shape
        positive = np.zeros_like(one)
        for y in range(height):
            for x in range(width):
                window = [
                    one[v, u] if 0 <= v < height and 0 <= u < width else 0.0
                    for v in range(y - (smooth - 1) // 2, y + smooth // 2 + 1)
                    for u in range(x - (smooth - 1) // 2, x + smooth // 2 + 1)
                ]
                positive[y, x] = max(0.0, sum(window) / smooth**2)
        if top is not None:
            least = sorted(positive.ravel(), reverse=True)[max(1, round(top * one.size)) - 1]
            positive[positive < least] = 0
        row, column = divmod(own, n)
        inside = sum(
            positive[y, x]
            for y in range(height)
            for x in range(width)
            if y * n // height == row and x * n // width == column
        )
        result.append(inside / positive.sum() if positive.sum() > 0 else 0.0)
    return np.array(result)


@pytest.mark.parametrize(("n", "smooth", "top"), [(2, 1, None), (2, 3, None), (3, 2, None), (2, 3, 0.1), (3, 1, 0.025)])
def test_shares_in_the_own_cell_literally(n: int, smooth: int, top: float | None) -> None:
    maps = RANDOM.normal(size=(n * n, 4 * n, 5 * n))
    found = localisation.own_cell_shares(maps, n, smooth=smooth, top=top)
    np.testing.assert_allclose(found, literal_shares(maps, n, smooth, top), rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3])
def test_known_localisations(n: int) -> None:
    side = 6 * n
    uniform = np.ones((n * n, side, side))
    np.testing.assert_allclose(localisation.own_cell_shares(uniform, n), 1 / n**2)
    perfect = np.zeros_like(uniform)
    for cell in range(n * n):
        row, column = divmod(cell, n)
        perfect[cell, row * 6 : row * 6 + 6, column * 6 : column * 6 + 6] = 1
    assert localisation.own_cell_shares(perfect, n).tolist() == [1.0] * n**2
    assert localisation.own_cell_shares(-perfect, n).tolist() == [0.0] * n**2
    assert localisation.own_cell_shares(perfect - 1, n).tolist() == [0.0] * n**2


def test_negative_contributions_count_before_the_positive_part() -> None:
    maps = np.zeros((4, 4, 4))
    maps[:, 0, 0], maps[:, 0, 1] = 1, -1  # they cancel in every window that has both
    raw, smoothed = (localisation.own_cell_shares(maps, 2, smooth=smooth)[0] for smooth in (1, 3))
    assert raw == 1
    assert smoothed == 0  # every window with the 1 has the −1, too


def test_windows_of_the_paper() -> None:
    assert (localisation.smoothing_window(32), localisation.smoothing_window(224)) == (3, 15)


def classified(label: int, logit: float, *, right: bool = True) -> Item:
    scores = {"label": label, "predicted": label, "logit": logit, "top1": float(right), "top5": 1.0}
    return Item(name=f"{label}-{logit}", scores={**scores, "probability": 1 / (1 + math.exp(-logit))})


def literal_grids(items: list[Item], count: int, n: int, seed: int) -> list[list[int]]:
    """Queues per class, most confident first; draw classes until fewer than n·n have images left."""
    good = [
        (at, item.scores)
        for at, item in enumerate(items)
        if item.scores["top1"] == 1 and 1 / (1 + math.exp(-item.scores["logit"])) > 0.5
    ]
    queue = {
        label: sorted(
            (at for at, one in good if one["label"] == label), key=lambda at: (-items[at].scores["logit"], at)
        )
        for label in {one["label"] for _, one in good}
    }
    random = np.random.RandomState(seed)
    grids: list[list[int]] = []
    while len(grids) < count:
        free = sorted(label for label, left in queue.items() if left)
        if len(free) < n * n:
            break
        grids.append([queue[label].pop(0) for label in random.choice(free, n * n, replace=False)])
    return grids


def test_grids_take_the_most_confident_correct_images_once() -> None:
    logits = np.round(RANDOM.normal(1, 2, 120), 1)  # with equal ones
    items = [classified(int(at) % 6, float(one), right=bool(at % 5)) for at, one in enumerate(logits)]
    grids = choose_grids(items, 50, 2, seed=42)
    assert [list(grid.cells) for grid in grids] == literal_grids(items, 50, 2, 42)
    used = [cell for grid in grids for cell in grid.cells]
    assert len(used) == len(set(used))
    assert all(len(set(grid.classes)) == 4 for grid in grids)
    assert all(items[cell].scores["label"] == one for g in grids for cell, one in zip(g.cells, g.classes, strict=True))


def test_failed_images_are_in_no_grid() -> None:
    failed = Item.failed("broken", InputError("no image"))
    items = [failed, *(classified(label, 2.0) for label in range(4))]
    assert sorted(choose_grids(items, 5, 2, seed=0)[0].cells) == [1, 2, 3, 4]


def test_too_few_classes_for_a_grid() -> None:
    with pytest.raises(InputError, match="9 classes, but only 2"):
        choose_grids([classified(0, 3.0), classified(1, 3.0)], 5, 3, seed=0)


@pytest.mark.parametrize(("n", "classes", "advice"), [(2, 3, None), (3, 3, None), (3, 5, 2), (4, 10, 3)])
def test_advice_for_smaller_grids_is_possible(n: int, classes: int, advice: int | None) -> None:
    with pytest.raises(InputError) as refused:
        choose_grids([classified(label, 3.0) for label in range(classes)], 5, n, seed=0)
    hint = str(refused.value.hint)
    assert (f"--cells {advice}." in hint) if advice else ("--cells" not in hint)
    assert "more images" in hint


def test_a_grid_is_assembled_row_by_row() -> None:
    images = [np.full((2, 3, 3), value, np.uint8) for value in range(4)]
    grid = assemble(images, 2)
    assert grid.shape == (4, 6, 3)
    assert [grid[0, 0, 0], grid[0, 5, 0], grid[3, 0, 0], grid[3, 5, 0]] == [0, 1, 2, 3]


def test_mask_scores_literally() -> None:
    contributions, mask = RANDOM.normal(size=(6, 7)), RANDOM.integers(0, 3, (6, 7))
    inside = sum(max(0, c) for c, m in zip(contributions.ravel(), mask.ravel(), strict=True) if m == 1)
    outside = sum(max(0, c) for c, m in zip(contributions.ravel(), mask.ravel(), strict=True) if m == 0)
    best = max((c, m) for c, m in zip(contributions.ravel(), mask.ravel(), strict=True) if m != 2)
    found = masks.score(contributions, mask)
    assert found["inside"] == pytest.approx(inside / (inside + outside))
    assert found["pointing"] == float(best[1] == 1)
    assert found["area"] == pytest.approx((mask == 1).sum() / (mask != 2).sum())


def test_known_mask_scores() -> None:
    mask = np.zeros((4, 4), np.uint8)
    mask[:2] = 1
    assert masks.score(mask.astype(float), mask) == {"inside": 1.0, "pointing": 1.0, "area": 0.5}
    assert masks.score(np.ones((4, 4)), mask)["inside"] == 0.5
    assert masks.score(-np.ones((4, 4)), mask)["inside"] == 0


def test_cosine_and_ranks_of_known_maps() -> None:
    one = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert stability.cosine(one, 5 * one) == pytest.approx(1)
    assert stability.cosine(one, -one) == pytest.approx(-1)
    assert stability.cosine(one, np.zeros((2, 2))) == 0
    assert stability.rank_correlation(one, np.exp(one)) == pytest.approx(1)
    assert stability.rank_correlation(one, -one) == pytest.approx(-1)
    assert stability.rank_correlation(one, np.ones((2, 2))) == 0


def test_rank_correlation_literally() -> None:
    a, b = RANDOM.integers(0, 9, 40).astype(float), RANDOM.normal(size=40)

    def ranks(values: npt.NDArray[np.float64]) -> list[float]:
        return [
            sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2 for one in values
        ]

    assert stability.rank_correlation(a, b) == pytest.approx(np.corrcoef(ranks(a), ranks(b))[0, 1])


@pytest.mark.parametrize("by", [-3, -1, 1, 4])
def test_a_shifted_map_is_the_same_on_the_overlap(by: int) -> None:
    pixels = RANDOM.integers(0, 256, (9, 11, 3), dtype=np.uint8)
    moved = stability.shifted(pixels, by)
    for y in range(9):
        for x in range(11):
            assert (moved[y, x] == pixels[min(max(y - by, 0), 8), min(max(x - by, 0), 10)]).all()
    one, other = stability.overlap(pixels[..., 0].astype(float), moved[..., 0].astype(float), by)
    assert one.shape == (9 - abs(by), 11 - abs(by))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("patch", [1, 3])
def test_flipping_literally(patch: int) -> None:
    contributions = RANDOM.normal(size=(7, 8))
    start, end = np.zeros((6, 7, 8), np.float32), np.ones((6, 7, 8), np.float32)
    sums: dict[tuple[int, int], float] = {}
    for y in range(7):
        for x in range(8):
            place = (y // patch, x // patch)
            sums[place] = sums.get(place, 0) + contributions[y, x]
    ranked = sorted(sums, key=lambda place: -sums[place])
    order = faithfulness.flip_order(contributions, "most", patch, np.random.default_rng(0))
    images = list(faithfulness.flipped_images(start, end, order, patch, 4))
    assert len(images) == 5
    for step, image in enumerate(images):
        flipped = ranked[: round(len(ranked) * step / 4)]
        expected = [[float((y // patch, x // patch) in flipped) for x in range(8)] for y in range(7)]
        for channel in image:
            assert channel.tolist() == expected
    least = faithfulness.flip_order(contributions, "least", patch, np.random.default_rng(0))
    assert least.tolist() == order[::-1].tolist()


def test_random_orders_repeat_with_the_seed() -> None:
    one, again = (faithfulness.flip_order(np.ones((4, 4)), "random", 1, np.random.default_rng(3)) for _ in range(2))
    assert one.tolist() == again.tolist()
    assert sorted(one) == list(range(16))


def test_a_blurred_uniform_image_is_the_same() -> None:
    image = np.full((6, 12, 12), 0.25, np.float32)
    np.testing.assert_allclose(faithfulness.blurred(image), image, rtol=1e-6)


def items(values: list[float]) -> list[Item]:
    return [Item(name=str(at), scores={"top1": value, "top5": 1.0}) for at, value in enumerate(values)]


def test_a_constant_difference_has_an_interval_without_width() -> None:
    one, other = items([1.0, 0.75, 0.5]), items([0.75, 0.5, 0.25])
    top1, top5 = comparison.compare("accuracy", one, other, seed=0)
    assert (top1.difference, top1.low, top1.high, top1.changed) == (0.25, 0.25, 0.25, 3)
    assert (top5.difference, top5.low, top5.high, top5.changed) == (0, 0, 0, 0)


def test_the_interval_is_that_of_the_normal_distribution() -> None:
    values = RANDOM.normal(0.3, 1, 1000)
    low, high = comparison.bootstrap_interval(values, seed=1)
    error = values.std() / math.sqrt(1000)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_items_that_failed_in_one_model_are_not_compared() -> None:
    failed = Item.failed("1", InputError("no image"))
    (top1, _) = comparison.compare("accuracy", items([1.0, 1.0]), [items([0.0])[0], failed], seed=0)
    assert (top1.items, top1.difference) == (1, 1)


def test_spread_of_known_values() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert (found.count, found.mean, found.median) == (3, 2, 2)
    assert found.error == pytest.approx(1 / math.sqrt(3))
    assert spread([4.0]).error == 0
