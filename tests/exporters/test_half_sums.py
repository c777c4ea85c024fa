"""Layers whose long sums leave the tolerance with a running total in fp16 stay in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support import walking_windows
from support.walking import execute, parse
from torch import Tensor, nn

from bcos_sdk.contract import TOLERANCE_CAPS
from bcos_sdk.exporters import export
from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.passes import HalfAnalysis, half_sum, layer_of, products, sum_length
from bcos_sdk.exporters.verify import probe_images
from bcos_sdk.models.layers import BcosConv2d

SIZE = (8, 8)


class LongSum(nn.Module):
    """A classifier that sums `channels` · 64 products of one sign: each step of a running total rounds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = BcosConv2d(6, channels, 3, padding=1, b=1.0)
        self.head = nn.Linear(channels * 64, 10, bias=False)
        with torch.no_grad():
            self.conv.linear.weight.abs_()
            self.head.weight.abs_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.conv(x).flatten(1))
        return out


def literal(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """⟨a, b⟩ with a total in fp16 to which 16 exact products are added at a time."""
    total = np.float16(0)
    for start in range(0, len(a), 16):
        total = np.float16(np.float32(total) + np.float32((a[start : start + 16] * b[start : start + 16]).sum()))
    return float(total)


@pytest.mark.parametrize("channels", [16, 64, 512])
def test_only_long_sums_stay_in_float(channels: int) -> None:
    compiled = compile_module(LongSum(channels).eval(), SIZE)
    analysis = HalfAnalysis(compiled.explain, probe_images(SIZE))
    assert analysis.must_stay == analysis.inexact == ({"head"} if channels == 512 else set())


def test_a_running_total_in_fp16_is_the_literal_one() -> None:
    compiled = compile_module(LongSum(64).eval(), SIZE)
    node = next(one for one in products(compiled.explain) if layer_of(one) == "head")
    assert sum_length(node) == 4096
    a, b = torch.rand(2, 4096).half().float(), torch.rand(4096, 3).half().float()
    got = half_sum(node, a, b.T if node.target is torch.ops.aten.linear.default else b)
    for row in range(2):
        for column in range(3):
            want = literal(a[row].double().numpy(), b[:, column].double().numpy())
            assert abs(float(got[row, column]) - want) <= 2 * float(np.spacing(np.float16(want)))


@pytest.mark.parametrize("rule", [True, False])
def test_certificates_hold_with_running_totals_in_fp16(
    rule: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of TensorRT's parser, executed with running totals in fp16. Without the rule, logits are off."""
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")
    if not rule:
        monkeypatch.setattr("bcos_sdk.exporters.passes._half_analysis.LONG_SUM", 1e9)
    bundle = export(LongSum(512).eval(), tmp_path / "b", input_size=SIZE, max_batch=2, precision="fp16")
    feed = {"image": probe_images(SIZE)[:2].float(), "targets": torch.tensor([[0], [3]])}
    monkeypatch.setattr(walking_windows, "HALF_TOTALS", [True])
    outputs = execute(parse(bundle.explain_graph, for_engine=True), feed)
    contributions, terms = outputs["contributions"].double(), outputs["bias_terms"].double()
    total = contributions.sum((2, 3)) + terms.sum(2)
    scale = contributions.abs().sum((2, 3)) + terms.abs().sum(2)
    logits = outputs["logits"].double().gather(1, outputs["classes"])
    residual = float(((logits - total).abs() / scale).max())
    assert (residual <= TOLERANCE_CAPS["fp16"]) == rule, residual


@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_sums_all_its_products(transposed: bool) -> None:
    """Of small integers, which fp16 holds exactly: the parts of a sum add up to the whole one."""
    module = nn.Sequential(
        BcosConv2d(6, 24, 3, padding=1, b=1.0), BcosConv2d(24, 8, 3, padding=1, b=1.0), nn.Flatten(1)
    )
    compiled = compile_module(module.eval(), (4, 4))
    nodes = [one for one in products(compiled.explain) if layer_of(one).startswith("1")]
    node = next(one for one in nodes if bool(one.meta.get("transposed")) == transposed)
    assert sum_length(node) == (8 if transposed else 24) * 9
    first, second = (torch.randint(-2, 3, shape).float() for shape in factors_of(node))
    want = node.target(first, second, *settings_of(node))  # type: ignore[operator]
    assert torch.equal(half_sum(node, first, second), want)


def factors_of(node: torch.fx.Node) -> list[tuple[int, ...]]:
    """The shapes of the factors for two images, and for three targets of each if it is a product of cotangents."""
    first, second = (tuple(one.meta["val"].shape) for one in node.all_input_nodes[:2])
    leading = (2, 3)[: len(first) - 3]
    return [(*leading, *map(int, first[-3:])), second]


def settings_of(node: torch.fx.Node) -> tuple[object, ...]:
    return (None, *node.args[3:]) if node.target is torch.ops.aten.conv2d.default else node.args[2:]
