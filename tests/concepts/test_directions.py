"""Which directions are chosen: by contribution, distinct by a limit that fits the layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcos_sdk.concepts._directions import Candidate, choose
from bcos_sdk.concepts._places import field_around, field_side


def candidates(count: int, spread: float, seed: int) -> list[Candidate]:
    """Unit vectors around one vector: a small spread is a late layer, in which all activations of a class are alike."""
    generator = np.random.default_rng(seed)
    vectors = np.ones(16) + spread * generator.standard_normal((count, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    strengths = generator.random(count)
    return [Candidate(i, 0, v, float(s), 1.0) for i, (v, s) in enumerate(zip(vectors, strengths, strict=True))]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.sampled_from([0.02, 0.3, 3.0]), st.integers(1, 8), st.integers(0, 1000))
def test_directions_are_distinct_and_the_strongest_that_are(count: int, spread: float, wanted: int, seed: int) -> None:
    given_ones = candidates(count, spread, seed)
    chosen, limit = choose(given_ones, wanted)
    strengths = [one.contribution for one in chosen]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] == max(one.contribution for one in given_ones)
    assert len(chosen) == min(count, wanted)
    for place, one in enumerate(chosen):
        assert all(one.vector @ other.vector <= limit + 1e-12 for other in chosen[:place])
    for left_out in given_ones:  # each candidate that was left out is weaker than all, or too similar to a stronger one
        if left_out not in chosen and left_out.contribution > strengths[-1]:
            stronger = [one for one in chosen if one.contribution > left_out.contribution]
            assert any(left_out.vector @ one.vector > limit for one in stronger)


def test_the_limit_fits_the_layer() -> None:
    """In an early layer directions differ more than in a late one. Both have as many as were asked for."""
    (early, low), (late, high) = (choose(candidates(100, spread, 0), 6) for spread in (3.0, 0.05))
    assert len(early) == len(late) == 6
    assert low < 0.6 < 0.9 < high


def test_no_candidates() -> None:
    assert choose([], 6) == ([], 1.0)


@pytest.mark.parametrize("side", [40, 72])
def test_the_field_is_where_the_contributions_are(side: int) -> None:
    contributions = np.zeros((224, 224), np.float32)
    contributions[100 - side // 2 : 100 + side // 2, 120 - side // 2 : 120 + side // 2] = -1
    cell = (112.0, 92.0, 128.0, 108.0)  # around x = 120, y = 100
    found = field_side([(contributions, cell)] * 3)
    assert found is not None
    assert side * 0.9**0.5 - 2 <= found <= side + 8
    left, top, right, bottom = field_around(cell, found, (224, 224))
    assert (left + right) / 2 == pytest.approx(120, abs=1)
    assert (top + bottom) / 2 == pytest.approx(100, abs=1)
    assert field_around((0.0, 0.0, 16.0, 16.0), found, (224, 224))[:2] == (0, 0)


def test_the_field_of_a_small_input_or_of_the_whole_input_is_not_cut() -> None:
    assert field_side([(np.ones((32, 32), np.float32), (0.0, 0.0, 4.0, 4.0))]) is None
    assert field_side([(np.ones((224, 224), np.float32), (104.0, 104.0, 120.0, 120.0))]) is None
    assert field_side([(np.ones((224, 224), np.float32), None)]) is None
