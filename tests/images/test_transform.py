"""Preprocessing equals the transform that the models were published with: torchvision on PIL images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.export_extra import import_reference, torch

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ImageTooLargeError, InputError
from bcos_sdk.images import load_image
from bcos_sdk.limits import Limits

LIMITS = Limits()
SIZES = [(256, 256), (500, 375), (375, 500), (1023, 517), (257, 256), (224, 224), (100, 80), (31, 200)]


def published_transform(spec: InputSpec) -> Any:
    import_reference()
    from torchvision import transforms

    modes = {"bilinear": transforms.InterpolationMode.BILINEAR, "bicubic": transforms.InterpolationMode.BICUBIC}
    steps = [transforms.Resize(spec.resize, modes[spec.interpolation]), transforms.CenterCrop(spec.crop)]
    return transforms.Compose([*steps, transforms.ToTensor(), lambda x: torch.cat([x, 1 - x])])


def photograph(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Smooth shapes with noise: different resizing filters give different results on both."""
    generator = np.random.default_rng(seed)
    width, height = size
    coarse = Image.fromarray(generator.integers(0, 256, (7, 9, 3), dtype=np.uint8)).resize(
        size, Image.Resampling.BICUBIC
    )
    noise = generator.integers(-20, 20, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(coarse).astype(int) + noise, 0, 255).astype(np.uint8))


def spec(resize: int = 256, interpolation: Any = "bilinear") -> InputSpec:
    return InputSpec(size=(224, 224), resize=resize, crop=(224, 224), interpolation=interpolation)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("wanted", [spec(256), spec(232), spec(256, "bicubic")], ids=["256", "232", "bicubic"])
def test_the_input_equals_the_published_transform_exactly(size: tuple[int, int], wanted: InputSpec) -> None:
    picture = photograph(size)
    expected = published_transform(wanted)(picture).numpy()
    loaded = load_image(picture, "picture", wanted, LIMITS)
    assert loaded.encoded.dtype == np.float32
    np.testing.assert_array_equal(loaded.encoded, expected)
    np.testing.assert_array_equal(loaded.pixels, np.rint(expected[:3] * 255).transpose(1, 2, 0))


def test_a_crop_may_be_rectangular() -> None:
    wanted = InputSpec(size=(96, 150), resize=151, crop=(96, 150))
    picture = photograph((301, 200))
    expected = published_transform(wanted)(picture).numpy()
    np.testing.assert_array_equal(load_image(picture, "picture", wanted, LIMITS).encoded, expected)


def saved(picture: Image.Image, suffix: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, suffix, **options)
    return file.getvalue()


def test_grey_palette_cmyk_and_alpha_are_converted_as_pillow_does() -> None:
    picture = photograph((300, 280))
    transparent = picture.convert("RGBA")
    transparent.putalpha(Image.linear_gradient("L").resize(picture.size))
    palette = picture.quantize(64)
    files = {
        "grey": saved(picture.convert("L"), "PNG"),
        "grey and alpha": saved(transparent.convert("LA"), "PNG"),
        "palette": saved(palette, "PNG"),
        "transparent palette": saved(palette, "PNG", transparency=3),
        "palette with alpha": saved(palette, "PNG", transparency=bytes(range(64))),
        "CMYK": saved(picture.convert("CMYK"), "JPEG", quality=95),
        "alpha": saved(transparent, "PNG"),
        "two levels": saved(picture.convert("1"), "PNG"),
        "GIF": saved(palette, "GIF"),
        "WebP": saved(picture, "WEBP", lossless=True),
        "BMP": saved(picture, "BMP"),
        "progressive JPEG": saved(picture, "JPEG", progressive=True),
    }
    for name, contents in files.items():
        opened: Image.Image = Image.open(io.BytesIO(contents))
        if opened.mode == "P" and isinstance(opened.info.get("transparency"), bytes):
            opened = opened.convert("RGBA")
        expected = published_transform(spec())(opened.convert("RGB")).numpy()
        np.testing.assert_array_equal(load_image(contents, name, spec(), LIMITS).encoded, expected, err_msg=name)


def test_sixteen_bits_keep_their_upper_eight() -> None:
    levels = np.random.default_rng(0).integers(0, 1 << 16, (280, 300), dtype=np.uint16)
    upper = Image.fromarray((levels >> 8).astype(np.uint8)).convert("RGB")
    expected = published_transform(spec())(upper).numpy()
    contents = saved(Image.fromarray(levels), "PNG")
    assert Image.open(io.BytesIO(contents)).mode.startswith("I;16")
    np.testing.assert_array_equal(load_image(contents, "deep", spec(), LIMITS).encoded, expected)
    wide = Image.fromarray(levels.astype(np.int32))
    np.testing.assert_array_equal(load_image(wide, "deeper", spec(), LIMITS).encoded, expected)


def test_32_bit_pixels_with_8_bit_values_are_taken_as_8_bits() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (280, 300), dtype=np.uint8)
    expected = load_image(levels, "bytes", spec(), LIMITS).encoded
    wide = Image.fromarray(levels.astype(np.int32))
    np.testing.assert_array_equal(load_image(wide, "wide", spec(), LIMITS).encoded, expected)


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"MM\0", b"II*\0\xff\xff\xff\xff", b"\0" * 40])
def test_unreadable_exif_tags_are_ignored(exif: bytes) -> None:
    picture = photograph((300, 200))
    expected = published_transform(spec())(picture).numpy()
    contents = saved(picture, "PNG", exif=exif)
    np.testing.assert_array_equal(load_image(contents, "photo", spec(), LIMITS).encoded, expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_rotated_upright_by_its_exif_tag(orientation: int) -> None:
    upright = photograph((300, 200))
    turned_back = {
        2: 0,
        3: 3,
        4: 1,
        5: 5,
        6: 2,
        7: 6,
        8: 4,
    }  # orientation → the transposition that undoes it
    stored = upright.transpose(Image.Transpose(turned_back[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    contents = saved(stored, "PNG", exif=exif)
    expected = published_transform(spec())(upright).numpy()
    np.testing.assert_array_equal(load_image(contents, "photo", spec(), LIMITS).encoded, expected)


def test_the_first_picture_of_a_multi_picture_file_is_used() -> None:
    first, second = photograph((300, 200), 1), photograph((300, 200), 2)
    file = io.BytesIO()
    first.save(file, "MPO", save_all=True, append_images=[second], quality=95)
    expected = published_transform(spec())(Image.open(file).convert("RGB")).numpy()
    np.testing.assert_array_equal(load_image(file.getvalue(), "phone", spec(), LIMITS).encoded, expected)


@pytest.mark.parametrize(
    ("picture", "kind"),
    [
        (Image.new("F", (300, 300)), InputError),
        (Image.fromarray(np.full((300, 300), 1 << 20, np.int32)), InputError),
        (Image.fromarray(np.full((300, 300), -1, np.int32)), InputError),
        (Image.new("RGB", (1, 300_000)), ImageTooLargeError),
        (Image.new("RGB", (0, 300)), InputError),
    ],
    ids=["float", "deep", "negative", "line", "nothing"],
)
def test_pictures_that_cannot_be_converted_are_refused(picture: Image.Image, kind: type[BcosError]) -> None:
    with pytest.raises(kind, match="picture") as caught:
        load_image(picture, "picture", spec(), LIMITS)
    assert caught.type is kind, "not one of its family"
    assert caught.value.source == "picture"


def test_a_model_without_resize_takes_images_of_its_input_size_only() -> None:
    fixed = InputSpec(size=(32, 32), resize=None, crop=None)
    picture = photograph((32, 32))
    np.testing.assert_array_equal(load_image(picture, "small", fixed, LIMITS).pixels, np.asarray(picture))
    with pytest.raises(InputError, match=r"large has 33 × 32 pixels, but this model takes 32 × 32"):
        load_image(photograph((33, 32)), "large", fixed, LIMITS)
    cropped = InputSpec(size=(32, 32), resize=None, crop=(32, 32))
    with pytest.raises(InputError, match="too few for a crop"):
        load_image(photograph((33, 31)), "flat", cropped, LIMITS)
