"""A bundle in fp16: the same guarantees as in fp32, with the tolerance of fp16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.bundles import copy_of, edit_manifest, random_pixels, sign_again, small_bundle
from support.export_extra import numpy_helper, onnx

from bcos_sdk import Client, Explained
from bcos_sdk.contract import TOLERANCE_CAPS
from bcos_sdk.errors import BundleError, IncompleteExplanationError, SelfTestError

IMAGES = random_pixels(3)
BODY = "explain/body.linear/Transpose"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return copy_of(small_bundle(precision="fp16"), tmp_path / "bundle")


def falsify(bundle: Path, factor: float) -> None:
    """Multiply the fp16 weights of the transposed body by a factor. The logits stay right, W(x) becomes wrong."""
    path = bundle / "explain.onnx"
    model = onnx.load(path)
    (node,) = [one for one in model.graph.node if one.name == BODY]
    (weights,) = [numpy_helper.to_array(one) for one in model.graph.initializer if one.name == node.input[0]]
    assert weights.dtype == np.float16
    model.graph.initializer.append(numpy_helper.from_array((weights * factor).astype(np.float16), "falsified"))
    node.input[0] = "falsified"
    onnx.save(model, path)
    sign_again(bundle)


def test_explanations_are_complete_with_the_tolerance_of_fp16() -> None:
    with Client(small_bundle(precision="fp16").path, device="cpu") as half, Client(small_bundle().path) as single:
        results = half.explain(IMAGES, targets=["fox", "mean", "fox vs lynx"], weights=True)
        exact = single.explain(IMAGES, targets=["fox", "mean", "fox vs lynx"], weights=True)
    for result, other in zip(results, exact, strict=True):
        assert Explained.from_json(result.to_json()) == result
        for explanation, expected in zip(result.explanations, other.explanations, strict=True):
            figures = explanation.completeness
            assert figures.passed
            assert (figures.precision, figures.tolerance) == ("fp16", 1e-3)
            assert expected.completeness.precision == "fp32"
            distance = np.linalg.norm(explanation.weights - expected.weights)
            assert 0 < distance < 1e-2 * np.linalg.norm(expected.weights)
            explanation.overlay()


def test_a_wrong_explanation_fails_the_self_test(bundle: Path) -> None:
    falsify(bundle, 1.25)
    with Client(bundle, device="cpu") as client:
        client.predict(IMAGES)
        with pytest.raises(SelfTestError, match="weights differ from the golden record"):
            client.explain(IMAGES[0])


@pytest.mark.parametrize(("tolerance", "factor"), [(1e-3, 1.02), (1.0, 1.1)], ids=["as exported", "forged"])
def test_a_wrong_explanation_fails_the_certificate(bundle: Path, tolerance: float, factor: float) -> None:
    falsify(bundle, factor)
    edit_manifest(bundle, lambda document: document.update(tolerance=tolerance))
    edit_manifest(bundle, lambda document: document["parity_limits"].update(weights=0.1, logits=0.1))
    with Client(bundle, device="cpu") as client, pytest.raises(IncompleteExplanationError) as caught:
        client.explain(IMAGES[0])
    assert caught.value.completeness.tolerance == min(tolerance, TOLERANCE_CAPS["fp16"])


def test_an_unknown_precision_is_refused(bundle: Path) -> None:
    edit_manifest(bundle, lambda document: document.update(precision="int8"))
    with pytest.raises(BundleError, match="precision"):
        Client(bundle, device="cpu")
