"""Compare results that were computed in different batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bcos_sdk import Explained, Failure, Prediction

__all__ = ["same"]


def same(one: Any, other: Any) -> None:
    """Compare up to rounding: results depend in the last digits on the images in the same batch."""
    assert type(one) is type(other)
    if isinstance(one, Failure):
        assert one == other
    elif isinstance(one, Prediction):
        for left, right in zip(one.classes, other.classes, strict=True):
            assert left.index == right.index
            assert left.logit == pytest.approx(right.logit, rel=1e-4, abs=1e-5)
    else:
        assert isinstance(one, Explained)
        same(one.prediction, other.prediction)
        for mine, theirs in zip(one.explanations, other.explanations, strict=True):
            assert mine.target.label == theirs.target.label
            assert mine.arrays.keys() == theirs.arrays.keys()
            np.testing.assert_array_equal(mine.image, theirs.image)
            np.testing.assert_allclose(mine.contributions, theirs.contributions, rtol=1e-3, atol=1e-6)
