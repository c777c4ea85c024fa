"""Bounds on the work of decoding let every ordinary file through."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image
from support.hostile_images import empty_png_chunks, empty_webp_chunks, jpeg_of_scans, webp_canvas

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ImageTooLargeError, UnreadableImageError
from bcos_sdk.images import load_image
from bcos_sdk.limits import MOST_PIXELS, Limits

SPEC = InputSpec(size=(24, 24), resize=24, crop=(24, 24))


def load(image: Any, limits: Limits | None = None) -> Any:
    return load_image(image, "picture", SPEC, limits or Limits())


def saved(suffix: str, size: tuple[int, int] = (83, 61), **options: Any) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, suffix, **options)
    return file.getvalue()


def test_default_limit_admits_cameras_of_50_megapixels() -> None:
    assert max(8192 * 6144, 8688 * 5792, 8160 * 6144) <= Limits().pixels < MOST_PIXELS


def test_up_to_a_hundred_scans_are_decoded() -> None:
    load(jpeg_of_scans(100, (64, 64)))
    with pytest.raises(UnreadableImageError, match="it has 101 scans"):
        load(jpeg_of_scans(101, (64, 64)))


def test_progressive_jpeg_of_the_largest_size_has_room_for_its_scans() -> None:
    scans = saved("JPEG", progressive=True).count(b"\xff\xda")
    assert scans * MOST_PIXELS <= 1 << 31


@pytest.mark.parametrize("progressive", [False, True])
def test_only_markers_of_the_picture_are_counted(progressive: bool) -> None:
    """Phones append films to photographs, and metadata may hold thumbnails: both contain the bytes of a scan."""
    contents = saved("JPEG", progressive=progressive)
    first = contents.index(b"\xff\xda")
    comment = b"\xff\xfe" + (2 + 2 * 500).to_bytes(2, "big") + b"\xff\xda" * 500
    between = contents.index(b"\xff\xda", first + 2) if progressive else first
    quantized = contents[:between] + comment + contents[between:]
    for file in (contents + b"\xff\xda" * 500, quantized):
        assert (load(file).pixels == load(contents).pixels).all()


def test_fill_bytes_before_markers_are_allowed() -> None:
    contents = saved("JPEG")
    assert (load(contents[:2] + b"\xff" * 5000 + contents[2:]).pixels == load(contents).pixels).all()


def test_thousands_of_chunks_are_decoded() -> None:
    for contents in (empty_png_chunks(b"IDAT", 20_000), empty_webp_chunks(20_000)):
        load(contents)
    load(saved("WEBP") + bytes(1 << 20))


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0"}, {"save_all": True}])
def test_size_of_webp_is_read_from_each_kind_of_header(options: dict[str, Any]) -> None:
    if "save_all" in options:
        options = options | {"append_images": [Image.new("RGB", (83, 61))]}
    contents = saved("WEBP", **options)
    room = 4 if "save_all" in options else 1
    load(contents, Limits(pixels=83 * 61 * room))
    with pytest.raises(ImageTooLargeError, match="83 × 61 pixels"):
        load(contents, Limits(pixels=83 * 61 * room - 1))


def test_canvas_of_a_webp_that_is_not_allowed_does_not_matter() -> None:
    with pytest.raises(UnreadableImageError, match="allowed format"):
        load(webp_canvas(16383, 16383, animated=True), Limits(formats=("PNG",)))


def test_scans_of_a_sequential_jpeg_with_one_component_each_are_counted() -> None:
    """Its decoder reads all scans of the file, as that of a progressive JPEG does."""
    contents = saved("JPEG", progressive=True).replace(b"\xff\xc2", b"\xff\xc0", 1)
    place = contents.index(b"\xff\xda")
    assert contents[place + 4] == 3
    one_component = contents[: place + 4] + b"\1" + contents[place + 5 :]
    with pytest.raises(UnreadableImageError, match="it has 101 scans"):
        load(one_component[:-2] + b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 200 + b"\xff\xd9")
