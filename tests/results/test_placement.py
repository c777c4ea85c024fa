"""An overlay on the original has its colours where the network's pixels were in the original."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.images import Geometry, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Completeness, Explanation, Target

LIMITS = Limits()
RESIZED = InputSpec(size=(32, 40), resize=44, crop=(32, 40))
CROPPED = InputSpec(size=(96, 80), resize=None, crop=(96, 80))
GREEN = (0, 200, 0)


def photograph(size: tuple[int, int], square: tuple[int, int, int, int]) -> Image.Image:
    picture = Image.new("RGB", size, (90, 90, 90))
    picture.paste(GREEN, square)
    return picture


def explanation_of(picture: Any, spec: InputSpec) -> Explanation:
    """An explanation whose contributions are the share of green that the network received in each pixel."""
    loaded = load_image(picture, "photo.png", spec, LIMITS)
    contributions = np.maximum(0, loaded.pixels[..., 1] / 110 - 90 / 110).astype(np.float32)
    total = float(contributions.sum(dtype=np.float64))
    return Explanation(
        source="photo.png",
        model="net",
        target=Target(index=0, label="green", logit=total, probability=0.5),
        bias={},
        completeness=Completeness(logit=total, sum=total, scale=total, tolerance=1e-5),
        geometry=loaded.geometry,
        arrays={"contributions": contributions, "image": loaded.pixels},
    )


def red_box(picture: Image.Image) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of what is red."""
    values = np.asarray(picture, int)
    rows, columns = np.nonzero(values[..., 0] - values[..., 2] > 100)
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def assert_red_lies_on(picture: Image.Image, square: Sequence[float], tolerance: float) -> None:
    np.testing.assert_allclose(red_box(picture), square, atol=tolerance)


@pytest.mark.parametrize("spec", [RESIZED, CROPPED], ids=["resized", "not resized"])
@pytest.mark.parametrize("size", [(400, 240), (240, 400), (351, 223), (300, 300)], ids=str)
def test_the_map_lies_on_what_the_network_saw(size: tuple[int, int], spec: InputSpec) -> None:
    across, down = size[0] // 2, size[1] // 2
    square = (across - 30, down - 10, across + 10, down + 30)
    picture = photograph(size, square)
    explanation = explanation_of(picture, spec)
    pixel = 1.5 * min(size) / spec.resize if spec.resize else 1  # of the network, in the original
    drawn = explanation.overlay(on=picture, percentile=100)
    assert drawn.size == size
    assert_red_lies_on(drawn, square, pixel)
    twice = explanation.overlay(on=picture.resize((2 * size[0], 2 * size[1])), percentile=100)
    assert_red_lies_on(twice, tuple(2 * side for side in square), 2 * pixel)
    half = (round(size[0] / 2), round(size[1] / 2))
    assert_red_lies_on(
        explanation.overlay(on=picture.resize(half), percentile=100), [side / 2 for side in square], pixel
    )


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_photograph_is_turned_upright_first(orientation: int) -> None:
    undo = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    square = (180, 60, 230, 110)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    photograph((400, 240), square).transpose(undo[orientation]).save(file, "PNG", exif=exif)
    with Image.open(file) as opened:
        drawn = explanation_of(file.getvalue(), RESIZED).overlay(on=opened, percentile=100)
    assert drawn.size == (400, 240)
    assert_red_lies_on(drawn, square, 9)


def test_what_the_network_did_not_receive_has_little_contrast() -> None:
    picture = Image.new("RGB", (400, 240), (90, 90, 90))
    picture.paste("black", (0, 0, 20, 240))
    picture.paste("black", (190, 0, 210, 240))
    picture.paste(GREEN, (215, 100, 235, 120))
    values = np.asarray(explanation_of(picture, CROPPED).overlay(on=picture))
    assert (values[120, 10], values[120, 60]) == (pytest.approx([77] * 3, abs=1), pytest.approx([113] * 3, abs=1))
    assert (values[120, 200], values[150, 220]) == (pytest.approx([0] * 3), pytest.approx([90] * 3))


def test_a_picture_of_the_crop_is_drawn_on_as_a_whole() -> None:
    picture = photograph((400, 240), (160, 100, 200, 140))
    explanation = explanation_of(picture, RESIZED)
    assert explanation.geometry is not None
    crop = picture.crop(explanation.geometry.box)
    for size in ((40, 32), (200, 160), (201, 160)):
        drawn = explanation.overlay(on=crop.resize(size), percentile=100)
        values = np.asarray(crop.resize(size), int)
        rows, columns = np.nonzero(values[..., 1] > 150)
        assert_red_lies_on(drawn, (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1), 1.2 * size[0] / 40)


SQUARE = InputSpec(size=(32, 32), resize=64, crop=(32, 32))


def test_of_two_squares_the_size_tells_the_crop_from_the_original() -> None:
    picture = photograph((128, 128), (32, 32, 96, 96))  # exactly what the network receives
    explanation = explanation_of(picture, SQUARE)
    for size in (32, 224):  # of `image` and of `display`
        on = picture.crop((32, 32, 96, 96)).resize((size, size))
        for crop in (None, True):
            assert red_box(explanation.overlay(on=on, crop=crop, percentile=100)) == (0, 0, size, size)
    for crop in (None, False):
        assert_red_lies_on(explanation.overlay(on=picture, crop=crop, percentile=100), (32, 32, 96, 96), 2)


def test_a_display_of_any_size_is_the_crop() -> None:
    picture = photograph((500, 500), (125, 125, 375, 375))
    explanation = explanation_of(picture, SQUARE)
    display = np.asarray(picture.crop((125, 125, 375, 375)).resize((320, 320)))
    sharp = explanation.model_copy(update={"arrays": explanation.arrays | {"display": display}})
    for one in (explanation, sharp):
        drawn = one.overlay(on=Image.fromarray(one.display), percentile=100)
        np.testing.assert_array_equal(np.asarray(drawn), np.asarray(one.overlay(percentile=100)))


@pytest.mark.parametrize(("original", "size"), [(128, 64), (224, 224)], ids=["size of neither", "size of both"])
def test_a_picture_that_may_be_either_is_refused_unless_crop_says_what_it_is(original: int, size: int) -> None:
    quarter = original // 4
    picture = photograph((original, original), (quarter, quarter, 3 * quarter, 3 * quarter))
    explanation = explanation_of(picture, SQUARE)
    on = picture.resize((size, size))
    with pytest.raises(InputError, match=rf"{size} × {size} pixels: it may show.*\n.*crop=False.*crop=True"):
        explanation.overlay(on=on)
    drawn = explanation.overlay(on=on, crop=False, percentile=100)
    assert_red_lies_on(drawn, [size / 4, size / 4, size * 3 / 4, size * 3 / 4], size / 32)
    assert red_box(explanation.overlay(on=on, crop=True, percentile=100)) == (0, 0, size, size)


def test_an_original_that_was_not_cropped_is_never_in_doubt() -> None:
    picture = photograph((128, 128), (32, 32, 96, 96))
    explanation = explanation_of(picture, InputSpec(size=(32, 32), resize=32, crop=(32, 32)))
    for size in (32, 64, 128, 224):
        drawn = explanation.overlay(on=picture.resize((size, size)), percentile=100)
        assert_red_lies_on(drawn, [size / 4, size / 4, size * 3 / 4, size * 3 / 4], size / 24)


@pytest.mark.parametrize("crop", [True, False])
def test_what_crop_says_must_agree_with_the_aspect(crop: bool) -> None:
    explanation = explanation_of(photograph((400, 240), (160, 100, 200, 140)), RESIZED)
    with pytest.raises(InputError, match="another aspect"):
        explanation.overlay(on=Image.new("RGB", (400, 240) if crop else (80, 64)), crop=crop)


@pytest.mark.parametrize("size", [(300, 300), (240, 400), (405, 240), (1000, 10)])
def test_a_picture_of_another_aspect_is_refused(size: tuple[int, int]) -> None:
    picture = photograph((400, 240), (160, 100, 200, 140))
    explanation = explanation_of(picture, RESIZED)
    message = rf"has {size[0]} × {size[1]} pixels and another aspect.*received has 40 × 32, the original 400 × 240"
    with pytest.raises(InputError, match=message):
        explanation.overlay(on=Image.new("RGB", size))


def test_a_path_is_refused_with_what_to_pass() -> None:
    explanation = explanation_of(photograph((400, 240), (160, 100, 200, 140)), RESIZED)
    with pytest.raises(InputError, match=r"on is a str, expected a PIL image\nPass Image.open"):
        explanation.overlay(on="photo.png")  # type: ignore[arg-type]


def test_without_geometry_only_the_aspect_of_the_crop_is_drawn_on() -> None:
    picture = photograph((400, 240), (160, 100, 200, 140))
    unknown = explanation_of(picture, RESIZED).model_copy(update={"geometry": None})
    assert unknown.overlay(on=Image.new("RGB", (80, 64))).size == (80, 64)
    with pytest.raises(
        InputError, match=r"has 400 × 240 pixels and another aspect: the crop .* has 40 × 32\n.*encoded"
    ):
        unknown.overlay(on=picture)


def test_geometry_survives_json_files_and_differences(tmp_path: Path) -> None:
    explanation = explanation_of(photograph((401, 240), (160, 100, 200, 140)), RESIZED)
    assert isinstance(explanation.geometry, Geometry)
    assert Explanation.from_json(explanation.to_json()) == explanation
    assert Explanation.from_json(explanation.to_json(arrays="omit")).geometry == explanation.geometry
    assert (explanation - explanation).geometry == explanation.geometry
    explanation.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert Explanation.from_json(str(stored["metadata"])).geometry == explanation.geometry
    document = json.loads(explanation.to_json())
    assert document["schema_version"] == 1
    del document["geometry"]  # JSON of older versions
    assert Explanation.from_json(json.dumps(document)).geometry is None
    document["geometry"] = {"original": [4, 4], "box": [0, 0, 5, 4]}
    with pytest.raises(InputError, match="geometry"):
        Explanation.from_json(json.dumps(document))
