"""Metadata does not change the pixels, cannot make decoding slow or fail, and still rotates photographs upright."""

from __future__ import annotations

import contextlib
import io
import resource
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin
from support.image_files import exif, exif_directory, png_chunk, tiff, with_chunks, with_segments

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ImageTooLargeError, UnreadableImageError
from bcos_sdk.images import load_image
from bcos_sdk.limits import MOST_PIXELS, Limits

SIZE = (24, 32)
PIXELS = np.asarray(Image.linear_gradient("L").resize((32, 24)).convert("RGB")) // 2 + np.arange(3, dtype=np.uint8) * 40
SPEC = InputSpec(size=(24, 24), resize=24, crop=(24, 24))


def load(image: Any, limits: Limits | None = None) -> Any:
    return load_image(image, "picture", SPEC, limits or Limits())


def saved(suffix: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, suffix, **options)
    return file.getvalue()


def upside_down(pixels: Any) -> Any:
    return pixels[::-1, ::-1]


FORMATS = ["JPEG", "PNG", "WEBP"]


def with_exif(suffix: str, contents: bytes) -> bytes:
    """A file with this EXIF, in as many segments as JPEG needs."""
    if suffix == "PNG":
        return with_chunks(saved("PNG"), png_chunk(b"eXIf", contents))
    if suffix == "JPEG":
        parts = [contents[place : place + 65000] for place in range(0, len(contents), 65000)]
        return with_segments(saved("JPEG", quality=95), *((0xE1, b"Exif\0\0" + part) for part in parts))
    return saved("WEBP", lossless=True, exif=contents)


@pytest.fixture
def no_exif_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding all of EXIF is what took a minute for 60 MB, so nothing may start it."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("all of EXIF is decoded")

    monkeypatch.setattr(Image.Exif, "load", refuse)
    monkeypatch.setattr(Image.Exif, "tobytes", refuse)


@pytest.mark.usefixtures("no_exif_is_decoded")
@pytest.mark.parametrize("suffix", FORMATS)
def test_only_the_orientation_is_read_from_exif(suffix: str) -> None:
    plain = load(saved(suffix, **({"quality": 95} if suffix == "JPEG" else {"lossless": True}))).pixels
    for rationals in (0, 20_000):
        turned = load(with_exif(suffix, exif(3, rationals)))
        np.testing.assert_array_equal(turned.pixels, upside_down(plain))
        assert turned.notes == ()


def test_many_small_segments_are_not_joined(no_exif_is_decoded: None) -> None:
    """Pillow joins them in quadratic time: 20 MB took more than a minute."""
    many = [(0xE1, b"Exif\0\0" + exif(3))] + [(0xE1, b"Exif\0\0more")] * 5000
    contents = with_segments(saved("JPEG", quality=95), *many)
    np.testing.assert_array_equal(load(contents).pixels, upside_down(load(saved("JPEG", quality=95)).pixels))
    with pytest.raises(UnreadableImageError, match="more than 65,536 parts"):
        load(with_segments(saved("JPEG"), *[(0xFE, b"")] * 70_000))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["BYTE", "SHORT", "LONG"])
def test_the_orientation_may_have_any_whole_type_and_byte_order(order: str, kind: str) -> None:
    number = {"BYTE": (1, "B"), "SHORT": (3, "H"), "LONG": (4, "I")}[kind]
    entry = struct.pack(f"{order}HHI", 0x0112, number[0], 1) + struct.pack(order + number[1], 3).ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, 1)
    turned = load(with_exif("PNG", head + entry + b"\0\0\0\0"))
    np.testing.assert_array_equal(turned.pixels, upside_down(load(saved("PNG")).pixels))


def test_the_orientation_is_also_read_from_xmp_and_from_profiles_in_text() -> None:
    xmp = b'<rdf:Description tiff:Orientation="3"/>'
    profile = b"\nexif\n      26\n" + exif(3).hex().encode()
    files = {
        "XMP of JPEG": with_segments(saved("JPEG", quality=95), (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp)),
        "XMP of PNG": with_chunks(saved("PNG"), png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)),
        "text": with_chunks(saved("PNG"), png_chunk(b"tEXt", b"Raw profile type exif\0" + profile)),
        "compressed text": with_chunks(
            saved("PNG"), png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile))
        ),
    }
    for name, contents in files.items():
        plain = load(saved("JPEG", quality=95) if "JPEG" in name else saved("PNG")).pixels
        np.testing.assert_array_equal(load(contents).pixels, upside_down(plain), err_msg=name)
        opened = Image.open(io.BytesIO(contents))
        np.testing.assert_array_equal(load(opened).pixels, upside_down(plain), err_msg=f"{name}, opened by the caller")


@pytest.mark.parametrize("suffix", [*FORMATS, "GIF", "TIFF"])
def test_what_follows_the_picture_does_not_matter(suffix: str) -> None:
    plain = load(saved(suffix), Limits(formats=(suffix,))).pixels
    for rest in (bytes(4_000_000), b"\xff\xe1\0\4ab" * 300_000, png_chunk(b"eXIf", exif(3))):
        np.testing.assert_array_equal(load(saved(suffix) + rest, Limits(formats=(suffix,))).pixels, plain)


def test_metadata_that_pillow_refuses_does_not_matter() -> None:
    """Photoshop writes XMP of more than a megabyte, which makes Pillow refuse the whole file."""
    large = zlib.compress(b"x" * (2 << 20))
    plain = load(saved("PNG")).pixels
    for chunk in (png_chunk(b"zTXt", b"note\0\0" + large), png_chunk(b"iCCP", b"profile\0\0" + large)):
        np.testing.assert_array_equal(load(with_chunks(saved("PNG"), chunk)).pixels, plain)


def test_comments_of_gif_files_are_skipped() -> None:
    whole = saved("GIF")
    table = 13 + (3 << ((whole[10] & 7) + 1))
    comment = b"\x21\xfe" + (b"\xff" + b"c" * 255) * 2000 + b"\0"
    np.testing.assert_array_equal(load(whole[:table] + comment + whole[table:]).pixels, load(whole).pixels)
    with pytest.raises(UnreadableImageError, match="parts"):
        load(whole[:table] + b"\x21\xfe" + b"\x01c" * 300_000 + b"\0" + whole[table:])


@given(st.sampled_from(["JPEG", "PNG", "GIF", "TIFF"]), st.binary(max_size=40), st.integers(0, 10**6))
def test_damage_before_the_pixels_gives_a_result_or_a_typed_error(suffix: str, noise: bytes, seed: int) -> None:
    whole = saved(suffix)
    place = seed % min(200, len(whole))
    for damaged in (whole[:place] + noise + whole[place:], whole[:place] + noise + whole[place + len(noise) :]):
        with contextlib.suppress(BcosError):
            load(damaged)


# ------------------------------------------------------------------------------------------------------------ TIFF


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1"])
def test_tiff_is_read_like_other_formats(compression: str, mode: str) -> None:
    picture = Image.fromarray(PIXELS).convert(mode)
    contents = io.BytesIO()
    picture.save(contents, "TIFF", compression=compression)
    np.testing.assert_array_equal(load(contents.getvalue()).pixels, load(picture).pixels)


@pytest.mark.parametrize("big", [False, True])
def test_only_the_first_page_is_read_and_a_note_says_so(big: bool) -> None:
    pages = [Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)]
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], big_tiff=big)
    loaded = load(file.getvalue())
    np.testing.assert_array_equal(loaded.pixels, load(pages[0]).pixels)
    assert loaded.notes == ("the file has several pages: the first one is used",)
    assert load(saved("TIFF")).notes == ()


def test_tiff_is_rotated_upright_by_its_tag_once() -> None:
    for compressed in (False, True):
        turned = load(tiff(PIXELS, compressed=compressed, tags={274: 3})).pixels
        np.testing.assert_array_equal(turned, upside_down(load(tiff(PIXELS)).pixels))


def test_hostile_directories_of_tiff_files_are_refused_or_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    plain = load(tiff(PIXELS)).pixels
    overlapping = [(40000 + place, 7, 2000, 8) for place in range(2000)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.testing.assert_array_equal(load(tiff(PIXELS, more=overlapping)).pixels, plain)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "2,000 tags share one piece of data"
    for more, reason in (
        ([(273, 4, 300_000, 8)], "tag 273 has 300,000 values"),
        ([(320, 3, 600_000, 8)], "tag 320 has 600,000 values"),
        ([(322, 4, 1, 40_000), (323, 4, 1, 40_000)], "tiles have 40000 × 40000 pixels"),
        ([(277, 3, 1, 200)], "pixels have 200 samples"),
    ):
        with pytest.raises(UnreadableImageError, match=reason):
            load(tiff(PIXELS, more=more))
    for contents, reason in (
        (b"II*\0\xff\xff\xff\x7f", "cut off"),
        (exif_directory([(256, 4, 1, 8)] * 5000), "5,000 entries"),
        (b"MM\0+" + b"\0" * 40, "big-endian BigTIFF"),
        (exif_directory([(256, 4, 1, 8), (257, 4, 1, 8)]), "cannot be decoded"),
    ):
        with pytest.raises(UnreadableImageError, match=reason):
            load(contents)
    assert capfd.readouterr().err == ""


def test_libtiff_prints_nothing_to_stderr_and_has_its_handler_back(capfd: pytest.CaptureFixture[str]) -> None:
    whole = tiff(PIXELS, compressed=True)
    damaged = whole[:20] + bytes(40) + whole[60:]
    with pytest.raises(UnreadableImageError, match="is damaged"):
        load(damaged)
    assert capfd.readouterr().err == ""
    with pytest.raises(OSError, match="decoder error"):
        Image.open(io.BytesIO(damaged)).load()
    assert "ZIPDecode" in capfd.readouterr().err, "others who use Pillow in this process still see its messages"


@pytest.mark.parametrize("suffix", [*FORMATS, "GIF", "TIFF"])
def test_the_handler_of_the_process_is_replaced_for_tiff_only(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    monkeypatch.setattr("bcos_sdk.images._libtiff._set_error_handler", lambda: handlers.append)
    load(saved(suffix), Limits(formats=(suffix,)))
    assert len(handlers) == (2 if suffix == "TIFF" else 0), "replaced and restored"


def test_tiff_has_the_same_limits() -> None:
    with pytest.raises(ImageTooLargeError, match="32 × 24 pixels"):
        load(tiff(PIXELS), Limits(pixels=767))
    with pytest.raises(UnreadableImageError, match="allowed format"):
        load(tiff(PIXELS), Limits(formats=("PNG",)))
    assert TiffImagePlugin.READ_LIBTIFF is False


# ---------------------------------------------------------------------------------------------------------- pixels


@pytest.mark.parametrize("suffix", ["PNG", "TIFF"])
def test_the_hint_about_large_images_is_true(suffix: str) -> None:
    def of_size(width: int, height: int) -> bytes:
        if suffix == "TIFF":
            return tiff(PIXELS, more=[(256, 4, 1, width), (257, 4, 1, height)])
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(b"\0" * 99))

    with pytest.raises(ImageTooLargeError, match="10000 × 8000 pixels") as caught:
        load(of_size(10_000, 8_000))
    assert caught.value.hint == "Make the image smaller, or raise Limits(pixels=…)."
    Limits(pixels=80_000_000)
    with pytest.raises(ImageTooLargeError) as caught:
        load(of_size(20_000, 20_000))
    assert caught.value.hint == "Make the image smaller: Limits(pixels=…) can be raised to at most 178,956,970."
    Limits(pixels=MOST_PIXELS)
