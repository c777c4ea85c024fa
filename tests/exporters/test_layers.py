"""Inner layers of every family: W_{1→l} and W_{l→L} against autograd in float64 with hooks, and their laws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fast import only_fast
from support.members import MEMBERS, Operators, images
from support.small_network import SmallNetwork
from torch import Tensor, nn

from bcos_sdk.contract import Layout
from bcos_sdk.errors import ExportError, UnknownLayerError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.capture import nameable_layers
from bcos_sdk.exporters.layer_compiler import CompiledLayers, channels_and_positions, compile_layers
from bcos_sdk.models.layers import BcosConv2d


def nameable(module: nn.Module, size: tuple[int, int]) -> list[str]:
    return [one.path for one in nameable_layers(module, size)]


def live(module: nn.Module, size: tuple[int, int], paths: list[str]) -> list[str]:
    """The layers that the logits depend on, by autograd."""
    with kept_outputs(module, paths) as kept:
        logits = module(images(1, size).double().requires_grad_())
        gradients = torch.autograd.grad(logits.sum(), [kept[path] for path in paths], allow_unused=True)
    found: list[Tensor | None] = [*gradients]
    return [path for path, gradient in zip(paths, found, strict=True) if gradient is not None]


@contextmanager
def kept_outputs(module: nn.Module, paths: list[str]) -> Iterator[dict[str, Tensor]]:
    kept: dict[str, Tensor] = {}

    def hook(path: str) -> Any:
        def keep(_module: nn.Module, _inputs: Any, result: Tensor) -> Tensor:
            kept[path] = result * 1.0
            return kept[path].clone()

        return keep

    handles = [module.get_submodule(path).register_forward_hook(hook(path)) for path in paths]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def as_matrix(output: Tensor) -> Tensor:
    """[channels, positions] of one image."""
    return output.T if output.ndim == 2 else output.reshape(len(output), -1)


def check_layers(module: nn.Module, size: tuple[int, int], paths: list[str]) -> CompiledLayers:
    compiled = compile_layers(module, size, paths)
    x = images(3, size).double()
    classes = 12
    targets = torch.tensor([[3, classes], [-1, 0], [classes, -2]])
    features, relay = compiled.features.run(x), compiled.relay.run(x, targets)
    generator = torch.Generator().manual_seed(1)
    for image in range(3):
        with kept_outputs(module, paths) as kept:
            pixels = x[image : image + 1].clone().requires_grad_()
            (logits,) = module(pixels)
        every = torch.cat([logits, logits.mean(0, keepdim=True)])[relay["classes"][image]]
        for index, layer in enumerate(compiled.layers):
            output = kept[layer.path]
            torch.testing.assert_close(features[f"activations_{index}"][image], output[0].detach())
            for k, aim in enumerate(every):
                (gradient,) = torch.autograd.grad(aim, output, retain_graph=True)
                share = relay[f"features_{index}"][image, k]
                torch.testing.assert_close(share, (gradient * output)[0].detach(), rtol=1e-8, atol=1e-12)
                above = relay[f"bias_above_{index}"][image, k].sum()
                if layer.complete:
                    torch.testing.assert_close(share.sum() + above, aim.detach(), rtol=1e-8, atol=1e-10)
            check_queries(layer, x, image, pixels, as_matrix(output[0]), generator)
    return compiled


def check_queries(
    layer: Any, x: Tensor, image: int, pixels: Tensor, matrix: Tensor, generator: torch.Generator
) -> None:
    channels, places = channels_and_positions(layer.shape)
    count = prod(places)
    positions = torch.tensor([count // 3, -1, count])
    directions = torch.randn(3, channels, dtype=torch.float64, generator=generator)
    values = directions @ matrix
    expected = torch.stack([values[0, count // 3], values[1].max(), values[2].mean()])
    rows = torch.cat([torch.autograd.grad(one, pixels, retain_graph=True)[0] for one in expected])
    for program in (layer.explain, layer.explain_rows):
        if program.layout is Layout.GRID:
            got = program.run(x[image : image + 1], positions[None], directions[None])
            got = {name: value[0] for name, value in got.items()}
        else:
            got = program.run(x[image : image + 1], positions, directions)
        torch.testing.assert_close(got["value"], expected.detach(), rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(got["weights"], rows, rtol=1e-8, atol=1e-12)
        contributions = (rows * x[image]).sum(1)
        torch.testing.assert_close(got["contributions"], contributions, rtol=1e-8, atol=1e-11)
        total = got["contributions"].sum((1, 2)) + got["bias_terms"].sum(1)
        torch.testing.assert_close(total, expected.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", only_fast(MEMBERS, ["ResNet", "DenseNet", "ConvNeXt", "SimpleViT"]))
def test_layers_of_every_family_agree_with_autograd(name: str) -> None:
    """The first and the last layer that can be named, and some between them: in blocks, before norms, stages."""
    size, build = MEMBERS[name]
    torch.manual_seed(0)
    module = build().double().eval()
    paths = live(module, size, nameable(module, size))
    step = max(1, len(paths) // 4)
    chosen = [*paths[::step][:4], paths[-1]]
    check_layers(module, size, list(dict.fromkeys(chosen)))


def test_layers_compose_to_the_explanation_of_the_logit() -> None:
    """Σ over positions p of W_{l→L}[:, p] · W_{1→l}[p] = W_{1→L}."""
    torch.manual_seed(0)
    module = SmallNetwork((12, 10), 12).double().eval()
    layer, x = compile_layers(module, (12, 10), ["stem"]).layers[0], images(1, (12, 10)).double()
    with kept_outputs(module, ["stem"]) as kept:
        pixels = x.clone().requires_grad_()
        logits = module(pixels)
    (whole,) = torch.autograd.grad(logits[0, 5], pixels, retain_graph=True)
    (above,) = torch.autograd.grad(logits[0, 5], kept["stem"])
    directions = as_matrix(above[0]).T.contiguous()
    rows = layer.explain_rows.run(x, torch.arange(len(directions)), directions)["weights"]
    torch.testing.assert_close(rows.sum(0, keepdim=True), whole, rtol=1e-9, atol=1e-12)


class Bypassed(nn.Module):
    """A stem, a layer that a shortcut goes round, a normalisation in place, and a layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, 8, 3, padding=1)
        self.inside = BcosConv2d(8, 8, 3, padding=1)
        self.twice = BcosConv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Conv2d(8, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.twice(self.twice(x + 1e-9 * self.inside(x)))
        logits: Tensor = self.head(self.relu(self.norm(x))).mean((2, 3))
        return logits


def test_a_layer_that_a_path_goes_round_is_partial() -> None:
    """The share of `inside` is tiny, and the residual without it too: the structure decides."""
    torch.manual_seed(0)
    module = Bypassed().double().eval()
    compiled = check_layers(module, (9, 7), ["stem", "inside", "norm", "relu", "head"])
    assert [layer.complete for layer in compiled.layers] == [True, False, True, True, True]
    assert compiled.layers[1].bias_above == ()


@pytest.mark.parametrize(
    ("layer", "message"),
    [("stam", "there is no layer 'stam'"), ("twice", "called 2 times"), ("", "there is no layer")],
)
def test_a_layer_that_cannot_be_named_is_refused(layer: str, message: str) -> None:
    with pytest.raises(UnknownLayerError, match=message) as failure:
        compile_layers(Bypassed().eval(), (9, 7), ["stem", layer])
    assert layer != "stam" or "stem" in str(failure.value.hint)


def test_a_frozen_layer_is_refused() -> None:
    class Frozen(Operators):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            gate: Tensor = self.gate(x.detach()).mean((1, 2, 3))[:, None]
            return super().forward(x) * gate

    with pytest.raises(UnknownLayerError, match="no path without detach"):
        compile_layers(Frozen().eval(), (8, 8), ["gate"])


def test_an_export_with_layers_leaves_the_other_graphs_as_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = SmallNetwork((12, 10), 12).eval()
    plain = export(module, tmp_path / "plain", input_size=(12, 10), max_batch=2)
    layers = export(module, tmp_path / "layers", input_size=(12, 10), max_batch=2, layers=["stem", "body"])
    assert b'"layers"' not in bytes((plain.path / "manifest.json").read_bytes())
    for name in ("predict.onnx", "explain.onnx", "explain_rows.onnx"):
        one, other = (_without_binding(bundle.contents[name]) for bundle in (plain, layers))
        assert one == other
    assert [layer.path for layer in layers.manifest.layer_records] == ["stem", "body"]
    with pytest.raises(ExportError, match="precision='fp16'"):
        export(module, tmp_path / "half", input_size=(12, 10), layers=["stem"], precision="fp16")


def _without_binding(contents: memoryview) -> bytes:
    import onnx

    model = onnx.load_from_string(bytes(contents))
    del model.metadata_props[:]
    return bytes(model.SerializeToString(deterministic=True))
