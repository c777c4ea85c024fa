"""The collection of small networks: each agrees with autograd in two runtimes, or is refused with its reason."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from support.collection import COLLECTION, REFUSED, SIZE, SIZES
from support.collection_check import errors_of

from bcos_sdk.errors import BcosError

pytestmark = [
    pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'"),
    pytest.mark.filterwarnings("ignore"),
]

LIMIT = 1e-4
NETWORKS = [(kind, name) for kind, table in COLLECTION.items() for name in table]
EVERY = 16
"""Of each this many networks, one runs in the fast tests. `make test-full` runs all of them."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(*network, marks=[] if place % EVERY == 0 else [pytest.mark.full])
        for place, network in enumerate(NETWORKS)
    ],
)
def test_a_network_is_right_in_both_runtimes_or_refused_with_its_reason(kind: str, name: str) -> None:
    torch.manual_seed(0)
    module = COLLECTION[kind][name]().eval()
    if (kind, name) in REFUSED:
        with pytest.raises(BcosError, match=REFUSED[kind, name]) as caught:
            errors_of(module)
        assert caught.value.hint
        return
    errors = errors_of(module, SIZES.get(name, SIZE))
    assert {what: error for what, error in errors.items() if not error < LIMIT} == {}


def test_the_collection_is_large_and_few_of_it_are_refused() -> None:
    assert len(NETWORKS) >= 300
    assert len(REFUSED) <= 15
    assert set(NETWORKS) >= {*REFUSED}


def test_the_documentation_counts_the_collection() -> None:
    rows = [(kind, len(table), sum(one == kind for one, _ in REFUSED)) for kind, table in COLLECTION.items()]
    rows.append(("all", len(NETWORKS), len(REFUSED)))
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    for kind, count, refused in rows:
        assert f"| {kind} | {count} | {count - refused} | {refused} |" in page
