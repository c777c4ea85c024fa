"""`explain_layer` and `explain_features`: against autograd, on both CPU runtimes, in batches, with their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import copy_of
from support.export_extra import load_model, torch

from bcos_sdk import Client
from bcos_sdk.bundle import builtin_bundle, open_bundle
from bcos_sdk.errors import IncompleteExplanationError, InputError, SelfTestError, UnknownLayerError
from bcos_sdk.images import encode
from bcos_sdk.registry import builtin_registry
from bcos_sdk.results import FeatureExplanation, LayerExplanation

IMAGES = [np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8) for seed in range(3)]


@pytest.fixture(scope="module", params=["cpu", "openvino"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(builtin_bundle(), device=request.param, threads=1) as client:
        yield client


def by_autograd(image: np.ndarray, layer: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The image, the output of the layer and the logits, with their graph, in float64."""
    module = load_model(builtin_registry()["cifar10_resnet18_w16"]).double().eval()
    kept: list[torch.Tensor] = []
    module.get_submodule(layer).register_forward_hook(lambda _module, _inputs, result: kept.append(result))
    x = torch.from_numpy(encode(image)).double()[None].requires_grad_()
    logits = module(x)
    return x, kept[0], logits


def test_a_value_of_a_layer_is_explained_by_pixels(client: Client) -> None:
    direction = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    positions: list[Any] = [(2, 5), "max", "mean"]
    results = client.explain_layer(IMAGES, layer="layer3", direction=direction, position=positions)
    for image, result, place in zip(IMAGES, results, positions, strict=True):
        x, output, _ = by_autograd(image, "layer3")
        values = torch.einsum("c,chw->hw", torch.from_numpy(direction).double(), output[0])
        value = values.mean() if place == "mean" else values.max() if place == "max" else values[place]
        (row,) = torch.autograd.grad(value, x)
        assert result.completeness.passed
        assert result.value == pytest.approx(float(value.detach()), rel=1e-4)
        assert np.linalg.norm(result.weights - row[0].numpy()) < 1e-4 * float(row.norm())
        assert place == "max" or result.position == place
    assert LayerExplanation.from_json(results[0].to_json()) == results[0]
    assert results[0].rgba().size == results[0].overlay().size == (224, 224)


def test_a_logit_is_explained_by_features(client: Client) -> None:
    result = client.explain_features(IMAGES[0], layer="layer2", target="horse", top_k=4)
    _, output, logits = by_autograd(IMAGES[0], "layer2")
    (gradient,) = torch.autograd.grad(logits[0, 7], output)
    expected = (gradient * output)[0].detach().numpy()
    assert np.linalg.norm(result.contributions - expected) < 1e-4 * np.linalg.norm(expected)
    assert result.completeness is not None
    assert result.completeness.passed
    assert result.target.logit == pytest.approx(float(logits[0, 7].detach()), rel=1e-4)
    best = result.features[0]
    assert best.contribution == result.contributions.max()
    assert result.contributions[best.channel][best.position] == best.contribution
    again = client.explain_layer(IMAGES[0], layer="layer2", direction=best.direction, position=best.position)
    assert again.value == pytest.approx(best.activation, rel=1e-4)
    assert FeatureExplanation.from_json(result.to_json()) == result


def test_streams_and_async_calls_give_the_same(client: Client) -> None:
    one = client.explain_layer(IMAGES[0], layer="layer4", direction=3)
    (streamed,) = client.explain_layer_stream(IMAGES[:1], layer="layer4", direction=3)
    assert isinstance(streamed, LayerExplanation)
    assert streamed.value == pytest.approx(one.value, rel=1e-5)
    features = asyncio.run(client.aexplain_features(IMAGES[0], layer="layer4"))
    (again,) = client.explain_features_stream(IMAGES[:1], layer="layer4")
    assert isinstance(again, FeatureExplanation)
    assert again.target.index == features.target.index == features.prediction.classes[0].index


def test_wrong_arguments_are_typed_errors(client: Client) -> None:
    with pytest.raises(UnknownLayerError, match="no layer 'layr3'") as failure:
        client.explain_features(IMAGES[0], layer="layr3")
    assert "layer3" in str(failure.value.hint)
    for wrong in (
        {"direction": 64},
        {"direction": np.ones(5)},
        {"direction": 0, "position": (8, 0)},
        {"direction": [0, 1]},
    ):
        with pytest.raises(InputError):
            client.explain_layer(IMAGES[0], layer="layer3", **wrong)
    with pytest.raises(InputError, match="expected one class"):
        client.explain_features(IMAGES[0], layer="layer3", target="cat vs dog")


def test_a_changed_result_is_noticed(client: Client) -> None:
    result = client.explain_features(IMAGES[0], layer="layer3")
    features = result.arrays["features"].copy()
    features[0, 0] += 1
    with pytest.raises(IncompleteExplanationError):
        FeatureExplanation.model_validate(dict(result) | {"arrays": {**result.arrays, "features": features}})


def test_the_self_test_covers_the_graphs_of_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A golden record of another row of W fails before the first use of the graph."""
    bundle = open_bundle(copy_of(open_bundle(builtin_bundle()), tmp_path / "copy"))
    golden = bundle.golden_layers()[2]
    monkeypatch.setattr(type(golden), "query", lambda *_: (np.zeros((1, 1), np.int64), golden.direction[None, None]))
    with Client(bundle.path, device="cpu") as client, pytest.raises(SelfTestError):
        client.explain_layer(IMAGES[0], layer="layer3", direction=0)
