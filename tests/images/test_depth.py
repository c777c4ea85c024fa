"""16-bit files and arrays are scaled by the range that they state or that is found in them, and say so."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.image_files import png, png_chunk, tiff

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.images import LoadedImage, load_image
from bcos_sdk.limits import Limits

SPEC = InputSpec(size=(12, 16), resize=None, crop=None)


def load(image: Any) -> LoadedImage:
    return load_image(image, "picture", SPEC, Limits())


def values_up_to(top: int, *channels: int, seed: int = 0) -> npt.NDArray[np.uint16]:
    values = np.random.default_rng(seed).integers(0, top + 1, (*SPEC.size, *channels), dtype=np.uint16)
    values.flat[:4] = top
    return values


def as_8_bits(values: npt.NDArray[np.uint16], bits: int) -> npt.NDArray[np.uint8]:
    """The oracle, value by value: ⌊256 · value / 2^bits⌋ of the colours, as [H, W, 3]."""
    colours = values.reshape(*SPEC.size, -1)
    colours = colours[..., :1] if colours.shape[2] < 3 else colours[..., :3]
    scaled = [256 * int(value) // 2**bits for value in colours.flat]
    return np.broadcast_to(np.array(scaled, np.uint8).reshape(colours.shape), (*SPEC.size, 3))


def depth_of(top: int) -> int:
    return 8 if top <= 255 else 10 if top <= 1023 else 12 if top <= 4095 else 14 if top <= 16383 else 16


@given(st.integers(1, 65535), st.sampled_from([(), (1,), (3,), (4,)]), st.integers(0, 9))
def test_a_picture_is_scaled_alike_in_every_form(top: int, channels: tuple[int, ...], seed: int) -> None:
    values = values_up_to(top, *channels, seed=seed)
    if channels == (4,):
        values[..., 3] = 65535  # alpha is no colour
    expected = as_8_bits(values, depth_of(top))
    forms: list[Any] = [values, values.astype(">u2"), png(values), tiff(values), tiff(values, order=">")]
    forms.append(tiff(values, compressed=True))
    if channels == ():
        forms += [Image.fromarray(values), Image.fromarray(values.astype(np.int32))]
    for form in forms:
        loaded = load(form)
        np.testing.assert_array_equal(loaded.pixels, expected)
        bits = depth_of(top)
        note = f"16-bit values up to {top}: scaled as {bits} bits (0 to {2**bits - 1})"
        assert loaded.notes == ((note,) if bits < 16 else ())


def test_grey_with_alpha_is_read_with_all_bits() -> None:
    values = values_up_to(4095, 2)
    values[..., 1] = 65535
    np.testing.assert_array_equal(load(png(values)).pixels, as_8_bits(values, 12))


def test_interlaced_files_are_read_with_all_bits() -> None:
    """Pillow cannot write these, so the seven passes are written here."""
    values = values_up_to(4000, 3)
    height, width = SPEC.size
    rows = b""
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        rows += b"".join(b"\0" + row.astype(">u2").tobytes() for row in values[y::dy, x::dx])
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    contents = b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)
    np.testing.assert_array_equal(load(contents).pixels, as_8_bits(values, 12))


@pytest.mark.parametrize("channels", [(), (3,)], ids=["grey", "colour"])
def test_a_png_states_its_significant_bits(channels: tuple[int, ...]) -> None:
    bits = bytes([12] * (channels[0] if channels else 1))
    dark = values_up_to(900, *channels)
    loaded = load(png(dark, png_chunk(b"sBIT", bits)))
    np.testing.assert_array_equal(loaded.pixels, as_8_bits(dark, 12))
    assert loaded.notes == ("16-bit values: scaled as 12 bits, as the file states",)
    scaled = dark * 16  # as the specification of PNG wants it
    loaded = load(png(scaled, png_chunk(b"sBIT", bits)))
    np.testing.assert_array_equal(loaded.pixels, as_8_bits(dark, 12))
    darker = values_up_to(90, *channels) * 16
    loaded = load(png(darker, png_chunk(b"sBIT", bits)))
    np.testing.assert_array_equal(loaded.pixels, as_8_bits(darker, 16))
    all_bits = png(dark, png_chunk(b"sBIT", bytes([16] * len(bits))))
    np.testing.assert_array_equal(load(all_bits).pixels, as_8_bits(dark, 16))
    assert load(all_bits).notes == ()


@pytest.mark.parametrize("tag", [281, 341], ids=["MaxSampleValue", "SMaxSampleValue"])
def test_a_tiff_states_its_largest_sample(tag: int) -> None:
    dark = values_up_to(900)
    np.testing.assert_array_equal(load(tiff(dark, tags={tag: 4095})).pixels, as_8_bits(dark, 12))
    np.testing.assert_array_equal(load(tiff(dark, tags={tag: 65535})).pixels, as_8_bits(dark, 16))
    found = load(tiff(dark, tags={tag: 100}))
    np.testing.assert_array_equal(found.pixels, as_8_bits(dark, 10), err_msg="a stated maximum that is too small")


def test_tiff_with_white_as_zero_is_inverted() -> None:
    for values in (values_up_to(4095), values_up_to(65535)):
        expected = 255 - as_8_bits(values, depth_of(int(values.max())))
        np.testing.assert_array_equal(load(tiff(values, white_is_zero=True)).pixels, expected)
        np.testing.assert_array_equal(load(tiff(values, white_is_zero=True, compressed=True)).pixels, expected)


def test_16_bit_colours_in_separate_planes_are_right_or_refused() -> None:
    bright, dim = values_up_to(65535, 3), values_up_to(4095, 3)
    np.testing.assert_array_equal(load(tiff(bright, separate=True, compressed=True)).pixels, as_8_bits(bright, 16))
    with pytest.raises(InputError, match="their lower bits cannot be read"):
        load(tiff(dim, separate=True, compressed=True))
    with pytest.raises(InputError, match="separate planes"):
        load(tiff(bright, separate=True))
    levels = (bright >> 8).astype(np.uint8)
    np.testing.assert_array_equal(load(tiff(levels, separate=True)).pixels, levels)


def test_a_pil_image_that_lost_its_lower_bits_is_not_black_in_silence() -> None:
    contents = png(values_up_to(4095, 3))
    opened = Image.open(io.BytesIO(contents))
    with pytest.raises(InputError, match="a PIL image keeps the upper 8 bits") as caught:
        load(opened)
    assert "Pass the path" in str(caught.value)
    assert load(opened).notes == (  # now it is loaded, and Pillow no longer knows that it had 16 bits
        "values up to 15 of 255: if the file has 16-bit colours, pass its path instead of a PIL image",
    )
    assert load(Image.open(io.BytesIO(png(values_up_to(65535, 3))))).notes == ()


def test_black_needs_no_note() -> None:
    for image in (png(values_up_to(0)), png(values_up_to(0, 3)), values_up_to(0)):
        loaded = load(image)
        assert not loaded.pixels.any()
        assert loaded.notes == ()
