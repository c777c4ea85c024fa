"""Preprocessing in JavaScript against Pillow and our Python, pixel by pixel."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
import pytest
from PIL import Image
from support.node import call

from bcos_sdk.contract import InputSpec
from bcos_sdk.images import encode, load_image, to_rgb
from bcos_sdk.limits import Limits

pytestmark = pytest.mark.skipif(
    int(PIL.__version__.split(".")[0]) < 13,
    reason="Pillow 13 has changed the order in which it resizes rows and columns",
)

Pixels = npt.NDArray[np.uint8]
SIZES = ((1, 1), (2, 3), (7, 5), (31, 32), (45, 90), (101, 67), (224, 224), (333, 257))
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def noise(height: int, width: int, channels: int = 3) -> Pixels:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, channels), dtype=np.uint8)


def given(pixels: Pixels) -> dict[str, Any]:
    height, width, channels = pixels.shape
    return {"width": width, "height": height, "channels": channels, "data": pixels.reshape(-1)}


def taken(answer: dict[str, Any]) -> Pixels:
    assert "error" not in answer, answer
    pixels: Pixels = answer["data"].reshape(answer["height"], answer["width"], answer["channels"])
    return pixels


@pytest.mark.parametrize("interpolation", FILTERS)
def test_resizing_is_that_of_pillow(interpolation: str) -> None:
    cases = [(source, target) for source in SIZES for target in SIZES]
    answers = call(
        "resample.js",
        [("resizePixels", [given(noise(*source)), target[1], target[0], interpolation]) for source, target in cases],
    )
    for (source, target), answer in zip(cases, answers, strict=True):
        expected = Image.fromarray(noise(*source)).resize(target[::-1], FILTERS[interpolation])
        assert np.array_equal(taken(answer), np.asarray(expected)), (source, target)


def test_resizing_a_part_is_that_of_pillow() -> None:
    boxes = [(0, 0, 45, 90), (3.25, 7.5, 40.125, 88), (10, 20, 11, 21), (0.1, 0.2, 44.9, 89.7)]
    answers = call(
        "resample.js", [("resizePixels", [given(noise(90, 45)), 64, 32, "bicubic", [*box]]) for box in boxes]
    )
    for box, answer in zip(boxes, answers, strict=True):
        expected = Image.fromarray(noise(90, 45)).resize((64, 32), Image.Resampling.BICUBIC, box=box)
        assert np.array_equal(taken(answer), np.asarray(expected)), box


def test_black_white_and_edges_do_not_overflow() -> None:
    stripes = np.where(np.arange(97)[None, :, None] % 7 < 3, 255, 0).astype(np.uint8) * np.ones((61, 1, 3), np.uint8)
    (answer,) = call("resample.js", [("resizePixels", [given(stripes), 31, 200, "bicubic"])])
    expected = Image.fromarray(stripes).resize((31, 200), Image.Resampling.BICUBIC)
    assert np.array_equal(taken(answer), np.asarray(expected))


SPECS = (
    InputSpec.for_photographs((32, 32)),
    InputSpec.for_photographs((32, 32), 32),
    InputSpec.for_photographs((224, 224)),
    InputSpec.for_photographs((20, 28), 33),
    InputSpec.for_photographs((24, 24), channels="grey+complement"),
    InputSpec.for_photographs((24, 24), channels="rgb"),
    InputSpec(size=(24, 24), resize=40, crop=(24, 24), interpolation="bicubic"),
    InputSpec.for_photographs((24, 24), channels="grey"),
)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_networks_input_is_that_of_python(spec: InputSpec) -> None:
    sizes = [(90, 45), (45, 91), (33, 33), (301, 57), (28, 27)]
    document = spec.model_dump(mode="json")
    prepared = call("preprocessing.js", [("prepare", [given(noise(*size)), document]) for size in sizes])
    encoded = call("preprocessing.js", [("encode", [one["pixels"], spec.channels]) for one in prepared])
    for size, answer, array in zip(sizes, prepared, encoded, strict=True):
        expected = load_image(Image.fromarray(noise(*size)), "noise", spec, Limits())
        assert np.array_equal(taken(answer["pixels"]), expected.pixels), size
        assert np.array_equal(array, expected.encoded.reshape(-1)), size
        assert expected.geometry is not None
        assert answer["geometry"]["box"] == pytest.approx([*expected.geometry.box], rel=1e-15)
        assert tuple(answer["geometry"]["original"]) == expected.geometry.original


def test_a_picture_with_alpha_loses_only_alpha() -> None:
    spec = InputSpec.for_photographs((32, 32))
    pixels = noise(61, 47, 4)
    for resize in (36, 47):
        document = spec.model_copy(update={"resize": resize}).model_dump(mode="json")
        with_alpha, without = call(
            "preprocessing.js",
            [
                ("prepare", [given(pixels), document]),
                ("prepare", [given(np.ascontiguousarray(pixels[..., :3])), document]),
            ],
        )
        assert np.array_equal(taken(with_alpha["pixels"]), taken(without["pixels"]))


def test_sizes_that_do_not_fit_are_refused() -> None:
    exact = InputSpec.exact((32, 32)).model_dump(mode="json")
    cropped = InputSpec(size=(32, 32), resize=None, crop=(32, 32)).model_dump(mode="json")
    long = InputSpec.for_photographs((224, 224)).model_dump(mode="json")
    wrong, small, thin = call(
        "preprocessing.js",
        [
            ("prepare", [given(noise(30, 32)), exact]),
            ("prepare", [given(noise(30, 40)), cropped]),
            ("prepare", [given(noise(1, 60_000)), long]),
        ],
    )
    assert wrong["error"] == small["error"] == "input_invalid"
    assert "32 × 30" in wrong["message"]
    assert thin["error"] == "image_too_large"


def png(picture: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG", **options)
    return file.getvalue()


def raw_png(
    width: int, height: int, depth: int, kind: int, rows: bytes, *chunks: tuple[bytes, bytes], adam7: bool = False
) -> bytes:
    """A PNG file from filtered rows, for kinds that Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, adam7)
    written = b"\x89PNG\r\n\x1a\n"
    for name, body in ((b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        written += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return written


def filtered(rows: Pixels, seed: int = 0) -> bytes:
    """Any bytes are valid rows: each begins with one of the five filters."""
    filters = np.random.default_rng(seed).integers(0, 5, (len(rows), 1), dtype=np.uint8)
    return np.concatenate([filters, rows], axis=1).tobytes()


def every_kind() -> dict[str, bytes]:
    colours, alpha = noise(23, 37), noise(23, 37, 4)
    palette = Image.fromarray(colours).quantize(50)
    transparent = palette.copy()
    transparent.info["transparency"] = 3
    found = {
        "rgb": png(Image.fromarray(colours)),
        "rgba": png(Image.fromarray(alpha)),
        "grey": png(Image.fromarray(colours[..., 0])),
        "grey with alpha": png(Image.fromarray(alpha[..., :2], "LA")),
        "one bit": png(Image.fromarray(colours[..., 0]).convert("1")),
        "palette": png(palette),
        "palette of 4 bits": png(Image.fromarray(colours).quantize(9), bits=4),
        "transparent palette": png(transparent),
        "one pixel": png(Image.fromarray(colours[:1, :1])),
    }
    generator = np.random.default_rng(7)
    for depth, kind, samples in (
        (2, 0, 1),
        (4, 0, 1),
        (16, 0, 1),
        (16, 2, 3),
        (16, 4, 2),
        (16, 6, 4),
        (8, 2, 3),
        (8, 6, 4),
    ):
        rows = generator.integers(0, 256, (23, -(-37 * samples * depth // 8)), dtype=np.uint8)
        found[f"kind {kind} of {depth} bits"] = raw_png(37, 23, depth, kind, filtered(rows))
    return found


def test_png_files_are_decoded_as_by_python() -> None:
    files = every_kind()
    spec = InputSpec.exact((1, 1))
    answers = call("png.js", [("decodePng", [contents]) for contents in files.values()])
    for (name, contents), answer in zip(files.items(), answers, strict=True):
        found = taken(answer["pixels"])
        exact = spec.model_copy(update={"size": found.shape[:2]})
        expected = load_image(contents, name, exact, Limits())
        assert np.array_equal(found, expected.pixels), name
        assert answer["notes"] == [*expected.notes], name


def test_16_bits_are_scaled_as_by_python() -> None:
    generator = np.random.default_rng(3)
    files = {}
    for bits in (0, 7, 9, 10, 12, 14, 15, 16):
        for stated in (None, 8, 10, 12, 16):
            for kind, samples in ((0, 1), (2, 3)):
                values = generator.integers(0, 1 << bits, (9, 11 * samples)).astype(">u2")
                rows = np.concatenate([np.zeros((9, 1), np.uint8), values.view(np.uint8)], axis=1).tobytes()
                chunks = () if stated is None else ((b"sBIT", bytes([stated]) * samples),)
                files[f"{bits} bits, stated {stated}, kind {kind}"] = raw_png(11, 9, 16, kind, rows, *chunks)
    answers = call("png.js", [("decodePng", [contents]) for contents in files.values()])
    for (name, contents), answer in zip(files.items(), answers, strict=True):
        expected = load_image(contents, name, InputSpec.exact((9, 11)), Limits())
        assert np.array_equal(taken(answer["pixels"]), expected.pixels), name
        assert answer["notes"] == [*expected.notes], name


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (8, 8), (13, 9), (5, 21)])
def test_interlaced_png_files(size: tuple[int, int]) -> None:
    width, height = size
    generator = np.random.default_rng(1)
    rows = b""
    for left, top, across, down in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        columns, lines = max(0, -(-(width - left) // across)), max(0, -(-(height - top) // down))
        if columns and lines:
            rows += filtered(generator.integers(0, 256, (lines, 3 * columns), dtype=np.uint8), seed=left)
    contents = raw_png(width, height, 8, 2, rows, adam7=True)
    (answer,) = call("png.js", [("decodePng", [contents])])
    assert np.array_equal(taken(answer["pixels"]), np.asarray(to_rgb(Image.open(io.BytesIO(contents)), "interlaced")))


def test_damaged_png_files_are_typed_errors() -> None:
    good = png(Image.fromarray(noise(23, 37)))
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = good[:16] + header + good[29:]
    damaged = [good[:40], good[:-30], good[:60] + bytes(50) + good[110:], good[:8], good[:16] + bytes(13) + good[29:]]
    answers = call("png.js", [("decodePng", [contents]) for contents in [*damaged, bomb]])
    assert [one["error"] for one in answers] == ["image_unreadable"] * 5 + ["image_too_large"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientations_are_those_of_python(order: str) -> None:
    files = {}
    for orientation in range(10):
        start = b"II*\0\x08\0\0\0" if order == "<" else b"MM\0*\0\0\0\x08"
        exif = start + struct.pack(f"{order}HHHIHH", 1, 0x0112, 3, 1, orientation, 0) + bytes(4)
        files[orientation] = png(Image.fromarray(noise(23, 37)), exif=exif)
        files[100 + orientation] = png(Image.fromarray(noise(23, 37)), exif=exif[: 12 + orientation])
    answers = call("png.js", [("decodePng", [contents]) for contents in files.values()])
    for (orientation, contents), answer in zip(files.items(), answers, strict=True):
        found = taken(answer["pixels"])
        expected = load_image(contents, "turned", InputSpec.exact((found.shape[0], found.shape[1])), Limits())
        assert np.array_equal(found, expected.pixels), orientation


def test_levels_are_rounded_as_by_numpy() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    for channels in ("rgb+complement", "rgb", "grey+complement", "grey"):
        (encoded,) = call("preprocessing.js", [("encode", [given(levels), channels])])
        assert np.array_equal(encoded, encode(levels, channels).reshape(-1)), channels
