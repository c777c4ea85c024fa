"""A small network of every family, and modules with the operators that no family uses.

They have few blocks and channels, so that rounding errors stay small and a test takes a second. Height and width
differ, and are odd if the family allows it, so that strides leave a remainder: mistakes in one axis or in a padding
become visible.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcos_sdk.exporters.compiler import Compiled, compile_module
from bcos_sdk.exporters.onnx import WeightsFile, emit
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.passes import HalfAnalysis, in_half
from bcos_sdk.exporters.verify import GraphFiles
from bcos_sdk.models import build_model, calibrate
from bcos_sdk.models.layers import BcosConv2d, LogitLayer
from bcos_sdk.registry import builtin_registry
from support.bundles import BUNDLES, missing

CLASSES = 12
Size = tuple[int, int]


def images(count: int, size: Size) -> Tensor:
    """Return random encoded images [count, 6, *size]."""
    rgb = torch.rand(count, 3, *size)
    return torch.cat([rgb, 1 - rgb], dim=1)


def _member(name: str, size: Size, **smaller: Any) -> tuple[Size, Callable[[], nn.Module]]:
    def build() -> nn.Module:
        config = builtin_registry()[name].architecture
        changed = {**config.model_dump(), "classes": CLASSES, "logit_bias": None, **smaller}
        return build_model(type(config).model_validate(changed))

    return size, build


class Operators(nn.Module):
    """A convolution, multiplied by a frozen gate that uses every operator allowed on a detached path."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = BcosConv2d(6, 8, 3, padding=1, b=1.5)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        out: Tensor = self.head((x * self._gate(x.detach())).mean((2, 3)))
        return out

    def _gate(self, x: Tensor) -> Tensor:
        waves = x.sin() + x.cos() * x.tanh() - x.sigmoid() + (-x.abs()).exp() + (x.square() + 1).log()
        pooled = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) + F.avg_pool2d(x, 3, 2, 1, divisor_override=5)
        ceiled = F.avg_pool2d(x, 4, 3, 1, ceil_mode=True).amax((2, 3), keepdim=True)
        pooled = pooled.var((2, 3), correction=1, keepdim=True) * ceiled + F.max_pool2d(x, 2).amax((2, 3), keepdim=True)
        padded = F.pad(x, (1, 2, 3, 0), mode="reflect") + F.pad(x, (1, 2, 3, 0), mode="replicate")
        norms = padded.norm(p=1, dim=1, keepdim=True) + F.pad(x, (3, 0, 1, 2), value=0.3).norm(dim=1, keepdim=True)
        spread = x.flatten(2).softmax(2).pow(0.7).sum(2)[:, :, None, None].clamp_min(0.2).rsqrt()
        chosen = torch.where(x > 0.1, torch.maximum(x, spread), torch.minimum(x, -spread))
        variance, mean = torch.var_mean(x, (2, 3), correction=0)
        moments = (variance * mean)[:, :, None, None] + x[:, :2].repeat_interleave(4, dim=1)
        gate: Tensor = waves * spread + moments + chosen / (1 + norms.mean((2, 3), keepdim=True)) + pooled
        return gate


class Windows(nn.Module):
    """Max pools, average pools, strided, dilated and grouped convolutions, pads and slices on the live path."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, 8, (5, 3), stride=(3, 2), padding=(2, 0), groups=2, max_out=2)
        self.wide = BcosConv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.mix = nn.Conv2d(24, 8, (1, 2), stride=(1, 2), bias=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(F.pad(x, (1, 0, 0, 2))).relu()
        pools = [F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1), self.wide(x)[:, :, ::2, ::2]]
        x = self.mix(torch.cat(pools, dim=1))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


MEMBERS: dict[str, tuple[Size, Callable[[], nn.Module]]] = {
    "ResNet": _member("resnet18", (37, 46), blocks=(1, 1, 1), width=16),
    "ResNet with bottlenecks": _member("resnet50", (46, 37), blocks=(1, 1, 1), width=16),
    "ResNeXt": _member("resnext50_32x4d", (37, 46), blocks=(1, 1), width=32, groups=4, base_width=16),
    "DenseNet": _member("densenet121", (46, 37), blocks=(2, 2, 2), growth=8, stem_width=16),
    "VGG": _member("vgg11_bnu", (37, 46), stages=((8,), (12, 12), (16,)), hidden=24),
    "ConvNeXt": _member("convnext_tiny", (43, 50), widths=(8, 12, 16), blocks=(1, 1, 1)),
    "ConvNeXt with batch norm": _member("convnext_tiny_bnu", (42, 51), widths=(8, 12), blocks=(1, 2)),
    "SimpleViT": _member("simple_vit_ti_patch16_224", (48, 32), dim=24, depth=2, heads=3, mlp_dim=32),
    "ViT-C": _member("vitc_ti_patch1_14", (32, 48), dim=24, depth=2, heads=3, mlp_dim=32, stem=(8, 12, 12, 16)),
    "CIFAR ResNet, batch norm": _member("cifar10_resnet20_bn", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet, group norm": _member("cifar10_resnet20_gnu-unaffine", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet, all norm": _member("cifar10_resnet20_an", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet, layer norm": _member("cifar10_resnet20_lnu-nomaxout", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet, position norm": _member("cifar10_resnet20_pn-linear", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet, instance norm": _member("cifar10_resnet20_in", (16, 13), blocks=(1, 1, 1)),
    "CIFAR ResNet without norms": _member("cifar10_resnet20", (16, 13), blocks=(1, 1, 1)),
    "plain network": _member("cifar10_plain9_b1.5", (16, 13)),
    "operators": ((11, 14), Operators),
    "windows": ((31, 26), Windows),
}


def build_member(name: str) -> nn.Module:
    """Return the calibrated network. Its logits differ: fresh weights give nearly equal logits, which hide errors."""
    torch.manual_seed(0)
    size, build = MEMBERS[name]
    network = build()
    prepare(network, size)
    return network


def prepare(network: nn.Module, size: Size) -> None:
    """Calibrate the network and scale its logits to a standard deviation of 1."""
    calibrate(network, images(4, size))
    with torch.no_grad():
        spread = float(network(images(4, size)).std(1).mean())
    for module in network.modules():
        if isinstance(module, LogitLayer):
            module.temperature *= spread


def member_graphs(name: str, *, half: bool = False) -> GraphFiles:
    """The graphs of `build_member(name)`, written once per test run and shared by all tests: do not change them."""
    folder = Path(os.environ[BUNDLES]) / "members" / name.replace(" ", "-")
    with missing(folder) as is_missing:
        if is_missing:
            compiled = compile_module(build_member(name), MEMBERS[name][0])
            with TemporaryDirectory(dir=folder.parent) as temporary:
                unfinished = Path(temporary) / "graphs"
                for precision in ("fp32", "fp16"):
                    (unfinished / precision).mkdir(parents=True)
                    _write(compiled, MEMBERS[name][0], unfinished / precision, half=precision == "fp16")
                unfinished.rename(folder)
    torch.manual_seed(0)  # so the next random images do not depend on which process wrote the graphs
    return _graph_files(folder / ("fp16" if half else "fp32"))


def write_graphs(network: nn.Module, size: Size, folder: Path, *, half: bool = False) -> GraphFiles:
    """Write the graphs of a bundle without comparing them to torch, which takes most of an export's time.

    With `half` all products are in fp16, also those that an export would keep in float32.
    """
    _write(compile_module(network, size), size, folder, half=half)
    return _graph_files(folder)


def _write(compiled: Compiled, size: Size, folder: Path, *, half: bool) -> None:
    programs = {"predict": compiled.predict, "explain": compiled.explain, "explain_rows": compiled.explain_rows}
    if half:
        analysis = HalfAnalysis(compiled.explain, images(2, size))
        exponents = analysis.exponents | analysis.exponents_of(compiled.explain_rows)
        programs = {name: in_half(program, exponents) for name, program in programs.items()}
    with WeightsFile(folder / "weights.bin") as weights:
        for name, program in programs.items():
            model = emit(program, name, weights, SPELLINGS)
            (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def _graph_files(folder: Path) -> GraphFiles:
    return GraphFiles(*(folder / f"{name}.onnx" for name in ("predict", "explain", "explain_rows")))
