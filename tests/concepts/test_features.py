"""`client.features`: the activations of several layers at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bcos_sdk import Client, Failure
from bcos_sdk.bundle import builtin_bundle
from bcos_sdk.errors import InputError, UnknownLayerError
from bcos_sdk.results import Features

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.jpg"))


@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_features_are_the_activations_that_explain_features_sees(device: str) -> None:
    if device == "openvino":
        pytest.importorskip("openvino")
    with Client(builtin_bundle(), device=device, threads=1) as client:
        results = client.features(SAMPLES[:5], layers=["layer4", "layer2"])
        for path, result in zip(SAMPLES, results, strict=False):
            assert result.prediction.classes[0].label == client.predict(path)[0].classes[0].label
            for layer in ("layer4", "layer2"):
                expected = client.explain_features(path, layer=layer).activations
                assert np.abs(result[layer] - expected).max() <= 1e-4 * np.abs(expected).max()
        assert [one.layer for one in client.features(SAMPLES[0])[0].layers] == list(client.layers)
        assert Features.from_json(results[0].to_json()) == results[0]
        with pytest.raises(KeyError):
            results[0]["layer3"]
        streamed = list(client.features_stream([SAMPLES[0], "missing.png", SAMPLES[1]], layers="layer2"))
        assert isinstance(streamed[1], Failure)
        assert isinstance(streamed[0], Features)
        assert np.allclose(streamed[0]["layer2"], results[0]["layer2"], atol=1e-3)
        with pytest.raises(UnknownLayerError):
            client.features(SAMPLES[0], layers="layer7")
        with pytest.raises(InputError):
            client.features(SAMPLES[0], layers=["layer2", "layer2"])
