"""All forms of an image that can be loaded, and damaged or hostile ones that are refused."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from support.export_extra import HAVE_TORCH, torch

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ImageTooLargeError, InputError, UnreadableImageError
from bcos_sdk.images import decode, encode, is_one_image, load_image, source_name
from bcos_sdk.limits import Limits

SPEC = InputSpec(size=(24, 32), resize=None, crop=None)
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)


def png(pixels: Any = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def load(image: Any, limits: Limits | None = None) -> Any:
    return load_image(image, source_name(image, 7), SPEC, limits or Limits())


def test_all_forms_of_an_image_give_the_same_input(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(png())
    forms: dict[str, Any] = {
        "path": path,
        "name": str(path),
        "bytes": png(),
        "bytearray": bytearray(png()),
        "memoryview": memoryview(png()),
        "buffer": io.BytesIO(png()),
        "picture": Image.fromarray(PIXELS),
        "lazy picture": Image.open(path),
        "array": PIXELS,
        "array of another order": np.asfortranarray(PIXELS),
        "reversed view": PIXELS[:, ::-1][:, ::-1],
        "encoded": encode(PIXELS),
        "encoded in float64": encode(PIXELS).astype(np.float64),
    }
    if HAVE_TORCH:
        forms["tensor"] = torch.from_numpy(encode(PIXELS))
    with path.open("rb") as file:
        forms["file"] = file
        for name, form in forms.items():
            assert is_one_image(form), name
            loaded = load(form)
            np.testing.assert_array_equal(loaded.pixels, PIXELS, err_msg=name)
            np.testing.assert_array_equal(loaded.encoded, encode(PIXELS), err_msg=name)


def test_grey_arrays_become_three_equal_channels() -> None:
    grey = PIXELS[..., 0]
    np.testing.assert_array_equal(load(grey).pixels, np.repeat(grey[..., None], 3, axis=2))


def test_collections_are_not_images() -> None:
    for images in ([PIXELS], np.stack([PIXELS, PIXELS]), np.array(["a.png"]), iter(["a.png"]), {"a.png"}, ("a.png",)):
        assert not is_one_image(images)


def test_the_source_is_the_path_or_the_position(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(png())
    with path.open("rb") as file, Image.open(path) as picture:
        for image in (path, str(path), picture, file):
            assert source_name(image, 3) == str(path)
    assert source_name(PIXELS, 4) == "image 4 (ndarray)"
    assert source_name(b"", 5) == "image 5 (bytes)"


@given(st.integers(0, 2**32 - 1))
def test_encoding_is_exact_and_reversible(seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    encoded = encode(pixels)
    as_torch = torch.from_numpy(pixels).permute(2, 0, 1).float().div(255)
    np.testing.assert_array_equal(encoded, torch.cat([as_torch, 1 - as_torch]).numpy())
    np.testing.assert_array_equal(decode(encoded), pixels)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (encode(PIXELS)[:, :-1], r"its shape is \[6, 23, 32\]"),
        (np.moveaxis(encode(PIXELS), 0, 2), r"its shape is \[24, 32, 6\]"),
        ((encode(PIXELS) - 0.45) / 0.225, "its values range from -2 to"),
        (encode(PIXELS) * 255, "its values range from 0 to 255"),
        (np.concatenate([encode(PIXELS)[:3]] * 2), "channels 3 to 5 are not 1 − rgb"),
        (encode(PIXELS) * np.float32(np.nan), "NaN or infinite"),
        (PIXELS.transpose(2, 0, 1), r"is an array uint8 \[3, 24, 32\]"),
        (PIXELS.astype(np.int64), r"is an array int64 \[24, 32, 3\]"),
        (PIXELS[..., :2], r"is an array uint8 \[24, 32, 2\]"),
        (np.zeros((0, 32, 3), np.uint8), "has no pixels"),
        (np.array("text"), "is an array <U4"),
    ],
)
def test_wrong_arrays_are_refused_with_a_hint_of_what_is_expected(array: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        load(array)
    assert caught.type is InputError, "not one of its family"
    assert caught.value.source == "image 7 (ndarray)"
    if "no pixels" not in reason:
        assert "[6, 24, 32]" in str(caught.value)


def test_encoded_images_in_float16_are_accepted() -> None:
    assert load(encode(PIXELS).astype(np.float16)).encoded.dtype == np.float32


@pytest.mark.parametrize("form", [3, None, object(), io.StringIO("text")])
def test_objects_that_are_not_images_are_refused(form: Any) -> None:
    with pytest.raises(InputError) as caught:
        load(form)
    assert caught.type is InputError, "not one of its family"


class Failing:
    """A file that cannot be read any more."""

    def read(self, _size: int) -> bytes:
        raise OSError("connection lost")


class OnGpu:
    """An array that numpy cannot read."""

    shape = (6, 24, 32)

    def __array__(self, *_: object, **__: object) -> None:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize(("form", "reason"), [(Failing(), "connection lost"), (OnGpu(), "cuda:0")])
def test_errors_of_the_callers_objects_become_typed_errors(form: Any, reason: str) -> None:
    with pytest.raises(UnreadableImageError, match=reason):
        load(form)


def test_paths_that_are_not_regular_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match="there is no file"):
        load(tmp_path / "missing.png")
    with pytest.raises(UnreadableImageError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(UnreadableImageError, match="cannot read"):
        load("a\0b.png")
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(UnreadableImageError, match="not a regular file"):
        load(fifo)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes whose header declares a very large size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(8001, 8001), (10_000, 10_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    with pytest.raises(ImageTooLargeError):
        load(bomb(*size))


def test_limits_on_bytes_pixels_and_formats(tmp_path: Path) -> None:
    contents = png()
    path = tmp_path / "image.png"
    path.write_bytes(contents)
    few = Limits(bytes=len(contents) - 1)
    forms: list[Any] = [contents, path, io.BytesIO(contents)]
    for form in forms:
        with pytest.raises(ImageTooLargeError, match="bytes"):
            load(form, few)
        load(form if not isinstance(form, io.BytesIO) else io.BytesIO(contents), Limits(bytes=len(contents)))
    others: list[Any] = [contents, PIXELS, Image.fromarray(PIXELS)]
    for form in others:
        with pytest.raises(ImageTooLargeError, match="32 × 24 pixels"):
            load(form, Limits(pixels=767))
        load(form, Limits(pixels=768))
    with pytest.raises(UnreadableImageError, match="not an image of an allowed format"):
        load(contents, Limits(formats=("JPEG",)))
    ico = io.BytesIO()
    Image.fromarray(PIXELS).save(ico, "ICO")
    with pytest.raises(UnreadableImageError, match="allowed format"):
        load(ico.getvalue())


@pytest.mark.parametrize("options", [{"formats": ("HEIF2",)}, {"pixels": 10**9}, {"bytes": 0}, {"images": -1}])
def test_invalid_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Limits(**options)


@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_damaged_files_raise_typed_errors_only(suffix: str) -> None:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, suffix)
    whole = file.getvalue()
    generator = np.random.default_rng(0)
    for cut in range(0, len(whole), max(1, len(whole) // 40)):
        with pytest.raises(BcosError):
            load(whole[:cut])
    for _ in range(60):
        damaged = bytearray(whole)
        for place in generator.integers(0, len(whole), 4):
            damaged[place] ^= int(generator.integers(1, 256))
        with contextlib.suppress(BcosError):  # a changed pixel may still decode; no other error is allowed
            load(bytes(damaged))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(noise: bytes) -> None:
    with pytest.raises(BcosError):
        load(noise)
