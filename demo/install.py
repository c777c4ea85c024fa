"""Replace a built-in model by the output of a training run: `python demo/install.py MODEL RUN`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
from safetensors.torch import load_file, save

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle import BUILTIN_SHA256
from bcos_sdk.exporters import export
from bcos_sdk.registry import load_registry
from bcos_sdk.weights import load_model

ROOT = Path(__file__).resolve().parents[1]
REGISTRY = ROOT / "models.yaml"
DIGESTS = ROOT / "bcos_sdk" / "bundle" / "_builtin.py"
MAX_BATCH = 32
IN_HALF = ("pets37_resnet18_w32",)
"""Weights and products of these models are in fp16: half the size. The others have graphs of their inner layers."""
LAYERS = ("layer1", "layer2", "layer3", "layer4")


@click.command()
@click.argument("model", type=click.Choice(list(BUILTIN_SHA256)))
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(model: str, run: Path) -> None:
    """Copy the weights of RUN, write their hash to models.yaml, export the bundle, and write down its digest."""
    half = model in IN_HALF
    weights = builtin_dir() / f"{model}.safetensors"
    if half:
        tensors = load_file(run / "weights.safetensors")
        weights.write_bytes(save({key: one.half() if one.is_floating_point() else one for key, one in tensors.items()}))
    else:
        shutil.copy(run / "weights.safetensors", weights)
    shutil.copy(run / "training.json", builtin_dir() / f"{model}.training.json")
    _replace(REGISTRY, rf"(packaged: \{{file: {re.escape(weights.name)}, sha256: )[0-9a-f]{{64}}", sha256_of(weights))
    spec = load_registry(REGISTRY)[model]
    bundle = export(
        load_model(spec),
        builtin_dir() / model,
        name=model,
        labels=spec.class_names,
        preprocessing=spec.input,
        max_batch=MAX_BATCH,
        precision="fp16" if half else "fp32",
        layers=() if half else LAYERS,
        force=True,
        progress=lambda stage: click.echo(stage, err=True),
    )
    old = BUILTIN_SHA256[model]
    _replace(DIGESTS, rf"(\"){old}(?=\")", bundle.sha256)
    click.echo(f"{bundle.path}: {bundle.sha256}")


def _replace(file: Path, pattern: str, digest: str) -> None:
    """Put the digest behind the first group of the pattern, which must be there once."""
    text, count = re.subn(pattern, rf"\g<1>{digest}", file.read_text("utf-8"))
    if count != 1:
        raise click.ClickException(f"{file.name} has {count} places for the hash, expected one: {pattern}")
    file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
