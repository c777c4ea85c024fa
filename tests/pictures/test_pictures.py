"""Pictures against the reference package's own, a literal loop, and the cases in which the reference fails."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.export_extra import import_reference, torch

from bcos_sdk.pictures import box_mean, heatmap, overlay, rgba


def random_explanation(seed: int, size: tuple[int, int] = (40, 56)) -> tuple[npt.NDArray[np.float64], ...]:
    generator = np.random.default_rng(seed)
    rgb = generator.random((3, *size))
    image = np.concatenate([rgb, 1 - rgb])
    weights = generator.standard_normal((6, *size)) * generator.random(size) ** 3
    return image, weights, (image * weights).sum(0)


@pytest.mark.parametrize("smooth", [0, 1, 3, 15])
@pytest.mark.parametrize("percentile", [99.5, 90.0])
def test_rgba_is_the_references(smooth: int, percentile: float) -> None:
    import_reference()
    from bcos.common import gradient_to_image

    image, weights, contributions = random_explanation(smooth)
    expected = gradient_to_image(torch.from_numpy(image), torch.from_numpy(weights), smooth, percentile)
    np.testing.assert_allclose(rgba(weights, contributions, smooth=smooth, percentile=percentile), expected, atol=1e-6)


def test_rgba_takes_float32_and_keeps_its_range() -> None:
    _, weights, contributions = random_explanation(1)
    exact = rgba(weights, contributions)
    single = rgba(weights.astype(np.float32), contributions.astype(np.float32))
    np.testing.assert_allclose(single, exact, atol=1e-4)
    assert single.dtype == np.float32
    assert single.shape == (40, 56, 4)
    assert 0 <= single.min() <= single.max() <= 1


def test_where_nothing_speaks_for_the_class_the_picture_is_transparent() -> None:
    zeros = np.zeros((6, 9, 9))
    assert not rgba(zeros, zeros[0]).any()
    against = rgba(-np.ones((6, 9, 9)), -np.ones((9, 9)))
    assert not against[..., 3].any(), "the reference makes it opaque"


def test_a_single_pixel_that_speaks_is_seen() -> None:
    weights, contributions = np.zeros((6, 50, 50)), np.zeros((50, 50))
    weights[0, 20, 30] = contributions[20, 30] = 1
    alpha = rgba(weights, contributions, smooth=0)[..., 3]
    assert alpha[20, 30] == 1
    assert alpha.sum() == 1
    assert rgba(weights, contributions, smooth=4)[..., 3].sum() == 16


def test_even_windows_and_large_images_work() -> None:
    """The reference fails on both: a size mismatch, and a quantile of more than 2²⁴ pixels."""
    _, weights, contributions = random_explanation(2)
    assert rgba(weights, contributions, smooth=4).shape == (40, 56, 4)
    large = np.ones((6, 4097, 4096), np.float32)
    assert rgba(large, large[0], smooth=0)[..., 3].min() == 1


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_box_mean_is_the_literal_mean(kernel: int, height: int, width: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((height, width))
    before, after = (kernel - 1) // 2, kernel // 2
    expected = np.zeros_like(values)
    for row in range(height):
        for column in range(width):
            window = values[max(0, row - before) : row + after + 1, max(0, column - before) : column + after + 1]
            expected[row, column] = window.sum() / kernel**2
    np.testing.assert_allclose(box_mean(values, kernel), expected, atol=1e-12)


def test_box_mean_is_the_references_pooling_and_refuses_no_window() -> None:
    values = np.random.default_rng(0).standard_normal((30, 20))
    pooled = torch.nn.functional.avg_pool2d(torch.from_numpy(values)[None, None], 7, 1, 3)[0, 0]
    np.testing.assert_allclose(box_mean(values, 7), pooled.numpy(), atol=1e-12)
    with pytest.raises(ValueError, match="window of 0"):
        box_mean(values, 0)


def test_heatmap_is_blue_white_red_and_symmetric() -> None:
    contributions = np.array([[-2.0, -1.0, 0.0], [0.5, 1.0, 2.0]])
    colours = heatmap(contributions, percentile=100)
    np.testing.assert_allclose(colours[0], np.array([[0, 0, 1], [0.5, 0.5, 1], [1, 1, 1]]))
    np.testing.assert_allclose(colours[1], np.array([[1, 0.75, 0.75], [1, 0.5, 0.5], [1, 0, 0]]))
    np.testing.assert_allclose(heatmap(-contributions, percentile=100), colours[..., ::-1])


def test_overlay_shows_the_image_where_nothing_contributes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    contributions = np.zeros((6, 7))
    contributions[2, 3], contributions[4, 4] = 3, -3
    picture = overlay(pixels, contributions, percentile=100)
    np.testing.assert_allclose(picture[2, 3], [1, 0, 0])
    np.testing.assert_allclose(picture[4, 4], [0, 0, 1])
    grey = pixels[0, 0] @ [0.299, 0.587, 0.114] / 255
    np.testing.assert_allclose(picture[0, 0], [grey] * 3, rtol=1e-6)


@pytest.mark.parametrize("smooth", [0, 2, 5])
def test_zero_maps_are_blank(smooth: int) -> None:
    pixels = np.full((6, 7, 3), 128, np.uint8)
    assert (heatmap(np.zeros((6, 7)), smooth=smooth) == 1).all()
    np.testing.assert_allclose(overlay(pixels, np.zeros((6, 7)), smooth=smooth), 128 / 255, rtol=1e-6)
