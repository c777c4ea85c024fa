"""The geometry says which part of the upright original the network received."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from bcos_sdk.contract import InputSpec
from bcos_sdk.images import Geometry, LoadedImage, encode, load_image
from bcos_sdk.limits import Limits

LIMITS = Limits()


def ramp(width: int, height: int) -> Image.Image:
    """A picture whose red value grows along x and whose green value grows along y."""
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    return Image.fromarray(np.rint(np.stack([x, y, 0 * x], 2) * 255).astype(np.uint8))


def load(picture: Any, spec: InputSpec, **options: Any) -> LoadedImage:
    return load_image(picture, "picture", spec, LIMITS, **options)


@given(st.integers(40, 300), st.integers(40, 300), st.sampled_from([None, 40, 52]))
def test_the_box_is_where_the_pixels_come_from(width: int, height: int, resize: int | None) -> None:
    """On a ramp, the values at the edges of the crop state their position in the original."""
    spec = InputSpec(size=(32, 40), resize=resize, crop=(32, 40))
    loaded = load(ramp(width, height), spec)
    geometry = loaded.geometry
    assert geometry is not None
    assert geometry.original == (width, height)
    left, top, right, bottom = geometry.box
    cell = (right - left) / 40, (bottom - top) / 32
    pixels = loaded.pixels / 255
    middle = 16, 20  # away from the edges, at which the filter is cut off
    assert pixels[middle][0] * width == pytest.approx(left + 20.5 * cell[0], abs=0.02 * width)
    assert pixels[middle][1] * height == pytest.approx(top + 16.5 * cell[1], abs=0.02 * height)
    assert pixels[16, 38, 0] * width == pytest.approx(left + 38.5 * cell[0], abs=0.02 * width)
    assert pixels[30, 20, 1] * height == pytest.approx(top + 30.5 * cell[1], abs=0.02 * height)


def test_without_resize_the_box_is_in_whole_pixels() -> None:
    spec = InputSpec(size=(32, 40), resize=None, crop=(32, 40))
    picture = ramp(101, 66)
    loaded = load(picture, spec)
    assert loaded.geometry == Geometry(original=(101, 66), box=(30, 17, 70, 49))
    np.testing.assert_array_equal(loaded.pixels, np.asarray(picture)[17:49, 30:70])
    whole = load(ramp(40, 32), InputSpec(size=(32, 40), resize=None, crop=None))
    assert whole.geometry == Geometry(original=(40, 32), box=(0, 0, 40, 32))


def test_the_size_is_that_of_the_upright_original() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    ramp(90, 60).save(file, "PNG", exif=exif)
    geometry = load(file.getvalue(), InputSpec(size=(32, 32), resize=32, crop=(32, 32))).geometry
    assert geometry is not None
    assert geometry.original == (60, 90)


def test_an_encoded_image_has_no_geometry() -> None:
    spec = InputSpec(size=(8, 8), resize=8, crop=(8, 8))
    loaded = load(encode(np.zeros((8, 8, 3), np.uint8)), spec, enlarge=3)
    assert (loaded.geometry, loaded.display) == (None, None)


@pytest.mark.parametrize("box", [(0, 0, 11, 5), (-1, 0, 5, 5), (5, 0, 5, 5), (0, 6, 5, 5), (0, 0, float("nan"), 5)])
def test_a_box_outside_the_original_is_refused(box: Any) -> None:
    with pytest.raises(ValidationError):
        Geometry(original=(10, 10), box=box)


@pytest.mark.parametrize("size", [(300, 200), (201, 333), (640, 640)], ids=str)
def test_the_display_shows_the_same_crop_with_more_pixels(size: tuple[int, int]) -> None:
    spec = InputSpec(size=(32, 48), resize=50, crop=(32, 48))
    loaded = load(ramp(*size), spec, enlarge=3)
    assert loaded.display is not None
    assert loaded.display.shape == (96, 144, 3)
    shrunk = Image.fromarray(loaded.display).resize((48, 32), Image.Resampling.BOX)
    np.testing.assert_allclose(np.asarray(shrunk, float), loaded.pixels, atol=2)


def test_there_is_no_display_that_shows_nothing_new() -> None:
    spec = InputSpec(size=(32, 32), resize=32, crop=(32, 32))
    assert load(ramp(300, 200), spec).display is None, "not asked for"
    assert load(ramp(32, 32), spec, enlarge=7).display is None, "the original has no more pixels"
    assert load(ramp(20, 30), spec, enlarge=7).display is None, "the original was made larger"
