"""A small network with bias terms and labels, exported once per test run."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bcos_sdk import Client, Prediction
from bcos_sdk._files import sha256_of
from bcos_sdk.backends import Device, GraphBackend
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import GraphPrecision, InputSpec
from bcos_sdk.exporters import export
from bcos_sdk.images import encode
from bcos_sdk.models.layers import BcosConv2d

LABELS = ("tabby, tabby cat", "lynx", "fox", "crane, bird", "crane, machine", "Boxer", "boxer")
SIZE = (20, 28)
MAX_BATCH = 4


class SmallNetwork(nn.Module):
    """Two B-cos convolutions, an added position map, pooling, and a head with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, 12, 3, stride=2, padding=1)
        self.position = nn.Parameter(torch.rand(12, SIZE[0] // 2, SIZE[1] // 2) * 0.1)
        self.body = BcosConv2d(12, 16, 3, padding=1)
        self.head = nn.Linear(16, len(LABELS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x) + self.position)
        logits: Tensor = self.head(x.mean((2, 3)) * 20)
        return logits


@functools.cache
def small_network() -> SmallNetwork:
    torch.manual_seed(3)
    return SmallNetwork().eval()


@functools.cache
def small_bundle(probability: str = "sigmoid", *, labels: bool = True, precision: GraphPrecision = "fp32") -> Bundle:
    """The exported small network. Its preprocessing resizes the shorter side to 32 and crops the centre."""
    return export(
        small_network(),
        Path(tempfile.mkdtemp(prefix="bcos-sdk-test-")) / "small",
        name="small",
        labels=LABELS if labels else None,
        preprocessing=InputSpec(size=SIZE, resize=32, crop=SIZE),
        max_batch=MAX_BATCH,
        probability=probability,  # type: ignore[arg-type]
        precision=precision,
    )


def cpu_backend(bundle: Bundle) -> GraphBackend:
    """The graphs of the bundle in ONNX Runtime, without a self-test."""
    return GraphBackend(bundle, Device(CPU))


def copy_of(bundle: Bundle, target: Path) -> Path:
    shutil.copytree(bundle.path, target)
    return target


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def sign_again(folder: Path) -> None:
    """Write the current hashes of all files into the manifest, as an attacker would."""

    def change(document: dict[str, Any]) -> None:
        for name, record in document["files"].items():
            record["sha256"], record["size"] = sha256_of(folder / name), (folder / name).stat().st_size

    edit_manifest(folder, change)


def random_pixels(count: int, seed: int = 0, size: tuple[int, int] = (32, 45)) -> list[npt.NDArray[np.uint8]]:
    """Random images that the small network crops but does not resize."""
    generator = np.random.default_rng(seed)
    return list(generator.integers(0, 256, (count, *size, 3), dtype=np.uint8))


def cropped(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The centre crop of an image of `random_pixels`."""
    return pixels[6:26, 8:36]


def encoded_batch(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Encoded images of `random_pixels`: [count, 6, height, width]."""
    return np.stack([encode(cropped(pixels)) for pixels in random_pixels(count, seed)])


def predict_with(client: Client, image: npt.NDArray[np.uint8]) -> list[Prediction]:
    """Predict one image. Tests run this in another process."""
    return client.predict([image])


def explain_by_autograd(pixels: npt.NDArray[np.uint8], coefficients: Tensor) -> tuple[float, Tensor]:
    """⟨coefficients, logits⟩ and its gradient with the dynamic weights frozen, by autograd in float64."""
    rgb = torch.from_numpy(pixels.copy()).double().permute(2, 0, 1)[None] / 255
    x = torch.cat([rgb, 1 - rgb], dim=1).requires_grad_()
    network = small_network().double()
    try:
        value = (network(x)[0] * coefficients.double()).sum()
        (weights,) = torch.autograd.grad(value, x)
    finally:
        network.float()
    return value.item(), weights[0]
