"""Arrays and tensors are taken where their meaning is certain, else refused with the conversion to use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.export_extra import HAVE_TORCH, torch
from support.image_files import png

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.images import encode, load_image
from bcos_sdk.limits import Limits

SPEC = InputSpec(size=(20, 28), resize=None, crop=None)


def load(image: Any, spec: InputSpec = SPEC) -> Any:
    return load_image(image, "array", spec, Limits())


def random_image(seed: int, *channels: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (*SPEC.size, *channels), dtype=np.uint8)


@given(st.integers(0, 999), st.sampled_from([(), (1,), (3,), (4,)]))
def test_file_array_floats_and_tensor_give_equal_pixels(seed: int, channels: tuple[int, ...]) -> None:
    pixels = random_image(seed, *channels)
    expected = load(png(pixels)).pixels
    forms: dict[str, Any] = {
        "uint8": pixels,
        "uint16": pixels.astype(np.uint16) * 257,
        **{kind: (pixels / 255).astype(kind) for kind in ("float16", "float32", "float64")},
    }
    if HAVE_TORCH:
        forms |= {f"tensor of {name}": torch.from_numpy(array.copy()) for name, array in forms.items()}
        first = pixels if not channels else np.moveaxis(pixels, 2, 0)[:3]
        tensor = torch.from_numpy(np.array(first))
        forms["channels first"] = tensor
        forms["channels first, floats with gradient"] = (tensor.double() / 255).requires_grad_()
        forms["bfloat16"] = (tensor > 127).bfloat16()
    for name, form in forms.items():
        loaded = load(form)
        if name == "bfloat16":
            np.testing.assert_array_equal(loaded.pixels, np.where(expected > 127, 255, 0), err_msg=name)
        else:
            np.testing.assert_array_equal(loaded.pixels, expected, err_msg=name)
        np.testing.assert_array_equal(loaded.encoded, encode(loaded.pixels), err_msg=name)


@pytest.mark.needs_torch
def test_a_tensor_that_could_be_either_is_refused_with_both_conversions() -> None:
    for shape in ((3, 20, 3), (3, 3, 3), (1, 5, 4)):
        with pytest.raises(InputError, match="may be first or last") as caught:
            load(torch.zeros(shape))
        assert "tensor.permute(1, 2, 0).numpy()" in str(caught.value)
    square = InputSpec(size=(3, 3), resize=None, crop=None)
    three = np.zeros((3, 3, 3), np.uint8)
    assert load(three, square).pixels.shape == (3, 3, 3), "numpy arrays have their channels last"


@pytest.mark.needs_torch
def test_four_channels_that_come_first_are_refused_with_both_conversions() -> None:
    pixels = random_image(0, 4)
    tensor = torch.from_numpy(np.moveaxis(pixels, 2, 0).copy())
    for form in (tensor, tensor / 255):
        with pytest.raises(InputError, match=r"a tensor \[4, 20, 28\]: its fourth channel may be") as caught:
            load(form)
        assert caught.value.hint is not None
        assert "tensor[:3]" in caught.value.hint
        assert "list(tensor)" in caught.value.hint
    np.testing.assert_array_equal(load(tensor[:3]).pixels, pixels[..., :3])
    for place, grey in enumerate(list(tensor)):
        np.testing.assert_array_equal(load(grey).pixels[..., 0], pixels[..., place])


@pytest.mark.parametrize("mask", [False, True])
def test_a_masked_array_is_refused_with_both_conversions(mask: bool) -> None:
    pixels = random_image(0, 3)
    masked = np.ma.array(pixels, mask=np.full(pixels.shape, mask))
    with pytest.raises(InputError, match="is a masked array") as caught:
        load(masked)
    assert caught.value.hint is not None
    assert "array.filled(0)" in caught.value.hint
    assert "array.data" in caught.value.hint
    np.testing.assert_array_equal(load(masked.filled(0)).pixels, pixels * (not mask))
    np.testing.assert_array_equal(load(masked.data).pixels, pixels)


def test_an_encoded_image_is_told_from_a_picture_by_its_size() -> None:
    narrow = InputSpec(size=(20, 3), resize=None, crop=None)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 3), dtype=np.uint8)
    encoded = encode(pixels)
    assert encoded.shape == (6, 20, 3)
    np.testing.assert_array_equal(load(encoded, narrow).encoded, encoded)


PIXELS = random_image(0, 3)


@pytest.mark.parametrize(
    ("array", "reason", "conversion"),
    [
        (PIXELS.astype(np.float32), "floating-point values from 0 to 255", "array.astype(np.uint8)"),
        (PIXELS * 16.0, "floating-point values from 0 to 4.08e", "array / array.max()"),
        ((PIXELS / 255 - 0.45) / 0.22, "floating-point values from -2", "Do not subtract a mean"),
        (PIXELS / 255 * np.nan, "NaN or infinite", "np.nan_to_num(array)"),
        (PIXELS > 127, "is an array bool", "array * np.uint8(255)"),
        (PIXELS.astype(np.int64), "is an array int64", "array.astype(np.uint8)"),
        (PIXELS.astype(np.int16), "is an array int16", "array.astype(np.uint8)"),
        (PIXELS.transpose(2, 0, 1), r"uint8 \[3, 20, 28\]", "array.transpose(1, 2, 0)"),
        (PIXELS.transpose(2, 0, 1) / 255, r"float64 \[3, 20, 28\]", "array.transpose(1, 2, 0)"),
        (np.stack([PIXELS[..., 0]] * 5), r"uint8 \[5, 20, 28\]", "list(array)"),
        (PIXELS[None], r"uint8 \[1, 20, 28, 3\]", "array[0]"),
        (PIXELS.astype(complex), "complex128", "Expected: [H, W, 3]"),
        (PIXELS.astype(object), "object", "Expected: [H, W, 3]"),
    ],
)
def test_everything_else_is_refused_with_the_conversion(array: Any, reason: str, conversion: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        load(array)
    assert caught.type is InputError
    assert caught.value.hint is not None
    assert conversion in caught.value.hint
