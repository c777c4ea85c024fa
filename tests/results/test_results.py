"""Results are frozen, survive JSON and pickling, and cannot be drawn if they are incomplete."""

from __future__ import annotations

import base64
import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from bcos_sdk.contract import TOLERANCE_CAPS, certificate_fault
from bcos_sdk.errors import (
    ImageTooLargeError,
    IncompleteExplanationError,
    InputError,
    MissingArrayError,
    OutputError,
    UnreadableImageError,
)
from bcos_sdk.results import (
    ClassScore,
    Completeness,
    Explained,
    Explanation,
    Failure,
    Prediction,
    Target,
    read_explanation,
)


def explanation(seed: int = 0, *, weights: bool = True, off: float = 0.0, label: str = "cat") -> Explanation:
    """Random W(x) and bias terms. The logit is the sum of the contributions and the bias, plus `off`."""
    row = np.random.default_rng(seed).standard_normal((6, 8, 10)).astype(np.float32)
    levels = np.array([7, 7, 7, 248, 248, 248]) / 255  # rgb and 1 − rgb
    contributions = np.einsum("chw,c->hw", row, levels).astype(np.float32)
    arrays: dict[str, Any] = {"contributions": contributions, "image": np.full((8, 10, 3), 7, np.uint8)}
    if weights:
        arrays["weights"] = row
    total = float(contributions.sum(dtype=np.float64)) - 0.5
    scale = float(np.abs(contributions).sum(dtype=np.float64)) + 1.0
    return Explanation(
        source="cat.png",
        model="net",
        target=Target(index=3, label=label, logit=total + off, probability=0.9),
        bias={"logit_bias": -0.75, "position": 0.25},
        completeness=Completeness(logit=total + off, sum=total, scale=scale, tolerance=1e-5),
        arrays=arrays,
    )


def with_display(times: int = 28) -> Explanation:
    """An explanation whose image is known with more pixels than the network received: a ramp instead of one colour."""
    ramp = np.linspace(0, 255, 10 * times).astype(np.uint8)
    display = np.broadcast_to(ramp[:, None], (8 * times, 10 * times, 3)).copy()
    e = explanation()
    return Explanation.model_validate(e.model_dump() | {"arrays": e.arrays | {"display": display}})


def explained(**options: Any) -> Explained:
    classes = (ClassScore(index=3, label="cat", logit=1.5, probability=0.8),)
    prediction = Prediction(source="cat.png", model="net", classes=classes)
    return Explained(source="cat.png", prediction=prediction, explanations=(explanation(**options), explanation(1)))


def test_json_round_trip_is_exact() -> None:
    result = explained()
    text = result.to_json()
    assert "\n" not in text
    assert Explained.from_json(text) == result
    assert (
        Explained.from_json(text.encode()).explanations[0].weights.tobytes() == result.explanations[0].weights.tobytes()
    )
    document = json.loads(text)
    assert document["schema_version"] == 1
    assert document["explanations"][0]["completeness"]["passed"] is True
    assert document["explanations"][0]["arrays"]["contributions"]["shape"] == [8, 10]


def test_arrays_can_be_left_out() -> None:
    text = explained().to_json(arrays="omit")
    assert len(text) < 1500
    slim = Explained.from_json(text).explanations[0]
    assert slim.target == explained().explanations[0].target
    assert slim.completeness == explained().explanations[0].completeness
    with pytest.raises(MissingArrayError, match=r'no contributions(.|\n)*arrays="base64"'):
        _ = slim.contributions
    with pytest.raises(MissingArrayError):
        slim.overlay()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=6, max_size=6))
def test_json_keeps_every_float_exactly(values: list[float]) -> None:
    array = np.array(values, np.float32).reshape(6, 1, 1)
    before = explanation().model_copy(update={"arrays": {"weights": array}})
    after = Explanation.from_json(before.to_json())
    assert after.weights.tobytes() == array.tobytes()


def test_json_keeps_nan_and_infinity() -> None:
    figures = Completeness(logit=math.inf, sum=math.nan, scale=1.0, tolerance=1e-5)
    after = Completeness.from_json(figures.to_json())
    assert after.logit == math.inf
    assert math.isnan(after.sum)
    assert not after.passed


def test_json_with_additional_fields_can_be_read() -> None:
    document = json.loads(explained().to_json())
    document["device"] = "cuda"
    assert Explained.from_json(json.dumps(document)) == explained()
    document["schema_version"] = 2
    with pytest.raises(InputError, match="not a valid Explained: schema_version"):
        Explained.from_json(json.dumps(document))


@pytest.mark.parametrize(
    "damage",
    [
        lambda array: array.update(shape=[8, 11]),
        lambda array: array.update(shape=[80]),
        lambda array: array.update(shape=[-8, -10]),
        lambda array: array.update(shape="8x10"),
        lambda array: array.update(dtype="object"),
        lambda array: array.update(dtype="uint8"),
        lambda array: array.update(base64="%%%"),
        lambda array: array.pop("base64"),
    ],
)
def test_damaged_arrays_are_refused(damage: Any) -> None:
    document = json.loads(explanation().to_json())
    damage(document["arrays"]["contributions"])
    with pytest.raises(InputError, match="arrays"):
        Explanation.from_json(json.dumps(document))


def test_the_schema_describes_what_is_written() -> None:
    schema = Explained.model_json_schema(mode="serialization")
    assert schema["properties"]["schema_version"]["const"] == 1
    arrays = schema["$defs"]["Explanation"]["properties"]["arrays"]["properties"]
    written = json.loads(with_display().to_json())["arrays"]
    assert arrays.keys() - written.keys() == {"input"}  # only of networks that take arrays instead of pictures
    assert written.keys() <= arrays.keys()
    for name, array in written.items():
        assert array["dtype"] == arrays[name]["properties"]["dtype"]["const"]
        assert len(array["shape"]) == arrays[name]["properties"]["shape"]["minItems"]
    assert {"residual", "relative_residual", "passed"} <= schema["$defs"]["Completeness"]["properties"].keys()


def test_results_are_frozen_and_their_arrays_read_only() -> None:
    result = explained()
    with pytest.raises(ValidationError):
        result.source = "dog.png"
    with pytest.raises(ValueError, match="read-only"):
        result.explanations[0].contributions[0, 0] = 1
    mine = np.zeros((6, 8, 10), np.float32)
    taken = explanation().model_copy(update={"arrays": {"weights": mine}})
    assert Explanation.model_validate(taken.model_dump()).weights is not mine


def test_results_can_be_compared_and_pickled() -> None:
    result = explained()
    assert pickle.loads(pickle.dumps(result)) == result == explained()
    assert result != explained(weights=False)
    assert result.explanations[0] != explanation(2)
    assert result.explanations[0] != "cat"
    assert "array" not in repr(result)


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ({"logit": 1.0, "sum": 1.0, "scale": 9.0}, True),
        ({"logit": 1.0, "sum": 1.00008, "scale": 9.0}, True),
        ({"logit": 1.0, "sum": 1.0001, "scale": 9.0}, False),
        ({"logit": 0.0, "sum": 0.0, "scale": 0.0}, True),
        ({"logit": 1e-30, "sum": 0.0, "scale": 0.0}, False),
        ({"logit": math.nan, "sum": math.nan, "scale": math.nan}, False),
        ({"logit": math.inf, "sum": math.inf, "scale": math.inf}, False),
        ({"logit": 1.0, "sum": 1.0, "scale": math.inf}, False),
    ],
)
def test_passed_is_computed_from_the_figures(figures: dict[str, float], passed: bool) -> None:
    certificate = Completeness.model_validate(figures | {"tolerance": 1e-5})
    assert certificate.passed is passed
    forged = certificate.model_dump() | {"passed": not passed, "residual": 0.0}
    assert Completeness.model_validate(forged).passed is passed


def test_each_precision_has_its_own_cap_of_the_tolerance() -> None:
    figures = {"logit": 1.0, "sum": 1.001, "scale": 1.0, "tolerance": 2e-3}
    assert TOLERANCE_CAPS == {"fp32": 1e-4, "tf32": 2e-3, "fp16": 2e-3}
    half = Completeness.model_validate(figures | {"precision": "fp16"})
    assert half.passed
    assert Completeness.from_json(half.to_json()) == half
    assert not Completeness.model_validate(figures | {"sum": 1.0021, "precision": "fp16"}).passed
    single = Completeness.model_validate(figures | {"tolerance": 1e-4})
    assert single.precision == "fp32", "JSON of older versions has no precision"
    assert not single.passed


@pytest.mark.parametrize("tolerance", [1.0, 1.1e-4, -1e-5, math.nan, math.inf])
def test_a_tolerance_above_the_cap_is_refused(tolerance: float) -> None:
    with pytest.raises(ValidationError, match=r"expected 0 to 0\.0001 for fp32"):
        Completeness(logit=1.0, sum=1.0, scale=1.0, tolerance=tolerance)


def test_a_difference_has_the_lower_precision_of_the_two() -> None:
    single = explanation()
    half = explanation(1).model_copy(
        update={"completeness": explanation(1).completeness.model_copy(update={"precision": "fp16", "tolerance": 1e-3})}
    )
    assert (single - explanation(1)).completeness.precision == "fp32"
    for one, other in ((single, half), (half, single)):
        figures = (one - other).completeness
        assert (figures.precision, figures.tolerance) == ("fp16", 1e-3)


def test_an_incomplete_explanation_cannot_be_drawn_saved_or_subtracted(tmp_path: Path) -> None:
    wrong = explanation(off=1.0)
    for draw in (wrong.rgba, wrong.heatmap, wrong.overlay):
        with pytest.raises(IncompleteExplanationError, match="is not complete") as caught:
            draw()
        assert caught.value.completeness == wrong.completeness
        assert caught.value.exit_code == 4
    for name in ("why.png", "why.npz"):
        with pytest.raises(IncompleteExplanationError):
            wrong.save(tmp_path / name)
    for pair in ((wrong, explanation(1)), (explanation(1), wrong)):
        with pytest.raises(IncompleteExplanationError):
            _ = pair[0] - pair[1]
    assert list(tmp_path.iterdir()) == []
    assert wrong.contributions.shape == (8, 10), "the numbers can be read"


def test_pictures_of_a_small_input_are_a_multiple_of_at_least_224_pixels() -> None:
    e = explanation()
    assert (e.rgba().mode, e.heatmap().mode, e.overlay().mode) == ("RGBA", "RGB", "RGB")
    assert {e.rgba(smooth=4).size, e.heatmap(smooth=3).size, e.overlay(percentile=90).size} == {(280, 224)}
    assert e.image.shape == (8, 10, 3), "what the network received"
    assert e.display.shape == (224, 280, 3)
    with pytest.raises(MissingArrayError, match=r"no weights(.|\n)*weights=True"):
        explanation(weights=False).rgba()


def test_the_overlay_has_the_detail_of_the_display() -> None:
    e = with_display()
    flat = e.model_copy(
        update={
            "bias": {"logit_bias": e.target.logit, "position": 0.0},
            "arrays": e.arrays
            | {"contributions": np.zeros((8, 10), np.float32), "weights": np.zeros((6, 8, 10), np.float32)},
            "completeness": e.completeness.model_copy(update={"scale": abs(e.target.logit)}),
        }
    )
    np.testing.assert_allclose(np.asarray(flat.overlay(), int), e.display, atol=1)
    np.testing.assert_array_equal((e - e).display, e.display)


def test_the_display_is_written_to_no_file_and_made_from_the_image_when_read_back(tmp_path: Path) -> None:
    e, without = with_display(), explanation()
    assert e.to_json() == without.to_json()
    assert pickle.loads(pickle.dumps(e)).arrays.keys() == e.arrays.keys()
    e.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert set(stored.files) == {"metadata", *without.arrays}
    for read in (Explanation.from_json(e.to_json()), read_explanation(tmp_path / "a.npz")):
        assert read == e == without
        np.testing.assert_array_equal(read.display, without.display)
        assert read.overlay().size == e.overlay().size


def test_a_display_in_json_of_other_programs_is_read() -> None:
    e = with_display()
    document = json.loads(e.to_json())
    text = base64.b64encode(e.display.tobytes()).decode()
    document["arrays"]["display"] = {"dtype": "uint8", "shape": list(e.display.shape), "base64": text}
    np.testing.assert_array_equal(Explanation.from_json(json.dumps(document)).display, e.display)


@pytest.mark.parametrize("shape", [(16, 19, 3), (15, 20, 3), (16, 10, 3), (4, 5, 3)])
def test_a_display_that_is_no_multiple_of_the_image_is_refused(shape: tuple[int, ...]) -> None:
    arrays = explanation().arrays | {"display": np.zeros(shape, np.uint8)}
    with pytest.raises(ValidationError, match="the display has"):
        Explanation.model_validate(explanation().model_dump() | {"arrays": arrays})


def test_errors_of_saving(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        explanation().save(tmp_path / "missing" / "why.png")
    with pytest.raises(InputError, match="picture is 'to_json'"):
        explanation().save(tmp_path / "why.png", picture="to_json")  # type: ignore[arg-type]
    explanation().save(tmp_path / f"{'n' * 240}.png")


def test_saving(tmp_path: Path) -> None:
    e = explanation()
    e.save(tmp_path / "a.png")
    e.save(str(tmp_path / "b.PNG"), picture="heatmap")
    e.save(tmp_path / "c.png", picture="rgba")
    e.save(tmp_path / "d.jpg", picture="rgba")
    e.save(tmp_path / "a.npz")
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), np.asarray(e.overlay()))
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.mode == "RGBA"
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["contributions"], e.contributions)
        np.testing.assert_array_equal(stored["weights"], e.weights)
        assert Explanation.from_json(str(stored["metadata"])).target == e.target
    assert len(list(tmp_path.iterdir())) == 5, "no temporary file remains"


@pytest.mark.parametrize("name", ["why", "why.txt", "why.eps"])
def test_a_suffix_that_is_not_that_of_a_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="not that of a picture"):
        explanation().save(tmp_path / name)


def test_a_failed_write_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "why.png").write_bytes(b"older")
    monkeypatch.setattr(Image.Image, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explanation().save(tmp_path / "why.png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_a_difference_explains_the_difference_of_two_logits() -> None:
    cat, lynx = explanation(0, label="cat"), explanation(1, label="lynx")
    delta = cat - lynx
    assert delta.target.label == "cat vs lynx"
    assert delta.target.index is None
    assert delta.target.logit == cat.target.logit - lynx.target.logit
    np.testing.assert_array_equal(delta.contributions, cat.contributions - lynx.contributions)
    np.testing.assert_array_equal(delta.weights, cat.weights - lynx.weights)
    assert delta.bias == {"logit_bias": 0.0, "position": 0.0}
    assert delta.completeness.passed
    assert (cat - cat).contributions.any() is np.False_
    assert "weights" not in (cat - explanation(1, weights=False)).arrays


def test_explanations_of_different_images_or_models_cannot_be_subtracted() -> None:
    cat = explanation(weights=False)
    other_image = cat.model_copy(update={"arrays": {**cat.arrays, "image": np.zeros((8, 10, 3), np.uint8)}})
    other_model = cat.model_copy(update={"model": "another"})
    for other in (other_image, other_model):
        with pytest.raises(InputError, match="cannot be subtracted"):
            _ = cat - other
    assert (cat - cat.model_copy(update={"source": "the same, as bytes"})).completeness.passed
    with pytest.raises(TypeError):
        _ = cat - 1  # type: ignore[operator]


@pytest.mark.parametrize(
    "forge",
    [
        lambda document: document["arrays"].update(
            contributions=json.loads(explanation(5).to_json())["arrays"]["contributions"]
        ),
        lambda document: document["bias"].update(more=1.0),
        lambda document: document["completeness"].update(scale=-1.0, sum=9.0),
        lambda document: document["completeness"].update(scale=1e30),
    ],
)
def test_an_explanation_with_a_forged_certificate_is_refused(forge: Any) -> None:
    document = json.loads(explanation().to_json())
    forge(document)
    with pytest.raises(IncompleteExplanationError, match="the certificate has the"):
        Explanation.from_json(json.dumps(document))


def test_arrays_of_different_shapes_and_a_certificate_of_another_logit_are_refused() -> None:
    good = json.loads(explanation().to_json())
    for name, shape in (("weights", [6, 10, 8]), ("image", [10, 8, 3]), ("weights", [12, 8, 5])):
        document = copy.deepcopy(good)
        document["arrays"][name]["shape"] = shape
        with pytest.raises(InputError, match="not of one image"):
            Explanation.from_json(json.dumps(document))
    good["target"]["logit"] += 1
    with pytest.raises(InputError, match="the certificate has the logit"):
        Explanation.from_json(json.dumps(good))


def test_an_explanation_whose_arrays_were_changed_cannot_be_drawn() -> None:
    changed = pickle.loads(pickle.dumps(explanation()))
    changed.arrays["contributions"] = np.full((8, 10), 5, np.float32)
    with pytest.raises(IncompleteExplanationError):
        changed.overlay()


def test_a_certificate_is_checked_once_but_again_for_a_changed_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []

    def counted(*arrays: Any, **figures: Any) -> str | None:
        checked.append(arrays)
        return certificate_fault(*arrays, **figures)

    monkeypatch.setattr("bcos_sdk.results._explanation.certificate_fault", counted)
    whole = explained()
    assert len(checked) == len(whole.explanations), "becoming a part of a result is no reason to check again"
    first = whole.explanations[0]
    forged = first.completeness.model_copy(update={"sum": first.completeness.sum + 1.0})
    with pytest.raises(IncompleteExplanationError, match="the certificate has the sum"):
        Explained(
            source=whole.source,
            prediction=whole.prediction,
            explanations=(first.model_copy(update={"completeness": forged}),),
        )


def test_a_failure_has_the_fields_of_its_error() -> None:
    error = UnreadableImageError("it is damaged", source="inside", hint="Try another.")
    failure = Failure.of(error, "cat.png")
    assert failure.model_dump() == {
        "schema_version": 1,
        "source": "cat.png",
        "code": "image_unreadable",
        "message": "it is damaged",
        "hint": "Try another.",
        "retryable": False,
    }
    assert Failure.from_json(failure.to_json()) == failure
    assert Failure.of(ImageTooLargeError("large", retryable=True), "x").retryable
