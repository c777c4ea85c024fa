"""Pictures, targets, hashes and golden records in JavaScript against our Python, numpy and hashlib."""

from __future__ import annotations

import hashlib
import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from support.node import call

from bcos_sdk import Contrast
from bcos_sdk.client._targets import ResolvedTargets, TargetResolver
from bcos_sdk.contract import CHANNEL_COUNTS, is_complete
from bcos_sdk.errors import BcosError
from bcos_sdk.images._convert import to_rgb
from bcos_sdk.pictures import box_mean, enlargement, heatmap, overlay, rgba, smoothing_window, to_picture

LABELS = ("tabby, tabby cat", "lynx", "fox", "crane, bird", "crane, machine", "Boxer", "boxer")


def maps(height: int, width: int, channels: int = 6) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    generator = np.random.default_rng(height + width)
    weights = generator.standard_normal((channels, height, width)).astype(np.float32)
    return weights, generator.standard_normal((height, width)).astype(np.float32)


def picture(answer: dict[str, Any]) -> npt.NDArray[np.int64]:
    levels: npt.NDArray[np.int64] = answer["data"].reshape(answer["height"], answer["width"], 4).astype(np.int64)
    return levels


def expected_picture(colours: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    return np.asarray(to_picture(colours).convert("RGBA")).astype(np.int64)


@pytest.mark.parametrize("size", [(32, 32), (20, 28), (1, 3), (224, 100)])
def test_pictures_are_those_of_python(size: tuple[int, int]) -> None:
    height, width = size
    weights, contributions = maps(height, width)
    factor = enlargement((height, width), 100)
    display = np.random.default_rng(1).integers(0, 256, (height * factor, width * factor, 3), dtype=np.uint8)
    shown = {"width": width * factor, "height": height * factor, "channels": 3, "data": display.reshape(-1)}
    over, heat = call(
        "pictures.js",
        [
            ("overlay", [shown, contributions.reshape(-1), width, height]),
            ("heatmap", [contributions.reshape(-1), width, height]),
        ],
    )
    # Python rounds halves to even, the browser up: one level of 255.
    assert np.abs(picture(over) - expected_picture(overlay(display, contributions))).max() <= 1
    assert np.abs(picture(heat) - expected_picture(heatmap(contributions))).max() <= 1
    for channels, count in CHANNEL_COUNTS.items():
        weights, contributions = maps(height, width, count)
        window = smoothing_window(enlargement((height, width)))
        (found,) = call(
            "pictures.js", [("rgba", [weights.reshape(-1), contributions.reshape(-1), width, height, channels])]
        )
        wanted = expected_picture(rgba(weights, contributions, smooth=window, channels=channels))  # type: ignore[arg-type]
        assert np.abs(picture(found) - wanted).max() <= 1, channels


def test_a_map_of_zeros_is_white_and_transparent() -> None:
    heat, colours = call(
        "pictures.js",
        [
            ("heatmap", [np.zeros(12, np.float32), 4, 3]),
            ("rgba", [np.zeros(72, np.float32), np.zeros(12, np.float32), 4, 3, "rgb+complement"]),
        ],
    )
    assert (picture(heat) == 255).all()
    assert not picture(colours)[..., 3].any()


def test_box_means_and_percentiles_are_those_of_python() -> None:
    values = np.random.default_rng(0).random((9, 14))
    windows = [1, 2, 3, 4, 15, 20]
    means = call("pictures.js", [("boxMean", [values.reshape(-1), 14, 9, window]) for window in windows])
    for window, mean in zip(windows, means, strict=True):
        assert mean.reshape(9, 14) == pytest.approx(box_mean(values, window), rel=1e-12)
    percents = [0, 0.5, 50, 99.5, 100]
    found = call("pictures.js", [("percentile", [values.reshape(-1), percent]) for percent in percents])
    assert found == pytest.approx(np.percentile(values, percents), rel=1e-12)


def test_maps_are_resized_as_by_pillow() -> None:
    _, values = maps(13, 17)
    for width, height in ((17, 13), (50, 13), (17, 40), (91, 77)):
        (found,) = call("resample.js", [("resizeMap", [values.reshape(-1), 17, 13, width, height])])
        expected = np.asarray(Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC))
        assert found.reshape(height, width) == pytest.approx(expected, abs=1e-6)


TARGETS: list[Any] = [
    None,
    0,
    "lynx",
    "LYNX",
    "tabby cat",
    "mean",
    "lynx vs fox",
    "lynx vs mean",
    "Boxer",
    "boxer",
    ["fox", 1, "fox vs lynx", "mean"],
    [Contrast("lynx", "fox"), Contrast(2)],
    ["tabby, tabby cat vs crane, bird"],
]
WRONG: list[Any] = [7, -1, "wolf", "crane", "BOXER", "wolf vs lynx", [], ["lynx", "wolf"]]


def as_javascript(target: Any) -> Any:
    if isinstance(target, list):
        return [*map(as_javascript, target)]
    return {"target": target.target, "against": target.against} if isinstance(target, Contrast) else target


def resolved(targets: Any) -> Any:
    manifest: Any = SimpleNamespace(classes=len(LABELS), ranks=5, labels=LABELS, map=None, probability="sigmoid")
    try:
        found = next(TargetResolver(manifest, 100).for_each_image(targets, 2))
    except BcosError as error:
        return error.code
    assert isinstance(found, ResolvedTargets)
    return {"rows": [*found.rows], "explanations": [[*pair] for pair in found.explanations if isinstance(pair, tuple)]}


def test_targets_are_those_of_the_client() -> None:
    classes = {"classes": len(LABELS), "ranks": 5, "labels": list(LABELS)}
    answers = call("targets.js", [("resolve", [as_javascript(one), 2, classes]) for one in [*TARGETS, *WRONG]])
    for target, answer in zip([*TARGETS, *WRONG], answers, strict=True):
        assert (answer.get("error") or answer) == resolved(target), target
    assert all("error" in answer for answer in answers[len(TARGETS) :])
    (too_many,) = call("targets.js", [("resolve", [None, 6, classes])])
    assert too_many["error"] == "unknown_target"


def test_certificates_are_those_of_the_contract() -> None:
    generator = np.random.default_rng(0)
    offsets = (0, 1e-6, 2.9e-5, 3.1e-5, 2e-4, 2.9e-4, 3.1e-4, 1)
    logits = generator.standard_normal(5).tolist()
    cases = [(a, a + off, 3.0, tolerance) for a in logits for off in offsets for tolerance in (1e-5, 1e-4, 1)]
    for precision in ("fp32", "fp16"):
        given = [{"logit": a, "sum": b, "scale": c, "tolerance": d, "precision": precision} for a, b, c, d in cases]
        answers = call("completeness.js", [("completeness", [one]) for one in given])
        assert [one["passed"] for one in answers] == [is_complete(*case, precision) for case in cases]
        assert len({one["passed"] for one in answers}) == 2


def test_hashes_without_the_browser_are_those_of_hashlib() -> None:
    contents = [bytes(range(256)) * 3 for _ in range(1)] + [
        b"\xff" * length for length in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000)
    ]
    found = call("sha256.js", [(name, [one]) for one in contents for name in ("computedHere", "sha256")])
    for one, here, browser in zip(contents, found[::2], found[1::2], strict=True):
        assert here.tobytes().hex() == browser == hashlib.sha256(one).hexdigest()


def test_golden_records_are_read_as_by_numpy() -> None:
    arrays = {
        "pixels": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        "target": np.int64(7),
        "weights": np.random.default_rng(0).random((6, 2, 4), np.float32),
        "jump": np.float64(0.25),
    }
    file = io.BytesIO()
    np.savez(file, **arrays)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    whole = file.getvalue()
    found, *damaged = call(
        "npz.js", [("readNpz", [one]) for one in (whole, packed.getvalue(), whole[:-5], b"", whole[100:])]
    )
    for name, array in arrays.items():
        assert tuple(found[name]["shape"]) == np.shape(array)
        assert np.array_equal(found[name]["data"], np.reshape(array, -1)), name
    assert [one["error"] for one in damaged] == ["bundle_invalid"] * 4


def test_orientations_turn_as_by_pillow() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    given = {"width": 7, "height": 5, "channels": 3, "data": pixels.reshape(-1)}
    answers = call("orientation.js", [("upright", [given, orientation]) for orientation in range(10)])
    for orientation, answer in enumerate(answers):
        photograph = Image.fromarray(pixels)
        exif = Image.Exif()
        exif[0x0112] = orientation
        photograph.info["exif"] = exif.tobytes()
        expected = np.asarray(to_rgb(photograph, "photograph"))
        assert np.array_equal(answer["data"].reshape(answer["height"], answer["width"], 3), expected), orientation
