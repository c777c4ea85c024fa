"""Damage is detected: by the hash when a bundle is opened, and with forged hashes by self-test or certificate."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import copy_of, cropped, edit_manifest, random_pixels, sign_again, small_bundle, small_network
from support.export_extra import export, numpy_helper, onnx, torch

from bcos_sdk import Client, Explained, Failure
from bcos_sdk.backends import GraphBackend
from bcos_sdk.errors import BundleError, IncompleteExplanationError, SelfTestError
from bcos_sdk.images import encode

IMAGES = random_pixels(3)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return copy_of(small_bundle(), tmp_path / "bundle")


def change_weights(bundle: Path, change: Any, values: slice = slice(100, 140)) -> None:
    """Change some values inside the weights file of the ONNX graphs."""
    path = bundle / "weights.bin"
    weights = np.frombuffer(path.read_bytes(), np.float32).copy()
    weights[values] = change(weights[values])
    path.write_bytes(weights.tobytes())


def falsify_explanation(bundle: Path, node: str, factor: float = 1.01) -> None:
    """Multiply the weights of one node of the transposed pass by a factor. The logits stay right."""
    path = bundle / "explain.onnx"
    model = onnx.load(path)
    (found,) = [one for one in model.graph.node if one.name == node]
    stored = {one.name: one for one in model.graph.initializer}
    place = next(place for place, name in enumerate(found.input) if name in stored)
    values = numpy_helper.to_array(stored[found.input[place]])
    model.graph.initializer.append(numpy_helper.from_array(values * np.float32(factor), "falsified"))
    found.input[place] = "falsified"
    onnx.save(model, path)


def disable_the_self_test(bundle: Path) -> None:
    """Set limits that the errors of these tests do not exceed, so that only the certificate can fail."""
    edit_manifest(bundle, lambda document: document["parity_limits"].update(weights=0.1, logits=0.1))


def falsify_second_image(monkeypatch: pytest.MonkeyPatch, falsify: Any) -> None:
    """Let the backend return wrong outputs for the second image of a batch."""
    start = GraphBackend.start_explain

    def falsified(self: Any, images: Any, targets: Any, *, weights: bool) -> Any:
        outputs = start(self, images, targets, weights=weights)()
        if len(images) > 1:
            falsify(outputs)
        return lambda: outputs

    monkeypatch.setattr(GraphBackend, "start_explain", falsified)


def kinds(results: list[Any]) -> list[type]:
    return [type(result) for result in results]


@pytest.mark.parametrize("file", ["weights.bin", "explain.onnx", "predict.onnx", "golden.npz"])
def test_a_flipped_bit_is_detected_when_the_bundle_is_opened(bundle: Path, file: str) -> None:
    contents = bytearray((bundle / file).read_bytes())
    contents[len(contents) // 2] ^= 1
    (bundle / file).write_bytes(contents)
    with pytest.raises(BundleError, match=f"{file} is not the file that was exported"):
        Client(bundle, device="cpu")


@pytest.mark.parametrize("change", [np.negative, lambda values: values * 1.5, lambda values: values * np.nan])
def test_changed_weights_with_forged_hashes_fail_the_self_test(bundle: Path, change: Any) -> None:
    """Both graphs share their weights, so explanations are still complete. Only the golden record differs."""
    change_weights(bundle, change)
    sign_again(bundle)
    with Client(bundle, device="cpu") as client:
        for call in (client.predict, client.explain, client.predict):
            with pytest.raises(
                SelfTestError, match=r"self-test failed on cpu: .* differ from the golden record"
            ) as caught:
                call(IMAGES[0])
            assert (caught.value.code, caught.value.exit_code) == ("self_test_failed", 3)
        with pytest.raises(SelfTestError):
            client.warmup()


FALSIFIED = ["explain/body.linear/Transpose", "explain/stem.linear/ConvTranspose", "explain/head/MatMul"]


@pytest.mark.parametrize("node", FALSIFIED)
def test_changed_weights_of_the_explanation_fail_the_self_test(bundle: Path, node: str) -> None:
    falsify_explanation(bundle, node)
    sign_again(bundle)
    with Client(bundle, device="cpu") as client:
        client.predict(IMAGES)
        with pytest.raises(SelfTestError, match="weights differ from the golden record"):
            client.explain(IMAGES[0])


@pytest.mark.parametrize("node", [*FALSIFIED, "explain/model/Mul_2", "explain/head/Mul"])
def test_without_self_test_the_certificate_of_every_image_fails(bundle: Path, node: str) -> None:
    falsify_explanation(bundle, node)
    sign_again(bundle)
    disable_the_self_test(bundle)
    with Client(bundle, device="cpu") as client:
        with pytest.raises(IncompleteExplanationError, match="is not complete") as caught:
            client.explain(IMAGES[0], weights=True)
        figures = caught.value.completeness
        assert not figures.passed
        assert figures.relative_residual > figures.tolerance
        assert caught.value.exit_code == 4
        results = client.explain(IMAGES, on_error="return")
        assert [one.code for one in results if isinstance(one, Failure)] == ["explanation_incomplete"] * 3
        assert len(client.predict(IMAGES)) == 3, "predictions are not affected"
    with Client(bundle, device="cpu", on_incomplete="flag") as client:
        for result in client.explain(IMAGES, weights=True):
            (explanation,) = result.explanations
            assert not explanation.completeness.passed
            with pytest.raises(IncompleteExplanationError):
                explanation.rgba()
        for result in client.explain(IMAGES, targets=["fox vs lynx", "fox"]):
            assert [one.completeness.passed for one in result.explanations] == [False, False]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_explanation_with_nan_or_infinity_fails(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    falsify_second_image(monkeypatch, lambda outputs: outputs.contributions[1].fill(value))
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_wrong_weights_fail_the_certificate(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """The certificate is computed from W(x) if it is requested, not from the graph's contributions."""
    falsify_second_image(monkeypatch, lambda outputs: outputs.weights[1].fill(value))
    with Client(small_bundle().path, device="cpu") as client:
        results = client.explain(IMAGES, weights=True, on_error="return")
    assert kinds(results) == [Explained, Failure, Explained]
    assert isinstance(results[1], Failure)
    assert results[1].code == "explanation_incomplete"


def test_an_explanation_of_another_class_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    falsify_second_image(monkeypatch, lambda outputs: outputs.classes[1].fill(99))
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]
        assert kinds(client.explain(IMAGES, targets="fox", on_error="return")) == [Explained, Failure, Explained]


def test_a_manifest_cannot_raise_the_tolerance_above_its_cap(bundle: Path) -> None:
    falsify_explanation(bundle, FALSIFIED[0])
    sign_again(bundle)
    disable_the_self_test(bundle)
    edit_manifest(bundle, lambda document: document.update(tolerance=1.0))
    with Client(bundle, device="cpu") as client, pytest.raises(IncompleteExplanationError, match=r"tolerance 1\.0e-04"):
        client.explain(IMAGES[0])


def test_an_incomplete_explanation_does_not_affect_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def falsify(outputs: Any) -> None:
        outputs.contributions[1, 0, 3, 3] += 1

    falsify_second_image(monkeypatch, falsify)
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]


@pytest.mark.needs_torch
def test_a_network_with_zero_output_passes_the_self_test(tmp_path: Path) -> None:
    """Logits and W(x) of the golden record are zero; relative errors must not divide by zero."""
    network = copy.deepcopy(small_network())
    torch.nn.init.zeros_(network.head.weight)
    torch.nn.init.zeros_(network.head.bias)
    bundle = export(network, tmp_path / "silent", input_size=(20, 28), max_batch=2)
    with Client(bundle.path, device="cpu") as client:
        (result,) = client.explain(encode(cropped(IMAGES[0])))
    assert result.explanations[0].completeness.passed
    assert not result.explanations[0].contributions.any()


def test_an_unreadable_golden_record_is_refused(bundle: Path) -> None:
    (bundle / "golden.npz").write_bytes(b"not a zip")
    sign_again(bundle)
    with pytest.raises(BundleError, match="golden record of the bundle is not usable"):
        Client(bundle, device="cpu")
