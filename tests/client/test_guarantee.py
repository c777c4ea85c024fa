"""Damage is caught: at load by the hash, and under a forged manifest by the self-test or by the certificate."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import copy_of, cropped, edit_manifest, random_pixels, sign_again, small_bundle, small_network
from support.export_extra import export, numpy_helper, onnx, torch

from bcos_sdk import Client, Explained, Failure
from bcos_sdk.backends._graphs import GraphBackend
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


def spoil_explanation(bundle: Path, node: str, factor: float = 1.01) -> None:
    """Give one node of the explaining half weights of its own, slightly off; the logits stay right."""
    path = bundle / "explain.onnx"
    model = onnx.load(path)
    (found,) = [one for one in model.graph.node if one.name == node]
    stored = {one.name: one for one in model.graph.initializer}
    place = next(place for place, name in enumerate(found.input) if name in stored)
    values = numpy_helper.to_array(stored[found.input[place]])
    model.graph.initializer.append(numpy_helper.from_array(values * np.float32(factor), "spoiled"))
    found.input[place] = "spoiled"
    onnx.save(model, path)


def silence_the_self_test(bundle: Path) -> None:
    """Limits that everything keeps: only the certificate is left."""
    edit_manifest(bundle, lambda document: document["parity_limits"].update(weights=1e300, logits=1e300))


def spoil_one_image(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """The graph is right; the device gets the second image of a batch wrong."""
    explain = GraphBackend.explain

    def spoiling(self: Any, images: Any, targets: Any, *, weights: bool) -> Any:
        outputs = explain(self, images, targets, weights=weights)
        if len(images) > 1:
            spoil(outputs)
        return outputs

    monkeypatch.setattr(GraphBackend, "explain", spoiling)


def kinds(results: list[Any]) -> list[type]:
    return [type(result) for result in results]


@pytest.mark.parametrize("file", ["weights.bin", "explain.onnx", "predict.onnx", "golden.npz"])
def test_a_flipped_bit_is_noticed_at_load(bundle: Path, file: str) -> None:
    contents = bytearray((bundle / file).read_bytes())
    contents[len(contents) // 2] ^= 1
    (bundle / file).write_bytes(contents)
    with pytest.raises(BundleError, match=f"{file} is not the file that was exported"):
        Client(bundle, device="cpu")


@pytest.mark.parametrize("change", [np.negative, lambda values: values * 1.5, lambda values: values * np.nan])
def test_weights_under_a_forged_manifest_fail_the_self_test(bundle: Path, change: Any) -> None:
    """Forward and explanation share their weights: both change alike, and still add up. The golden record tells."""
    change_weights(bundle, change)
    sign_again(bundle)
    with Client(bundle, device="cpu") as client:
        for call in (client.predict, client.explain, client.predict):
            with pytest.raises(SelfTestError, match="does not give on cpu what it gave when it was exported") as caught:
                call(IMAGES[0])
            assert (caught.value.code, caught.value.exit_code) == ("self_test_failed", 3)
        with pytest.raises(SelfTestError):
            client.warmup()


SPOILED = ["explain/body.linear/Transpose", "explain/stem.linear/ConvTranspose", "explain/head/MatMul"]


@pytest.mark.parametrize("node", SPOILED)
def test_weights_of_the_explanation_fail_the_self_test(bundle: Path, node: str) -> None:
    spoil_explanation(bundle, node)
    sign_again(bundle)
    with Client(bundle, device="cpu") as client:
        client.predict(IMAGES)
        with pytest.raises(SelfTestError, match="weights of size"):
            client.explain(IMAGES[0])


@pytest.mark.parametrize("node", [*SPOILED, "explain/model/Mul_2", "explain/head/Mul"])
def test_the_certificate_fails_on_every_image(bundle: Path, node: str) -> None:
    spoil_explanation(bundle, node)
    sign_again(bundle)
    silence_the_self_test(bundle)
    with Client(bundle, device="cpu") as client:
        with pytest.raises(IncompleteExplanationError, match="does not add up") as caught:
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
def test_explanations_that_are_no_numbers_fail(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    spoil_one_image(monkeypatch, lambda outputs: outputs.contributions[1].fill(value))
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_what_is_drawn_from_weights_is_certified_by_weights(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Contributions that add up do not vouch for the W(x) beside them."""
    spoil_one_image(monkeypatch, lambda outputs: outputs.weights[1].fill(value))
    with Client(small_bundle().path, device="cpu") as client:
        results = client.explain(IMAGES, weights=True, on_error="return")
    assert kinds(results) == [Explained, Failure, Explained]
    assert isinstance(results[1], Failure)
    assert results[1].code == "explanation_incomplete"


def test_a_device_that_explains_another_class_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_one_image(monkeypatch, lambda outputs: outputs.classes[1].fill(99))
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]
        assert kinds(client.explain(IMAGES, targets="fox", on_error="return")) == [Explained, Failure, Explained]


def test_no_manifest_lifts_the_cap_of_the_tolerance(bundle: Path) -> None:
    spoil_explanation(bundle, SPOILED[0])
    sign_again(bundle)
    silence_the_self_test(bundle)
    edit_manifest(bundle, lambda document: document.update(tolerance=1.0))
    with Client(bundle, device="cpu") as client, pytest.raises(IncompleteExplanationError, match=r"tolerance 1\.0e-04"):
        client.explain(IMAGES[0])


def test_one_incomplete_image_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(outputs: Any) -> None:
        outputs.contributions[1, 0, 3, 3] += 1

    spoil_one_image(monkeypatch, spoil)
    with Client(small_bundle().path, device="cpu") as client:
        assert kinds(client.explain(IMAGES, on_error="return")) == [Explained, Failure, Explained]


@pytest.mark.needs_torch
def test_a_network_that_says_nothing_yet_can_be_run(tmp_path: Path) -> None:
    """Golden logits and W(x) of zero are no reason to fail."""
    network = copy.deepcopy(small_network())
    torch.nn.init.zeros_(network.head.weight)
    torch.nn.init.zeros_(network.head.bias)
    bundle = export(network, tmp_path / "silent", input_size=(20, 28), max_batch=2)
    with Client(bundle.path, device="cpu") as client:
        (result,) = client.explain(encode(cropped(IMAGES[0])))
    assert result.explanations[0].completeness.passed
    assert not result.explanations[0].contributions.any()


def test_a_golden_record_that_is_none_is_refused(bundle: Path) -> None:
    (bundle / "golden.npz").write_bytes(b"not a zip")
    sign_again(bundle)
    with pytest.raises(BundleError, match=r"golden\.npz cannot be read"):
        Client(bundle, device="cpu")
