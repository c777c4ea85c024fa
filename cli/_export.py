"""`bcos-sdk export`: a model of the registry becomes a bundle."""

from __future__ import annotations

import time
from pathlib import Path

import click

from bcos_sdk._paths import store_dir
from bcos_sdk.cli._tables import columns
from bcos_sdk.registry import builtin_registry

__all__ = ["export"]


@click.command()
@click.argument("model")
@click.option("--weights", type=click.Path(path_type=Path), help="A weights file; default: the published weights.")
@click.option("--random-weights", is_flag=True, help="Fresh weights, to try things out without a download.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The bundle's folder; default: the local store, where it is found by name.",
)
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1), help="Largest batch to check.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
def export(
    model: str, weights: Path | None, random_weights: bool, output: Path | None, max_batch: int, force: bool
) -> None:
    """Export MODEL to ONNX graphs that predict and explain.

    The graphs are measured against the network in torch. Where they differ no bundle is written: exit code 3.

    \b
    Examples:
      bcos-sdk export resnet50
      bcos-sdk export resnet50 --weights resnet_50-ead259efe4.pth -o out/resnet50
    """
    spec = builtin_registry().find(model)
    if weights is not None and random_weights:
        raise click.UsageError("--weights and --random-weights exclude each other")
    from bcos_sdk.exporters import export as export_module
    from bcos_sdk.exporters import parity_table
    from bcos_sdk.models import build_model
    from bcos_sdk.weights import load_model

    network = build_model(spec) if random_weights else load_model(spec, weights=weights)
    began = time.monotonic()

    def progress(stage: str) -> None:
        click.echo(f"[{time.monotonic() - began:5.1f} s] {stage}", err=True)

    bundle = export_module(
        network,
        output or store_dir() / model,
        name=model,
        labels=spec.class_names,
        preprocessing=spec.input,
        max_batch=max_batch,
        force=force,
        progress=progress,
    )
    progress("done")
    header, *rows = parity_table(bundle.manifest.parity, bundle.manifest.parity_limits)
    click.echo("Distance from the network in torch (float64):")
    click.echo(columns(header, rows))
    click.echo(f"\n{bundle.path}")
    for name, record in bundle.manifest.files.items():
        click.echo(f"  {name:<14} {record.size / 1e3:>10,.0f} kB")
    client = model if output is None else str(output)
    click.echo(f'\nUse it:  from bcos_sdk import Client; Client("{client}").explain(["cat.jpg"])')
