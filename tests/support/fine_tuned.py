"""A fine-tuned model: a registry entry with weights of its own, and a bundle with other weights of the same network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from PIL import Image
from safetensors.torch import save_file

from bcos_sdk import Client
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.models import build_model
from bcos_sdk.registry import load_registry
from support.export_extra import export, torch

__all__ = ["CLASSES", "FineTunedModel", "fine_tuned_model"]

CLASSES = tuple(f"class {index}" for index in range(6))
_ENTRY = {
    "labels": list(CLASSES),
    "input": {"size": [16, 16], "resize": None, "crop": None},
    "architecture": {
        "family": "resnet",
        "block": "basic",
        "blocks": [1, 1],
        "width": 4,
        "stem": "cifar",
        "norm": {"kind": "batch", "centred": False, "bias": False},
        "classes": len(CLASSES),
        "logit_bias": 3.0,
        "temperature": 0.01,
    },
}


@dataclass(frozen=True)
class FineTunedModel:
    """`registry` names `registered` for the model "mine"; `bundle` was exported from `tuned`."""

    registry: Path
    registered: Path
    tuned: Path
    bundle: Path
    data: Path
    """A CSV file of images with the classes that the bundle gives them, each with a probability above 0.5."""


def fine_tuned_model(folder: Path, precision: GraphPrecision) -> FineTunedModel:
    """Write everything into the folder."""
    registry, registered, tuned = (
        folder / name for name in ("own.yaml", "registered.safetensors", "tuned.safetensors")
    )
    entry = {**_ENTRY, "weights": {"file": registered.name}}
    registry.write_text(yaml.safe_dump({"schema": 1, "models": {"mine": entry}}), "utf-8")
    spec = load_registry(registry)["mine"]
    for seed, file in ((1, registered), (3, tuned)):
        torch.manual_seed(seed)
        network = build_model(spec).eval()
        with torch.no_grad():
            for tensor in network.state_dict().values():
                if tensor.ndim == 4:
                    tensor.copy_(torch.randn_like(tensor))
        save_file(network.state_dict(), file)
    bundle = folder / f"bundle-{precision}"
    export(network, bundle, name="mine", labels=CLASSES, preprocessing=spec.input, precision=precision, max_batch=2)
    return FineTunedModel(registry, registered, tuned, bundle, _images(folder, bundle))


def _images(folder: Path, bundle: Path) -> Path:
    """Six shapes in eight colours: of random weights, these get different classes."""
    y, x = np.mgrid[:16, :16]
    disc = (x - 8) ** 2 + (y - 8) ** 2 < 25
    shapes = (np.ones_like(x), x // 2 % 2, y // 2 % 2, (x + y) % 2, x < 8, disc)
    paths = []
    for at in range(8 * len(shapes)):
        colour = np.array([255 * (at >> bit & 1) for bit in range(3)])
        pixels = np.where(shapes[at // 8][..., None], colour, 0.3 * (255 - colour))
        paths.append(folder / f"{at}.png")
        Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])
    with Client(bundle, device="cpu") as client:
        rows = [f"{path.name},{one.classes[0].index}" for path, one in zip(paths, client.predict(paths), strict=True)]
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    return folder / "list.csv"
