"""Contribution maps as bytes: what each form keeps, against a slow literal implementation."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bcos_sdk.errors import InputError
from bcos_sdk.ray._maps import Maps, check_maps, map_from_fields, map_to_fields

NUMBERS = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)
MAPS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=NUMBERS)


def read_literally(fields: dict[str, Any]) -> list[Fraction]:
    """The numbers that the documentation promises: scale × stored, one by one, without numpy."""
    letter = {"float16": "e", "int8": "b", "float32": "f"}[fields["dtype"]]
    count = fields["height"] * fields["width"]
    return [Fraction(fields["scale"]) * Fraction(one) for one in struct.unpack(f"<{count}{letter}", fields["data"])]


@given(MAPS)
def test_float32_is_exact(contributions: npt.NDArray[np.float32]) -> None:
    fields = map_to_fields(contributions, "float32")
    assert fields is not None
    assert read_literally(fields) == [Fraction(float(one)) for one in contributions.ravel()]
    restored = map_from_fields(fields)
    assert restored is not None
    assert restored.tobytes() == contributions.tobytes()


@given(MAPS, st.sampled_from(["float16", "int8"]))
def test_rounding_is_bounded(contributions: npt.NDArray[np.float32], maps: Maps) -> None:
    fields = map_to_fields(contributions, maps)
    assert fields is not None
    largest = Fraction(float(np.abs(contributions).max()))
    for wanted, stored in zip(contributions.ravel(), read_literally(fields), strict=True):
        exact = Fraction(float(wanted))
        allowed = largest / 254 if maps == "int8" else max(abs(exact) / 2**11, largest / 2**24)
        assert abs(exact - stored) <= allowed * Fraction(1000001, 1000000)


@given(MAPS, st.sampled_from(["float16", "int8", "float32"]))
def test_what_is_read_is_what_is_stored(contributions: npt.NDArray[np.float32], maps: Maps) -> None:
    fields = map_to_fields(contributions, maps)
    assert fields is not None
    restored = map_from_fields(fields)
    assert restored is not None
    assert restored.shape == contributions.shape
    assert not restored.flags.writeable
    expected = [np.float32(float(one)) for one in read_literally(fields)]
    np.testing.assert_array_equal(restored.ravel(), np.array(expected, np.float32))
    if fields["dtype"] == "float16":
        assert Fraction(fields["scale"]).numerator == 1 or Fraction(fields["scale"]).denominator == 1


def test_zeros_and_nothing() -> None:
    forms: tuple[Maps, ...] = ("float16", "int8")
    for maps in forms:
        restored = map_from_fields(map_to_fields(np.zeros((2, 3), np.float32), maps))
        assert restored is not None
        assert not restored.any()
    assert map_to_fields(np.ones((2, 2), np.float32), "none") is None
    assert map_from_fields(None) is None


@pytest.mark.parametrize(
    "damage",
    [{"data": b"123"}, {"height": 0}, {"width": None}, {"dtype": "float64"}, {"height": 7}, {"data": b""}],
)
def test_damaged_maps_are_refused(damage: dict[str, Any]) -> None:
    fields = map_to_fields(np.ones((2, 3), np.float32), "float16")
    assert fields is not None
    with pytest.raises(InputError, match="do not make a map"):
        map_from_fields(fields | damage)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InputError, match="maps is 'float64', expected one of none, float16, int8, float32"):
        check_maps("float64")
