"""Replace the built-in model by the output of a training run: `python demo/install.py out/training`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.exporters import export
from bcos_sdk.registry import load_registry
from bcos_sdk.weights import load_model

REGISTRY = Path(__file__).resolve().parents[1] / "models.yaml"
MAX_BATCH = 32


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(run: Path) -> None:
    """Copy the weights of RUN, write their hash to models.yaml, and export the bundle."""
    target = builtin_dir() / f"{BUILTIN_MODEL}.safetensors"
    target.parent.mkdir(exist_ok=True)
    shutil.copy(run / "weights.safetensors", target)
    shutil.copy(run / "training.json", target.with_name("training.json"))
    entry = re.compile(rf"(packaged: \{{file: {re.escape(target.name)}, sha256: )[0-9a-f]{{64}}")
    text, count = entry.subn(rf"\g<1>{sha256_of(target)}", REGISTRY.read_text("utf-8"))
    if count != 1:
        raise click.ClickException(f"{REGISTRY.name} has no entry with the hash of {target.name}")
    REGISTRY.write_text(text, "utf-8")
    spec = load_registry(REGISTRY)[BUILTIN_MODEL]
    bundle = export(
        load_model(spec),
        builtin_dir() / BUILTIN_MODEL,
        name=BUILTIN_MODEL,
        labels=spec.class_names,
        preprocessing=spec.input,
        max_batch=MAX_BATCH,
        force=True,
        progress=lambda stage: click.echo(stage, err=True),
    )
    click.echo(bundle.path)


if __name__ == "__main__":
    main()
