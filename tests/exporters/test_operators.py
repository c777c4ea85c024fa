"""The operator table: incomplete entries are refused, every entry is tested, and shapes of cotangents are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.operator_cases import CASES, Flat
from torch import Tensor, fx, nn

from bcos_sdk.contract import (
    EXPLAIN_INPUTS,
    EXPLAIN_OUTPUTS,
    FOREIGN_OPERATORS,
    LAYER_INPUTS,
    LAYER_OUTPUTS,
    ONNX_OPERATORS,
    Layout,
    Port,
)
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import compile_module, explain_program
from bcos_sdk.exporters.layer_compiler import compile_layers
from bcos_sdk.exporters.onnx import TENSORRT_REFUSES, WeightsFile, emit
from bcos_sdk.exporters.operators import OPERATORS, SPELLINGS, TRANSPOSES, Kind, Operator, Trait
from bcos_sdk.exporters.passes import HalfAnalysis
from bcos_sdk.exporters.program import Program, bind
from bcos_sdk.exporters.transpose import Transposition
from bcos_sdk.models.layers import BcosConv2d

aten = torch.ops.aten


def spell(_e: Any, _node: fx.Node) -> str:
    return ""


def transpose(_t: Any, _node: fx.Node, _ct: Any) -> None:
    return None


def batch(_b: Any, node: fx.Node) -> fx.Node:
    return node


def rewrite(_program: Program, _node: fx.Node) -> None:
    return None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"kind": Kind.LINEAR, "onnx": spell}, "but has no transpose"),
        ({"kind": Kind.CHOICE, "transpose": transpose}, "but has no onnx"),
        ({"kind": Kind.FROZEN}, "but has no onnx"),
        ({"kind": Kind.FROZEN, "onnx": spell, "transpose": transpose, "batch": batch}, "but has transpose"),
        ({"kind": Kind.FROZEN, "onnx": spell}, "but has no batch rule"),
        ({"kind": Kind.EXPLAIN, "rewrite": rewrite}, "but has no onnx"),
        ({"kind": Kind.SPELLING}, "has not one of batch and rewrite"),
        ({"kind": Kind.SPELLING, "batch": batch, "rewrite": rewrite}, "has not one of batch and rewrite"),
        (
            {"kind": Kind.LINEAR, "onnx": spell, "transpose": transpose, "batch": batch, "traits": Trait.HAS_BIAS},
            "not a product",
        ),
    ],
)
def test_an_incomplete_entry_is_refused(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Operator(aten.leaky_relu.default, **entry)


class Strided(nn.Module):
    """Strided convolutions and pools, and a bias, so that every pass finds something to rewrite."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(6, 8, 4, stride=4)
        self.body = BcosConv2d(8, 8, 3, padding=1)
        self.down = BcosConv2d(8, 8, 1, stride=2)
        self.pool = nn.AvgPool2d(2)
        self.overlapping = nn.AvgPool2d(3, 1, 1)
        self.largest = nn.MaxPool2d(3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.largest(self.down(self.body(self.stem(x))))
        logits: Tensor = self.pool(self.overlapping(x)).flatten(1)
        return logits


def programs() -> list[Program]:
    """The programs of every operator case in both layouts, and of one network, simplified and in fp16."""
    made: list[Program] = []
    for case in CASES.values():
        program = capture(Flat(case).double().eval(), (5, 6), channels=4)
        made += [explain_program(program, layout)[0] for layout in Layout]
    size = (32, 32)
    compiled = compile_module(Strided().eval(), size)
    half = compiled.in_half(HalfAnalysis(compiled.explain, torch.rand(2, 6, *size)), [])
    for one in (compiled, half):
        made += [one.predict, one.explain, one.explain_rows]
    plain = compile_module(Strided().eval(), size, without=["flip_convolutions", "split_phases"])
    return [*made, plain.explain, plain.explain_rows]


def programs_of_layers() -> list[tuple[Program, tuple[Port, ...]]]:
    """The features program of two names for one layer, and the explain program of a layer."""
    stage = nn.Sequential(BcosConv2d(4, 3, 3))
    network = nn.Sequential(BcosConv2d(6, 4, 3), stage, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    compiled = compile_layers(network.eval(), (8, 8), ["1", "1.0"])
    ports = (*EXPLAIN_INPUTS, *EXPLAIN_OUTPUTS, *compiled.ports)
    return [(compiled.features, ports), (compiled.layers[0].explain, (*LAYER_INPUTS, *LAYER_OUTPUTS))]


@pytest.mark.full
def test_every_entry_and_every_onnx_operator_is_tested(tmp_path: Path) -> None:
    """Every operator of the table, and every ONNX operator of the contract, occurs in a test program."""
    tested, emitted = set(), set()
    with WeightsFile(tmp_path / "weights.bin") as weights:
        for program in programs():
            tested |= {node.target for node in program.graph.nodes}
            emitted |= {node.op_type for node in emit(program, "program", weights, SPELLINGS).graph.node}
        for program, ports in programs_of_layers():
            tested |= {node.target for node in program.graph.nodes}
            emitted |= {node.op_type for node in emit(program, "program", weights, SPELLINGS, ports=ports).graph.node}
    equivalent = {aten.var_mean.correction}  # another overload of an operator that is tested
    assert {target for target in SPELLINGS if target not in tested} <= equivalent
    assert emitted == ONNX_OPERATORS


def test_tensorrt_has_every_onnx_operator() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    assert [operator for operator in sorted(ONNX_OPERATORS) if not parser.supports_operator(operator)] == []
    named = {operator for operator in FOREIGN_OPERATORS if operator in TENSORRT_REFUSES}
    assert {operator for operator in FOREIGN_OPERATORS if not parser.supports_operator(operator)} <= named
    assert not parser.supports_operator("NoSuchOperator")


def test_operators_have_their_declared_traits() -> None:
    """PRODUCT: linear in both factors. REORDERS: the same elements in another order. Checked on random tensors."""
    shapes: dict[Any, tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
        aten.conv2d.default: ((2, 4, 5, 5), (6, 4, 3, 3), ()),
        aten.linear.default: ((2, 3, 4), (5, 4), ()),
        aten.matmul.default: ((2, 3, 4), (2, 4, 5), ()),
        "conv_transpose": ((2, 6, 5, 5), (6, 4, 3, 3), ((1, 1), (0, 0), (0, 0), (1, 1), 1)),
        "folded_conv": ((2, 4, 5, 5), (6, 4, 3, 3), ((1, 1), (0, 0), (1, 1), 1)),
        "flipped_conv": ((2, 6, 5, 5), (6, 4, 3, 3), ((1, 1), (1, 1), 1)),
    }
    for target, entry in OPERATORS.items():
        if Trait.PRODUCT in entry.traits:
            left, right, rest = shapes.get(target) or shapes[target.__name__]
            a, b, c = torch.rand(left), torch.rand(right), torch.rand(right)
            torch.testing.assert_close(target(a, b + 2 * c, *rest), target(a, b, *rest) + 2 * target(a, c, *rest))
            torch.testing.assert_close(target(3 * a, b, *rest), 3 * target(a, b, *rest))
        if Trait.REORDERS in entry.traits:
            arguments = {"permute": ([0, 2, 1],), "unsqueeze": (1,), "reshape_sample": ((12,), 1)}
            x = torch.rand(2, 3, 4)
            moved = target(x, *arguments[target.__name__.split(".")[0]])
            assert torch.equal(moved.flatten().sort().values, x.flatten().sort().values)


def test_a_cotangent_of_a_wrong_shape_is_an_error_that_names_operator_and_layer() -> None:
    def without_sum(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
        t.add(bind(node).self, ct)

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3))

    module = nn.Sequential(nn.Conv2d(6, 4, 1), Mean()).eval()
    program = capture(module, (4, 4))
    t = Transposition(program, {**TRANSPOSES, aten.mean.dim: without_sum})
    (logits,) = program.results
    t.at(logits)
    seed = t.call(aten.unsqueeze.default, logits, 1)
    with pytest.raises(ExportError, match=r"aten\.mean\.dim in '1' gave a cotangent of shape"):
        t.run(seed)
