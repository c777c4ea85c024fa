"""Each simplification: its number of rewrites, and that it does not change the outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.compiling import run_onnx
from support.explaining import random_image
from torch import Tensor, nn

from bcos_sdk.contract import Layout
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters import passes
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import compile_module, explain_program
from bcos_sdk.exporters.passes import _wide_windows
from bcos_sdk.exporters.passes._half import products
from bcos_sdk.exporters.program import Program, fold_constants
from bcos_sdk.models import build_model, calibrate
from bcos_sdk.models.layers import BcosConv2d, make_norm
from bcos_sdk.registry import NormConfig

Pass = Callable[[Program], int]

UNCENTRED = NormConfig(kind="batch", centred=False, bias=False)
TARGETS = torch.tensor([[0, -1], [2, 3]])


def network(*layers: nn.Module) -> nn.Module:
    """The layers, then a B-cos classifier of four classes; norms with scales of either sign."""
    head = [BcosConv2d(8, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    module = nn.Sequential(*layers, *head).double().eval()
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2.0)
        for layer in module:
            if isinstance(getattr(layer, "weight", None), nn.Parameter):
                layer.weight.uniform_(-1.5, 1.5)  # type: ignore[operator]
    return module


def values(program: Program) -> list[Tensor]:
    x = random_image(2, 8)
    return list(program.run(x, TARGETS[:, 0] if program.layout is Layout.ROWS else TARGETS).values())


def check(simplification: Pass, program: Program, count: int) -> None:
    torch.manual_seed(1)
    before = values(program)
    assert simplification(program) == count
    program.clean()
    assert simplification(program) == 0, "a second run must find nothing to rewrite"
    torch.manual_seed(1)
    for after, expected in zip(values(program), before, strict=True):
        torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-12)


def explained(module: nn.Module, *before: Pass, layout: Layout = Layout.GRID) -> Program:
    program = capture(module, (8, 8))
    for simplification in before:
        simplification(program)
    return explain_program(program, layout)[0]


def forward_then_explain(simplification: Pass, module: nn.Module, count: int, *before: Pass) -> None:
    """Check that a simplification of the forward program changes neither the logits nor the explanation."""
    expected = explained(module, *before)
    program = capture(module, (8, 8))
    for earlier in before:
        earlier(program)
    assert simplification(program) == count
    program.clean()
    got = explain_program(program)[0]
    torch.manual_seed(1)
    truth = values(expected)
    torch.manual_seed(1)
    for value, true in zip(values(got), truth, strict=True):
        torch.testing.assert_close(value, true, rtol=1e-9, atol=1e-12)


def test_fold_constants_normalises_weights_at_export() -> None:
    program = capture(network(BcosConv2d(6, 8, 3)), (8, 8))
    norms = [value.flatten(1).norm(dim=1) for name, value in program.constants.items() if "linear_weight" in name]
    assert len(norms) == 2
    for norm in norms:
        torch.testing.assert_close(norm, torch.ones_like(norm))
    assert fold_constants(program) == 0


def test_merge_scales() -> None:
    module = network(BcosConv2d(6, 8, 3), make_norm(8, UNCENTRED))
    forward_then_explain(passes.merge_scales, module, 2)


@pytest.mark.parametrize("max_out", [1, 2])
def test_fold_bcos_scale(max_out: int) -> None:
    module = network(BcosConv2d(6, 8, 3, max_out=max_out), make_norm(8, UNCENTRED))
    mixed_signs = max_out == 1
    if not mixed_signs:
        with torch.no_grad():
            module[1].weight.abs_()  # type: ignore[index]
    forward_then_explain(passes.fold_bcos_scale, module, 1, passes.merge_scales)


@pytest.mark.parametrize(
    "layers",
    [
        (BcosConv2d(6, 8, 3, max_out=2), make_norm(8, UNCENTRED)),
        (BcosConv2d(6, 8, 3, b=1.5), make_norm(8, UNCENTRED)),
        (BcosConv2d(6, 8, 3), make_norm(8, NormConfig(kind="position", bias=False))),
        (nn.Conv2d(6, 8, 3, bias=False), make_norm(8, UNCENTRED)),
    ],
    ids=["MaxOut with negative scales", "B = 1.5", "a norm that depends on the input", "not B-cos"],
)
def test_fold_bcos_scale_skips_layers_for_which_the_identity_does_not_hold(layers: tuple[nn.Module, ...]) -> None:
    forward_then_explain(passes.fold_bcos_scale, network(*layers), 0, passes.merge_scales)


class OwnMaxOut(nn.Module):
    """A B-cos layer with MaxOut over one axis of its units, which are reshaped to `shape`, and a norm's scale."""

    def __init__(self, units: int, shape: tuple[int, ...], axis: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, units, 1, bias=False)
        self.shape, self.axis = shape, axis
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x).reshape(-1, *self.shape).max(self.axis).values
        norm = x.square().sum(1, keepdim=True).sqrt()
        if y.shape[-2:] != norm.shape[-2:]:
            norm = norm.mean((2, 3), keepdim=True)
        return y * (y.abs() / norm).detach() * self.scale


@pytest.mark.parametrize(
    ("units", "shape", "axis", "count"),
    [
        (24, (8, 3, 8, 8), 2, 1),
        (24, (8, 3, 8, 8), -3, 1),
        (24, (3, 8, 8, 8), 1, 1),
        (24, (3, 8, 8, 8), -4, 1),
        (64, (8, 8, 8, 8), 1, 1),
        (64, (8, 8, 8, 8), 2, 1),
        (8, (8, 2, 4, 8), 2, 0),
        (16, (8, 2, 8, 8), 3, 0),
        (16, (8, 2, 8, 8), 4, 0),
    ],
)
def test_fold_bcos_scale_reads_the_order_of_the_units(
    units: int, shape: tuple[int, ...], axis: int, count: int
) -> None:
    """[C, units] and [units, C] are folded, and maxima over other axes are not."""
    forward_then_explain(passes.fold_bcos_scale, network(OwnMaxOut(units, shape, axis)), count, passes.merge_scales)


class Shares(nn.Module):
    """A B-cos layer with a second reader: of |wᵀx| by the norm (`in_norm`), or of the factor by another branch."""

    def __init__(self, *, in_norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 1, bias=False)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.in_norm = in_norm

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        size = y.abs()
        norm = size.sum(1, keepdim=True) if self.in_norm else x.square().sum(1, keepdim=True).sqrt()
        factor = (size / norm).detach()
        out = y * factor * self.scale
        return out if self.in_norm else out + factor


@pytest.mark.parametrize("in_norm", [True, False])
def test_fold_bcos_scale_skips_values_that_other_nodes_read(in_norm: bool) -> None:
    forward_then_explain(passes.fold_bcos_scale, network(Shares(in_norm=in_norm)), 0, passes.merge_scales)


def test_multiply_reciprocals() -> None:
    forward_then_explain(passes.multiply_reciprocals, network(BcosConv2d(6, 8, 3)), 2)


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_skip_unit_windows(stride: int, groups: int) -> None:
    module = network(BcosConv2d(6, 8, 1, stride=stride, groups=groups))
    forward_then_explain(passes.skip_unit_windows, module, 2)


def test_share_values() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = BcosConv2d(6, 8, 3, padding=1), BcosConv2d(6, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.add(self.left(x), self.right(x))

    shared = ["window", "square", "sum", "pool", "add", "sqrt"]
    forward_then_explain(passes.share_values, network(Branches()), len(shared))


def test_flip_convolutions() -> None:
    layers = [
        BcosConv2d(6, 8, 3, padding=1),
        BcosConv2d(8, 8, (2, 3), dilation=2),
        BcosConv2d(8, 8, 3, groups=4, padding=2),
    ]
    strided = BcosConv2d(8, 8, 3, stride=2)
    check(passes.flip_convolutions, explained(network(*layers, strided)), count=4)


def test_repeat_averages() -> None:
    layers = [BcosConv2d(6, 8, 2), nn.AvgPool2d(2), nn.AvgPool2d(3, stride=1, padding=1)]
    check(passes.repeat_averages, explained(network(*layers)), count=1)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "count"),
    [
        (7, 2, 3, 1),
        (8, 8, 0, 1),
        (2, 2, 0, 1),
        (4, 2, 1, 0),
        ((4, 6), 2, (1, 2), 1),
        (5, 4, 2, 0),
        (3, 2, 1, 0),
        (1, 2, 0, 0),
    ],
    ids=str,
)
def test_split_phases(kernel: int, stride: int, padding: int, count: int) -> None:
    """Stems and patch embeddings are split. Convolutions whose taps would be mostly zeros are not."""
    module = network(BcosConv2d(6, 8, kernel, stride=stride, padding=padding))
    check(passes.split_phases, explained(module, layout=Layout.ROWS), count=count)
    check(passes.split_phases, explained(module), count=0)


@pytest.mark.parametrize("options", [{"groups": 2}, {"dilation": 2}], ids=str)
def test_split_phases_skips_groups_and_dilation(options: dict[str, int]) -> None:
    layer = BcosConv2d(6, 8, 2, stride=2, **options)
    check(passes.split_phases, explained(network(layer), layout=Layout.ROWS), count=0)


def test_split_phases_skips_uniform_weights() -> None:
    layer = nn.Conv2d(6, 8, 2, stride=2, bias=False)
    module = network(layer)
    nn.init.constant_(layer.weight, 0.25)
    check(passes.split_phases, explained(module, layout=Layout.ROWS), count=0)


@given(st.integers(1, 9), st.integers(2, 4), st.integers(0, 4), st.integers(4, 9), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_split_phases_equals_the_transposed_convolution(
    kernel: int, stride: int, padding: int, size: int, channels: int
) -> None:
    assume(padding < kernel <= size + 2 * padding)
    torch.manual_seed(0)
    module = nn.Conv2d(channels, 2, kernel, stride, padding, bias=False).double().eval()

    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = module

        def forward(self, x: Tensor) -> Tensor:
            return torch.sum(self.conv(x), (2, 3))

    program, _ = explain_program(capture(Summed().eval(), (size, size), channels=channels), layout=Layout.ROWS)
    x = torch.randn(2, channels, size, size, dtype=torch.float64)
    before = program.run(x, torch.tensor([0, 1]))["weights"]
    passes.split_phases(program)
    torch.testing.assert_close(program.run(x, torch.tensor([0, 1]))["weights"], before, rtol=1e-9, atol=1e-12)


NAMES = sorted({one.__name__ for one in (*passes.FORWARD_PASSES, *passes.EXPLAIN_PASSES)})


def test_leaving_out_an_unknown_pass_is_an_error() -> None:
    with pytest.raises(ExportError, match="no simplification called flip_everything"):
        compile_module(network(BcosConv2d(6, 8, 1)), (8, 8), without=["flip_everything"])


@functools.cache
def unsimplified() -> tuple[nn.Module, Tensor, dict[str, Tensor]]:
    """A network, an image, and the outputs of its graph without any simplification."""
    torch.manual_seed(0)
    module = build_model("cifar10_resnet20_bnu-linear").double()
    x = random_image(2, 16)
    calibrate(module, x)
    return module, x, explain_program(capture(module, (16, 16)))[0].run(x, TARGETS)


@pytest.mark.parametrize("without", [[], *([name] for name in NAMES), NAMES], ids=str)
def test_any_pass_can_be_left_out(without: list[str]) -> None:
    module, x, plain = unsimplified()
    compiled = compile_module(module, (16, 16), without=without)
    assert not set(without) & compiled.rewrites.keys()
    for name, value in compiled.explain.run(x, TARGETS).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-8, atol=1e-10)
    in_onnx = run_onnx(compiled.explain, x, TARGETS)["weights"]
    assert torch.from_numpy(in_onnx).double().sub(plain["weights"]).norm() < 1e-4 * plain["weights"].norm()


class DenseBlock(nn.Module):
    """Layers that read all earlier features, each after a norm: as one list, or concatenated step by step."""

    def __init__(self, *, nested: bool, inner: nn.Module | None = None) -> None:
        super().__init__()
        widths = (6, 10, 14)
        self.norms = nn.ModuleList([make_norm(width, UNCENTRED) for width in widths])
        self.convs = nn.ModuleList([BcosConv2d(width, 4, 1) for width in widths[:-1]] + [BcosConv2d(14, 8, 1)])
        self.inner = inner or nn.Identity()
        self.nested = nested
        for norm in self.norms:
            norm.running_var.uniform_(0.5, 2.0)  # type: ignore[operator]
            nn.init.uniform_(norm.weight, -1.5, 1.5)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        features, parts = x, [x]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            new = conv(self.inner(norm(features)))
            parts.append(new)
            features = torch.cat([features, new] if self.nested else parts, 1)
        return parts[-1]


@pytest.mark.parametrize("nested", [True, False])
def test_share_norms(nested: bool) -> None:
    torch.manual_seed(0)
    forward_then_explain(passes.share_norms, network(DenseBlock(nested=nested)), 3, passes.merge_scales)


@pytest.mark.parametrize(
    "layers",
    [(DenseBlock(nested=True, inner=nn.ReLU()),), (make_norm(6, UNCENTRED), BcosConv2d(6, 8, 1))],
    ids=["a value between norm and convolution", "one layer alone"],
)
def test_share_norms_skips_what_is_no_dense_block(layers: tuple[nn.Module, ...]) -> None:
    forward_then_explain(passes.share_norms, network(*layers), 0, passes.merge_scales)


def test_the_shared_norms_stay_in_float32() -> None:
    """The squares of large features overflow fp16."""
    torch.manual_seed(0)
    program = capture(network(DenseBlock(nested=True)), (8, 8))
    passes.merge_scales(program)
    before = len(products(program))
    assert passes.share_norms(program) == 3
    assert len(products(program)) == before


@pytest.mark.parametrize(
    ("kernel", "padding"),
    [((7, 7), (3, 3)), ((3, 5), (0, 2)), ((8, 8), (0, 0)), ((19, 3), (9, 1))],
    ids=["VGG", "oblong", "the whole map", "taps that never meet the map"],
)
def test_split_wide_windows(kernel: tuple[int, int], padding: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wide_windows, "_LEAST_WEIGHTS", 6 * 8 * kernel[0] * kernel[1])
    forward_then_explain(passes.split_wide_windows, network(nn.Conv2d(6, 8, kernel, padding=padding, bias=False)), 1)


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {}], ids=["stride", "dilation", "groups", "few weights"]
)
def test_split_wide_windows_skips_other_convolutions(options: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    if options:
        monkeypatch.setattr(_wide_windows, "_LEAST_WEIGHTS", 6 * 3 * 3)
    conv = nn.Conv2d(6, 8, 3, padding=2, bias=False, **options)  # type: ignore[arg-type]
    forward_then_explain(passes.split_wide_windows, network(conv), 0)
