"""Compare every published entry with the reference package: URL of the weights, preprocessing, figures."""

from __future__ import annotations

import math

import pytest
import support.needs_torch  # noqa: F401
from support import reference

from bcos_sdk.registry import builtin_registry

PUBLISHED = {name: spec for name, spec in builtin_registry().items() if spec.weights is not None}


def test_every_entry_point_of_the_reference_is_in_the_registry() -> None:
    assert len(PUBLISHED) == 26
    assert PUBLISHED.keys() <= set(reference.entry_points())
    assert {spec.published_weights.url for spec in PUBLISHED.values() if spec.published_weights} == {
        url for url in reference.urls() if not url.rpartition("/")[2].startswith("standard_")
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_and_preprocessing_are_those_of_the_reference(name: str) -> None:
    spec, (url, transform) = PUBLISHED[name], reference.published(name)
    assert spec.published_weights is not None
    assert spec.published_weights.url == url
    assert url.endswith(f"/{spec.published_weights.file_name}")
    assert url.endswith(f"-{spec.published_weights.sha256_prefix}.pth")
    assert spec.input.resize == transform.resize.size
    assert spec.input.interpolation == transform.resize.interpolation.value
    assert spec.input.crop == spec.input.size == tuple(transform.center_crop.size)
    assert type(transform.transforms.transforms[-1]).__name__ == "AddInverse"
    assert spec.input.channels == "rgb+complement"


@pytest.mark.parametrize("name", PUBLISHED)
def test_figures_are_plausible(name: str) -> None:
    spec = PUBLISHED[name]
    assert spec.architecture.resolved_logit_bias == pytest.approx(-math.log(999), abs=1e-15)
    assert spec.published.top1 is not None
    assert spec.published.top5 is not None
    assert 50 < spec.published.top1 < spec.published.top5 < 100
