"""W(x) is compared given the same choices: wrong rules beside ReLUs are found, and near ties refuse no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from bcos_sdk.backends import open_backend
from bcos_sdk.bundle import open_bundle
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters import compiler, export
from bcos_sdk.exporters.operators import TRANSPOSES
from bcos_sdk.exporters.transpose import Transposition
from bcos_sdk.exporters.verify import LIMITS, probe_images
from bcos_sdk.exporters.verify._watched import _are_ties
from bcos_sdk.models.layers import BcosConv2d

aten = torch.ops.aten
SIZE = (16, 16)


def relu_network(pool: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    parts = [nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), pool or nn.Identity(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def add_orthogonal(t: Transposition, value: fx.Node, size: float) -> None:
    """Add a vector d with ⟨d, value⟩ = 0 to the cotangent: columns are exchanged in pairs, with opposite signs.

    So W(x) is wrong, but every explanation still adds up to its logit, and its bias is right.
    """
    width = value.meta["val"].shape[-1]
    exchange = torch.zeros(width, width)
    for left in range(0, width - 1, 2):
        exchange[left, left + 1], exchange[left + 1, left] = size, -size
    moved = t.call(aten.matmul.default, value, t.constant("exchange", exchange))
    rows = t.broadcast_over_targets(moved)
    have = t._cotangents[value]
    t._cotangents[value] = t.call(aten.add.Tensor, have, rows)


@pytest.mark.parametrize(
    ("operator", "pool", "size"),
    [(aten.relu.default, None, 1e-7), (aten.max_pool2d.default, nn.MaxPool2d(2), 1e-6)],
    ids=["relu", "max_pool2d"],
)
def test_a_wrong_rule_of_a_choice_is_found(
    operator: object, pool: nn.Module | None, size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W(x) is off by 1e-3 to 2e-3, but adds up. A limit of 1e-2 for networks with choices would accept this."""
    right = TRANSPOSES[operator]

    def wrong(t: Transposition, node: fx.Node, cotangent: fx.Node) -> None:
        right(t, node, cotangent)
        add_orthogonal(t, node.all_input_nodes[0], size)

    monkeypatch.setattr(compiler, "TRANSPOSES", {**TRANSPOSES, operator: wrong})
    with pytest.raises(ParityError, match="the transposed pass differs from autograd in float64 by"):
        export(relu_network(pool), tmp_path / "b", input_size=SIZE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pool", [None, nn.MaxPool2d(2)], ids=["relu", "max_pool2d"])
def test_choices_do_not_widen_the_limits(pool: nn.Module | None, tmp_path: Path) -> None:
    manifest = export(relu_network(pool), tmp_path / "b", input_size=SIZE).manifest
    assert manifest.parity_limits["weights"] == LIMITS["weights"]


class NearTie(nn.Module):
    """Two units. The input of the second one's ReLU is `gap` on the photograph, which float32 cannot tell from zero."""

    def __init__(self, gap: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(2, 6 * 256, generator=generator) / 100)
        photograph = probe_images(SIZE)[1].flatten().double()
        offset = gap - float(self.weight.detach()[1].double() @ photograph)
        self.offset = nn.Parameter(torch.tensor([5.0, offset], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        units = (x.flatten(1) @ self.weight.T + self.offset.to(x.dtype)).relu()
        return units @ units.new_tensor([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]])


@pytest.mark.parametrize("gap", [1e-9, -1e-9], ids=["just on", "just off"])
def test_the_golden_record_says_how_far_w_jumps(gap: float, tmp_path: Path) -> None:
    """Rounding turns the second unit on or off. Both W(x) are right, and the self-test must accept both."""
    module = NearTie(gap).eval()
    bundle = open_bundle(export(module, tmp_path / "b", input_size=SIZE).path)
    golden = bundle.golden()
    column = [0.5, 1.0, 3.0][golden.target]
    step = column * module.weight[1].detach().norm()
    assert golden.jump == pytest.approx(float(step) / float((golden.weights.astype("f8") ** 2).sum() ** 0.5), rel=1e-4)
    backend = open_backend(bundle, "cpu")  # which runs the self-test
    backend.close()


class Of(nn.Module):
    """A B-cos layer, a function, and sums of its result. The images that are flat have many equal values inside."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.function = BcosConv2d(6, 8, 3, padding=1), function
        width = function(torch.rand(1, 8, *SIZE)).flatten(1).shape[1]
        self.head = nn.Linear(width, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(self.stem(x)).flatten(1))  # type: ignore[no-any-return]


SOUND: dict[str, Callable[[Tensor], Tensor]] = {
    "equal values in any order": lambda x: x.flatten(2).topk(4, -1)[0],
    "a maximum moves with its values": lambda x: x.amax((2, 3)),
    "maxima of windows": lambda x: F.adaptive_max_pool2d(x, 2).amax(1),
    "infinities and NaN": lambda x: x * torch.isfinite(x.detach() / x.detach().relu()),
    "a constant that no node reads": lambda x: x + (torch.arange(16)[:, None] - torch.arange(16)).abs(),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_network_is_exported(name: str, tmp_path: Path) -> None:
    bundle = open_bundle(export(Of(SOUND[name]).eval(), tmp_path / "b", input_size=SIZE, max_batch=2).path)
    assert max(row.weights for row in bundle.manifest.parity) < 1e-5
    assert (bundle.golden().jump or 0.0) < 1.0
    backend = open_backend(bundle, "cpu")
    backend.explain(probe_images(SIZE)[:2].numpy(), np.array([[0], [1]]), weights=True)
    backend.close()


def test_a_choice_of_other_values_is_no_tie() -> None:
    values = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    graph = fx.Graph()
    node = graph.call_function(aten.topk.default, (graph.placeholder("x"), 2, 1))
    made = torch.tensor([[0, 2]])
    for got, expected in (([2, 0], [True, True]), ([0, 3], [True, False]), ([0, 0], [False, False])):
        assert _are_ties(node, made, torch.tensor([got]), lambda _: values).tolist() == [expected]
