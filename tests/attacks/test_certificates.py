"""Forged certificates in JSON and .npz files: an explanation that does not add up is refused, whatever they state."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.attacks import HELD, attack, no_attack
from support.bundles import LABELS, random_pixels, small_bundle

from bcos_sdk import Client, Contrast, Explained, Explanation, read_explanation, read_results
from bcos_sdk.contract import TOLERANCE_CAPS
from bcos_sdk.errors import BcosError, IncompleteExplanationError, InputError

Document = dict[str, Any]

DRAWN = "it was drawn, with a passed certificate"


@pytest.fixture(scope="module")
def explained() -> Explained:
    """A class, the mean, and a difference, with W(x)."""
    with Client(small_bundle().path, device="cpu") as client:
        targets: list[int | str | Contrast] = [1, "mean", "fox vs lynx"]
        (result,) = client.explain(random_pixels(1), targets=targets, weights=True)
    return result


def array(document: Document, name: str) -> npt.NDArray[Any]:
    stored = document["arrays"][name]
    flat = np.frombuffer(base64.b64decode(stored["base64"]), stored["dtype"])
    values: npt.NDArray[Any] = flat.reshape(stored["shape"]).copy()
    return values


def put(document: Document, name: str, values: npt.NDArray[Any]) -> None:
    document["arrays"][name]["base64"] = base64.b64encode(values.tobytes()).decode("ascii")


def other_contributions(document: Document) -> None:
    """Other contributions with their true sum. Only the scale hides that they do not add up to the logit."""
    values = array(document, "contributions")
    values[0, 0] += 5
    put(document, "contributions", values)
    document["completeness"]["sum"] += 5


def with_scale(scale: Any) -> Callable[[Document], None]:
    def forge(document: Document) -> None:
        other_contributions(document)
        document["completeness"]["scale"] = scale

    return forge


def with_tolerance(tolerance: Any) -> Callable[[Document], None]:
    def forge(document: Document) -> None:
        other_contributions(document)
        document["completeness"]["tolerance"] = tolerance

    return forge


def with_nan_contributions(document: Document) -> None:
    values = array(document, "contributions")
    values[:] = np.nan
    put(document, "contributions", values)


def with_another_logit(document: Document) -> None:
    document["target"]["logit"] = document["completeness"]["logit"] = 50.0


def without_a_logit(document: Document) -> None:
    other_contributions(document)
    document["target"]["logit"] = "NaN"
    document["completeness"]["logit"] += 5


def with_another_sum(document: Document) -> None:
    put(document, "contributions", array(document, "contributions") * 2)


def with_another_bias(document: Document) -> None:
    document["bias"] = dict.fromkeys(document["bias"], 9.0)


def with_other_weights(document: Document) -> None:
    weights = array(document, "weights")
    put(document, "weights", np.ascontiguousarray(weights[:, ::-1]))


FORGERIES: dict[str, tuple[Callable[[Document], None], str]] = {
    "scale 1e30": (with_scale(1e30), DRAWN),
    "scale Infinity": (with_scale("Infinity"), HELD),
    "scale NaN": (with_scale("NaN"), HELD),
    "tolerance 1": (with_tolerance(1.0), HELD),
    "tolerance Infinity": (with_tolerance("Infinity"), HELD),
    "tolerance NaN": (with_tolerance("NaN"), HELD),
    "contributions that are not a number": (with_nan_contributions, HELD),
    "other contributions": (with_another_sum, HELD),
    "another bias": (with_another_bias, HELD),
    "another logit": (with_another_logit, HELD),
    "no logit of the target": (without_a_logit, DRAWN),
    "W(x) of another image": (with_other_weights, DRAWN),
}
KINDS = {"a class": 0, "the mean": 1, "a difference": 2}


def cases() -> list[Any]:
    return [
        pytest.param(kind, forge, id=f"{what}, {name}", marks=attack("output", f"a file with {name}", before=before))
        for what, kind in KINDS.items()
        for name, (forge, before) in FORGERIES.items()
    ]


@pytest.mark.parametrize(("kind", "forge"), cases())
def test_a_forged_certificate_draws_nothing(
    explained: Explained, kind: int, forge: Callable[[Document], None], tmp_path: Path
) -> None:
    document = json.loads(explained.explanations[kind].to_json())
    forge(document)
    in_npz = tmp_path / "forged.npz"
    arrays = {name: array(document, name) for name in document["arrays"]}
    np.savez(in_npz, allow_pickle=False, metadata=np.array(json.dumps(document | {"arrays": {}})), **arrays)
    whole = json.loads(explained.to_json())
    whole["explanations"] = [document]
    readers: list[Callable[[], Explanation]] = [
        lambda: Explanation.from_json(json.dumps(document)),
        lambda: Explained.from_json(json.dumps(whole)).explanations[0],
        lambda: read_explanation(in_npz),
    ]
    for read in readers:
        for draw in (Explanation.rgba, Explanation.overlay, Explanation.heatmap):
            with pytest.raises((IncompleteExplanationError, InputError)):
                draw(read())


@attack("output", "scale 1e30 in results without arrays", before="it could not be told from a checked certificate")
def test_a_certificate_without_arrays_is_not_verified(explained: Explained, tmp_path: Path) -> None:
    document = json.loads(explained.to_json(arrays="omit"))
    for one in document["explanations"]:
        one["completeness"] |= {"scale": 1e30, "verified": True}
        one["verified"] = True
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(document) + "\n", "utf-8")
    (read,) = read_results(file)
    assert isinstance(read, Explained)
    for explanation in (*read.explanations, *Explained.from_json(json.dumps(document)).explanations):
        assert not explanation.verified
        assert "verified=False" in repr(explanation)
        assert "not verified" in explanation._repr_html_()
        assert "✓" not in explanation._repr_html_()
        for draw in (explanation.rgba, explanation.overlay, explanation.heatmap):
            with pytest.raises(BcosError):
                draw()


@attack("output", "a forged explanation among results", before="it was read")
def test_a_forged_line_is_refused_or_skipped(explained: Explained, tmp_path: Path) -> None:
    document = json.loads(explained.to_json())
    with_scale(1e30)(document["explanations"][0])
    file = tmp_path / "results.jsonl"
    file.write_text(f"{json.dumps(document)}\n{explained.to_json()}\n", "utf-8")
    with pytest.raises(InputError, match=r"line 1 of .* is not a result: .* the certificate has the scale 1e\+30"):
        list(read_results(file))
    assert list(read_results(file, on_error="skip")) == [explained]


@no_attack
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_true_certificates_are_read_back(precision: Any, tmp_path: Path) -> None:
    """Also those of means and differences, whose scale is larger than that of their own terms."""
    with Client(small_bundle(precision=precision).path, device="cpu") as client:
        targets: list[int | str | Contrast] = [
            0,
            3,
            "mean",
            *(f"{a} vs {b}" for a in LABELS for b in LABELS),
            "mean vs fox",
        ]
        results = client.explain(random_pixels(3, seed=5), targets=targets, weights=True)
    for result in results:
        assert Explained.from_json(result.to_json()) == result
        for one in result.explanations:
            assert one.verified
            assert one.completeness.tolerance <= TOLERANCE_CAPS[one.completeness.precision]
            one.save(tmp_path / "one.npz")
            assert read_explanation(tmp_path / "one.npz") == one
            one.rgba()
