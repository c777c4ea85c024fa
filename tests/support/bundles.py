"""A small network for tests of the client, exported once per test run.

All worker processes of a run share one folder of exported bundles. `python -m support.bundles FOLDER` exports every
variant into a folder, for a run without torch.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from bcos_sdk import Client, Prediction
from bcos_sdk._files import sha256_of
from bcos_sdk.backends import Device, GraphBackend
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.bundle import Bundle, binding_digest, open_bundle
from bcos_sdk.contract import GraphPrecision, InputSpec
from bcos_sdk.images import encode
from support.export_extra import HAVE_TORCH, export, torch

if TYPE_CHECKING:
    from support.small_network import SmallNetwork

LABELS = ("tabby, tabby cat", "lynx", "fox", "crane, bird", "crane, machine", "Boxer", "boxer")
SIZE = (20, 28)
MAX_BATCH = 4
BUNDLES = "BCOS_SDK_TEST_BUNDLES"
"""The environment variable that names the folder of exported bundles."""


@functools.cache
def small_network() -> SmallNetwork:
    from support.small_network import SmallNetwork

    torch.manual_seed(3)
    return SmallNetwork(SIZE, len(LABELS)).eval()


@functools.cache
def small_bundle(probability: str = "sigmoid", *, labels: bool = True, precision: GraphPrecision = "fp32") -> Bundle:
    """The exported network. Its preprocessing resizes the shorter side to 32 and crops."""
    variant = f"{probability}-{'labels' if labels else 'no-labels'}-{precision}"
    path = Path(os.environ[BUNDLES]) / variant / "small"
    with missing(path) as is_missing:
        if is_missing:
            export(
                small_network(),
                path,
                name="small",
                labels=LABELS if labels else None,
                preprocessing=InputSpec(size=SIZE, resize=32, crop=SIZE),
                max_batch=MAX_BATCH,
                probability=probability,  # type: ignore[arg-type]
                precision=precision,
            )
    return open_bundle(path)


@contextmanager
def missing(path: Path) -> Iterator[bool]:
    """Whether `path` has to be made. While it is made, other processes that need the same path wait."""
    if path.exists():
        yield False
        return
    assert HAVE_TORCH, f"{path} is missing and cannot be made without torch: run `python -m support.bundles` first"
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        yield not path.exists()


def cpu_backend(bundle: Bundle) -> GraphBackend:
    """The graphs of the bundle in ONNX Runtime, without a self-test."""
    return GraphBackend(bundle, Device(CPU))


def copy_of(bundle: Bundle, target: Path) -> Path:
    shutil.copytree(bundle.path, target)
    return target


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest, and forge digests and hashes so that the bundle opens, as an attacker would."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text("utf-8"))
    before = binding_digest(document)
    change(document)
    after = binding_digest(document)
    for graph in folder.glob("*.onnx"):
        graph.write_bytes(graph.read_bytes().replace(before.encode(), after.encode()))
    for name, record in document["files"].items():
        record["sha256"], record["size"] = sha256_of(folder / name), (folder / name).stat().st_size
    path.write_text(json.dumps(document), "utf-8")


def sign_again(folder: Path) -> None:
    """Write the current hashes of all files into the manifest, as an attacker would."""
    edit_manifest(folder, lambda _document: None)


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


def explain_by_autograd(pixels: npt.NDArray[np.uint8], coefficients: torch.Tensor) -> tuple[float, torch.Tensor]:
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


def main(folder: str) -> None:
    """Export every variant that a test uses into the folder."""
    os.environ[BUNDLES] = folder
    for precision in get_args(GraphPrecision):
        small_bundle(precision=precision)
    small_bundle("softmax")
    small_bundle(labels=False)


if __name__ == "__main__":
    main(sys.argv[1])
