"""Pictures equal those of the reference package, also in cases in which the reference fails."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.export_extra import import_reference, torch

from bcos_sdk.contract import Box
from bcos_sdk.images import Geometry
from bcos_sdk.pictures import (
    _maps,
    box_mean,
    data_uri,
    enlarge,
    enlargement,
    heatmap,
    on_white,
    overlay,
    rgba,
    smoothing_window,
    to_picture,
)


def random_explanation(seed: int, size: tuple[int, int] = (40, 56)) -> tuple[npt.NDArray[np.float64], ...]:
    generator = np.random.default_rng(seed)
    rgb = generator.random((3, *size))
    image = np.concatenate([rgb, 1 - rgb])
    weights = generator.standard_normal((6, *size)) * generator.random(size) ** 3
    return image, weights, (image * weights).sum(0)


@pytest.mark.parametrize("smooth", [0, 1, 3, 15])
@pytest.mark.parametrize("percentile", [99.5, 90.0])
def test_rgba_equals_the_reference(smooth: int, percentile: float) -> None:
    import_reference()
    from bcos.common import gradient_to_image

    image, weights, contributions = random_explanation(smooth)
    expected = gradient_to_image(torch.from_numpy(image), torch.from_numpy(weights), smooth, percentile)
    np.testing.assert_allclose(rgba(weights, contributions, smooth=smooth, percentile=percentile), expected, atol=1e-6)


def test_rgba_of_float32_is_float32_in_0_to_1() -> None:
    _, weights, contributions = random_explanation(1)
    exact = rgba(weights, contributions)
    single = rgba(weights.astype(np.float32), contributions.astype(np.float32))
    np.testing.assert_allclose(single, exact, atol=1e-4)
    assert single.dtype == np.float32
    assert single.shape == (40, 56, 4)
    assert 0 <= single.min() <= single.max() <= 1


def test_rgba_is_transparent_without_positive_contributions() -> None:
    zeros = np.zeros((6, 9, 9))
    assert not rgba(zeros, zeros[0]).any()
    against = rgba(-np.ones((6, 9, 9)), -np.ones((9, 9)))
    assert not against[..., 3].any(), "here the reference is opaque"


def test_a_single_positive_pixel_is_opaque() -> None:
    weights, contributions = np.zeros((6, 50, 50)), np.zeros((50, 50))
    weights[0, 20, 30] = contributions[20, 30] = 1
    alpha = rgba(weights, contributions, smooth=0)[..., 3]
    assert alpha[20, 30] == 1
    assert alpha.sum() == 1
    assert rgba(weights, contributions, smooth=4)[..., 3].sum() == 16


def test_rgba_with_even_windows_and_large_images() -> None:
    """The reference fails for both: the size changes, and torch has no quantile of more than 2²⁴ values."""
    _, weights, contributions = random_explanation(2)
    assert rgba(weights, contributions, smooth=4).shape == (40, 56, 4)
    large = np.ones((6, 4097, 4096), np.float32)
    assert rgba(large, large[0], smooth=0)[..., 3].min() == 1


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_box_mean_is_the_mean_over_the_window(kernel: int, height: int, width: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((height, width))
    before, after = (kernel - 1) // 2, kernel // 2
    expected = np.zeros_like(values)
    for row in range(height):
        for column in range(width):
            window = values[max(0, row - before) : row + after + 1, max(0, column - before) : column + after + 1]
            expected[row, column] = window.sum() / kernel**2
    np.testing.assert_allclose(box_mean(values, kernel), expected, atol=1e-12)


def test_box_mean_equals_average_pooling_and_refuses_an_empty_window() -> None:
    values = np.random.default_rng(0).standard_normal((30, 20))
    pooled = torch.nn.functional.avg_pool2d(torch.from_numpy(values)[None, None], 7, 1, 3)[0, 0]
    np.testing.assert_allclose(box_mean(values, 7), pooled.numpy(), atol=1e-12)
    with pytest.raises(ValueError, match="is 0 pixels wide"):
        box_mean(values, 0)


def test_heatmap_is_blue_white_red_and_symmetric() -> None:
    contributions = np.array([[-2.0, -1.0, 0.0], [0.5, 1.0, 2.0]])
    colours = heatmap(contributions, percentile=100)
    np.testing.assert_allclose(colours[0], np.array([[0, 0, 1], [0.5, 0.5, 1], [1, 1, 1]]))
    np.testing.assert_allclose(colours[1], np.array([[1, 0.75, 0.75], [1, 0.5, 0.5], [1, 0, 0]]))
    np.testing.assert_allclose(heatmap(-contributions, percentile=100), colours[..., ::-1])


def test_overlay_shows_the_grey_image_where_contributions_are_zero() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    contributions = np.zeros((6, 7))
    contributions[2, 3], contributions[4, 4] = 3, -3
    picture = overlay(pixels, contributions, percentile=100)
    np.testing.assert_allclose(picture[2, 3], [1, 0, 0])
    np.testing.assert_allclose(picture[4, 4], [0, 0, 1])
    grey = pixels[0, 0] @ [0.299, 0.587, 0.114] / 255
    np.testing.assert_allclose(picture[0, 0], [grey] * 3, rtol=1e-6)


@pytest.mark.parametrize("smooth", [0, 2, 5])
def test_contributions_of_zero_have_no_colour(smooth: int) -> None:
    pixels = np.full((6, 7, 3), 128, np.uint8)
    assert (heatmap(np.zeros((6, 7)), smooth=smooth) == 1).all()
    np.testing.assert_allclose(overlay(pixels, np.zeros((6, 7)), smooth=smooth), 128 / 255, rtol=1e-6)


def test_an_overlay_may_be_drawn_on_a_larger_picture_of_the_same_crop() -> None:
    pixels = np.full((60, 70, 3), 128, np.uint8)
    contributions = np.zeros((6, 7))
    contributions[2, 3] = 3
    picture = overlay(pixels, contributions, percentile=100)
    assert picture.shape == (60, 70, 3)
    assert picture[25, 35, 0] > 0.9
    np.testing.assert_allclose(picture[59, 69], 128 / 255, rtol=1e-6)


def test_a_box_holds_the_map_and_the_rest_of_the_picture_has_little_contrast() -> None:
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, 30:] = 255
    picture = overlay(pixels, np.ones((4, 5)), percentile=100, box=(10, 8, 50, 36))
    red = (picture == [1, 0, 0]).all(2)
    assert red[8:36, 10:50].all()
    assert red.sum() == 28 * 40, "and nowhere else"
    np.testing.assert_allclose(picture[0, 0], 0.3, rtol=1e-6)
    np.testing.assert_allclose(picture[0, 59], 0.7, rtol=1e-6)


@given(st.data())
def test_each_pixel_of_a_box_has_the_colour_of_its_cell(data: st.DataObject) -> None:
    """Compare with a lookup of each pixel centre in the map, away from the borders of cells, for boxes of fractions."""
    height, width = data.draw(st.tuples(st.integers(40, 90), st.integers(40, 90)))
    rows, columns = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    left, top = data.draw(st.tuples(st.floats(0, 8), st.floats(0, 8)))
    right, bottom = width - data.draw(st.floats(0, 8)), height - data.draw(st.floats(0, 8))
    signs = np.random.default_rng(data.draw(st.integers(0, 99))).choice([-1.0, 1.0], (rows, columns))
    picture = overlay(np.full((height, width, 3), 128, np.uint8), signs, percentile=100, box=(left, top, right, bottom))
    for row in range(height):
        for column in range(width):
            x, y = (column + 0.5 - left) / (right - left) * columns, (row + 0.5 - top) / (bottom - top) * rows
            inside = 0 <= x < columns and 0 <= y < rows
            if not inside:
                assert (picture[row, column] == picture[row, column, 0]).all(), "grey"
            elif abs(x % 1 - 0.5) < 0.2 and abs(y % 1 - 0.5) < 0.2:
                red, _, blue = picture[row, column]
                assert (red > blue) == (signs[int(y), int(x)] > 0)


@pytest.mark.parametrize("box", [(0, 0, 3, 3), (2.9, 2.9, 3, 3), (1.2, 0.1, 1.3, 2.9)])
def test_a_box_may_be_smaller_than_a_pixel(box: tuple[float, float, float, float]) -> None:
    assert overlay(np.zeros((3, 3, 3), np.uint8), np.ones((50, 40)), box=box).shape == (3, 3, 3)


@pytest.mark.parametrize(
    ("size", "factor"), [((32, 32), 7), ((33, 99), 7), ((224, 300), 1), ((223, 300), 2), ((1, 1), 224)]
)
def test_the_enlarged_shorter_side_has_at_least_224_pixels(size: tuple[int, int], factor: int) -> None:
    assert enlargement(size) == factor
    picture = Image.new("RGB", size)
    enlarged = enlarge(picture, factor)
    assert enlarged.size == (size[0] * factor, size[1] * factor)
    assert (enlarged is picture) == (factor == 1)


def test_the_least_side_can_be_chosen() -> None:
    assert [enlargement((32, 40), side) for side in (1, 32, 33, 320)] == [1, 1, 2, 10]


def test_the_smoothing_window_keeps_its_width_in_the_enlarged_picture() -> None:
    assert [smoothing_window(factor) for factor in (1, 2, 7, 224)] == [15, 8, 2, 1]


def test_colours_become_a_picture_with_rounded_values() -> None:
    picture = to_picture(np.array([[[0.0, 0.5, 1.0], [0.1, 0.2, 0.3]]]))
    np.testing.assert_array_equal(np.asarray(picture), [[[0, 128, 255], [26, 51, 76]]])
    assert to_picture(np.zeros((2, 3, 4))).mode == "RGBA"


def test_transparency_becomes_white() -> None:
    picture = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    picture.putpixel((1, 0), (255, 0, 0, 255))
    flat = on_white(picture)
    assert flat.mode == "RGB"
    assert [flat.getpixel((0, 0)), flat.getpixel((1, 0))] == [(255, 255, 255), (255, 0, 0)]
    assert on_white(flat) is flat


@pytest.mark.parametrize(("size", "shown"), [((448, 300), (224, 150)), ((30, 20), (30, 20))])
def test_a_data_uri_is_a_thumbnail_as_webp(size: tuple[int, int], shown: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, "red")
    head, text = data_uri(picture).split(",")
    assert head == "data:image/webp;base64"
    with Image.open(io.BytesIO(base64.b64decode(text))) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("WEBP", shown)
    assert picture.size == size, "the picture itself is not changed"
    large = base64.b64decode(data_uri(picture, 400).split(",")[1])
    with Image.open(io.BytesIO(large)) as larger:
        assert larger.width == min(400, size[0])


def test_the_box_of_a_picture_and_that_of_a_geometry_are_one_type() -> None:
    boxes: list[Any] = [vars(_maps)["Box"], Geometry.model_fields["box"].annotation]
    assert boxes == [Box, Box]
