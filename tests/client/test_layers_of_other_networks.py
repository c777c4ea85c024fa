"""Inner layers of networks with other inputs and outputs: channels, arrays, maps, one of several results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.needs_torch  # noqa: F401 - before what needs torch
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor, nn

from bcos_sdk import Client, Pixel
from bcos_sdk.cli import main
from bcos_sdk.concepts import Concepts, find_concepts
from bcos_sdk.contract import RelayOutputs
from bcos_sdk.errors import ExportError, InferenceError, InputError
from bcos_sdk.exporters import export
from bcos_sdk.models.layers import BcosConv2d
from bcos_sdk.registry import InputSpec

SIZE = (10, 14)
SPECS = {
    "grey": InputSpec.exact(SIZE, channels="grey"),
    "grey+complement": InputSpec.exact(SIZE, channels="grey+complement"),
    "rgb": InputSpec.exact(SIZE, channels="rgb"),
    "12 channels": InputSpec.arrays(12, SIZE),
}


class Net(nn.Module):
    """Returns a map, its mean, or both."""

    def __init__(self, channels: int, result: str = "mean") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = BcosConv2d(channels, 8, 3, stride=2, padding=1)
        self.head = nn.Sequential(BcosConv2d(8, 4, 3, padding=1))
        self.result = result

    def forward(self, images: Tensor) -> Any:
        scores = 20 * self.head(self.stem(images)) - 1
        both = {"map": scores, "mean": scores.mean((2, 3))}
        return both if self.result == "both" else both[self.result]


def inputs(spec: InputSpec, count: int) -> list[Any]:
    random = np.random.default_rng(0)
    if spec.channels == "none":
        return list((5 * random.standard_normal((count, *spec.shape))).astype(np.float32))
    return [Image.fromarray(random.integers(0, 256, (*SIZE, 3), dtype=np.uint8)) for _ in range(count)]


def encoded(spec: InputSpec, image: Any) -> Any:
    if spec.channels == "none":
        return image.astype(float)
    grey = spec.channels.startswith("grey")
    colours = np.asarray(image.convert("L"))[None] / 255 if grey else np.asarray(image).transpose(2, 0, 1) / 255
    return np.concatenate([colours, 1 - colours]) if spec.channels.endswith("complement") else colours


def gradients(module: nn.Module, x: Any, target: Any, direction: Any) -> tuple[Tensor, Tensor]:
    """activation ⊙ ∂logit/∂activation of the stem, and the gradient of ⟨direction, mean activation⟩, by autograd."""
    kept: list[Tensor] = []
    handle = module.get_submodule("stem").register_forward_hook(lambda _module, _inputs, result: kept.append(result))
    pixels = torch.from_numpy(x)[None].requires_grad_()
    result = module(pixels)
    handle.remove()
    logits = result["mean"] if isinstance(result, dict) else result
    logit = logits[0][target]
    (above,) = torch.autograd.grad(logit, kept[0], retain_graph=True)
    value = torch.from_numpy(direction).double() @ kept[0][0].mean((1, 2))
    (row,) = torch.autograd.grad(value, pixels)
    return (above * kept[0])[0].detach(), row[0]


def check(folder: Path, module: nn.Module, spec: InputSpec, target: Any, index: tuple[int, ...], device: str) -> None:
    images = inputs(spec, 3)
    direction = np.random.default_rng(1).standard_normal(8).astype(np.float32)
    module = module.double()
    with Client(folder, device=device, threads=1) as client:
        for batch in (images, images[:1]):
            shares = client.explain_features(batch, layer="stem", target=target)
            values = client.explain_layer(batch, layer="stem", direction=direction, position="mean")
            for image, share, value in zip(batch, shares, values, strict=True):
                features, row = gradients(module, encoded(spec, image), index, direction)
                assert share.completeness.passed
                assert value.completeness.passed
                assert np.abs(share.contributions - features.numpy()).max() <= 1e-4 * float(features.abs().max())
                assert np.linalg.norm(value.weights - row.numpy()) <= 1e-4 * float(row.norm())
        assert value.overlay().size[0] > 0


@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize("kind", SPECS)
def test_channels(tmp_path: Path, kind: str, device: str) -> None:
    spec, module = SPECS[kind], Net(SPECS[kind].depth).eval()
    export(module, tmp_path / "bundle", preprocessing=spec, max_batch=3, layers=["stem"])
    check(tmp_path / "bundle", module, spec, 2, (2,), device)


@pytest.mark.parametrize("kind", SPECS)
def test_sheets_of_concepts(tmp_path: Path, kind: str) -> None:
    """From the files of images or arrays to PNG, page and JSON."""
    spec, module = SPECS[kind], Net(SPECS[kind].depth).eval()
    export(module, tmp_path / "bundle", preprocessing=spec, max_batch=3, layers=["stem"])
    files = []
    for place, image in enumerate(inputs(spec, 5)):
        files.append(tmp_path / f"{place}{'.npy' if spec.channels == 'none' else '.png'}")
        np.save(files[-1], image) if spec.channels == "none" else image.save(files[-1])
    with Client(tmp_path / "bundle", device="cpu") as client:
        label = client.predict(files[0])[0].classes[0].label
    arguments = ["concepts", *map(str, files), "--model", str(tmp_path / "bundle"), "--layer", "stem"]
    arguments += ["--class", label, "--directions", "2", "--images", "2", "-o", str(tmp_path / "sheet")]
    result = CliRunner().invoke(main, [*arguments, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    found = Concepts.from_json((tmp_path / "sheet" / "sheet.json").read_bytes())
    assert all(one.completeness is not None for one in found.layers[0].concepts[0].examples)
    with Image.open(tmp_path / "sheet" / "sheet.png") as picture:
        assert np.asarray(picture).std() > 10


@pytest.fixture(scope="module")
def of_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps") / "bundle"
    module = Net(6, "map").eval()
    export(module, folder, preprocessing=InputSpec.exact(SIZE), max_batch=3, layers=["stem"], labels=list("abcd"))
    return folder


@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_a_pixel_of_a_map_is_explained_by_features(of_maps: Path, device: str) -> None:
    module = Net(6, "map").eval()
    check(of_maps, module, InputSpec.exact(SIZE), Pixel("c", 3, 1), (2, 3, 1), device)


def test_one_of_several_results(tmp_path: Path) -> None:
    module, spec = Net(6, "both").eval(), InputSpec.exact(SIZE)
    export(module, tmp_path / "bundle", preprocessing=spec, max_batch=3, layers=["stem"], output="mean")
    check(tmp_path / "bundle", module, spec, 2, (2,), "cpu")


def test_what_is_not_possible_is_a_clear_error(of_maps: Path, tmp_path: Path) -> None:
    with Client(of_maps, device="cpu") as client:
        with pytest.raises(InputError, match=" @ "):
            client.explain_features(inputs(InputSpec.exact(SIZE), 1)[0], layer="stem", target="c")
        with pytest.raises(InputError, match=r"returns a map \[4, 5, 7\], expected one value per class"):
            find_concepts(client, ["a.png"], layers="stem", target="c")
    module, spec = Net(6).eval(), InputSpec.exact(SIZE)
    with pytest.raises(ExportError, match="with fp16 or with inner layers"):
        export(module, tmp_path / "b", preprocessing=spec, more_sizes=[(20, 28)], layers=["stem"])


def test_a_graph_that_explains_another_class_is_noticed(of_maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(of_maps, device="cpu") as client:
        relay = client._processor.runner._backend.relay

        def other(*arguments: Any) -> RelayOutputs:
            outputs = relay(*arguments)
            return RelayOutputs(**{**vars(outputs), "classes": outputs.classes + 1})

        image = inputs(InputSpec.exact(SIZE), 1)[0]
        client.explain_features(image, layer="stem", target=Pixel("c", 0, 0))
        monkeypatch.setattr(client._processor.runner._backend, "relay", other)
        with pytest.raises(InferenceError, match="requested were"):
            client.explain_features(image, layer="stem", target=Pixel("c", 0, 0))
