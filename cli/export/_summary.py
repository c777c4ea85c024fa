"""What `export` prints: where the model comes from, what was assumed, how exact the graphs are, and the files."""

from __future__ import annotations

from typing import Literal

import click

from bcos_sdk.backends.tensorrt import EngineRecord
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._common import columns, pairs
from bcos_sdk.cli.export._assumptions import assumption_lines
from bcos_sdk.cli.export._source import Source

__all__ = ["print_bundle", "print_source"]


def print_source(source: Source, compared: Literal["input", "photograph"] | None) -> None:
    if source.facts:
        click.echo(pairs(list(source.facts)))
    if lines := assumption_lines(source.assumed, compared):
        click.echo("\n".join(lines) + "\n")


def print_bundle(bundle: Bundle, engines: list[tuple[str, EngineRecord]], name: str) -> None:
    from bcos_sdk.exporters import parity_table

    header, *rows = parity_table(bundle.manifest.parity, bundle.manifest.parity_limits)
    click.echo("Difference from the module in torch (float64):")
    click.echo(columns(header, rows))
    if bundle.manifest.float_layers:
        click.echo(f"In float32: {', '.join(bundle.manifest.float_layers)}")
    click.echo(f"\n{bundle.path}")
    for file, record in bundle.manifest.files.items():
        click.echo(f"  {file:<14} {record.size / 1e3:>10,.0f} kB")
    if engines:
        click.echo("\n" + columns(["ENGINE", "MB", "SECONDS", "PEAK MB", "BUILT WITH"], [*map(_engine_row, engines)]))
        extra = " --tf32" if engines[0][1].key.tf32 else ""
        command = f"bcos-sdk validate {name} --device tensorrt{extra}"
        click.echo(f"The engines were built but not run. Test them on the GPU with: {command}")
    click.echo(f"\nNext:\n  bcos-sdk predict IMAGES --explain --report --model {name}")


def _engine_row(engine: tuple[str, EngineRecord]) -> tuple[str, ...]:
    name, record = engine
    peak = "-" if record.peak_memory is None else f"{record.peak_memory / 1e6:.0f}"
    return name, f"{record.size / 1e6:.1f}", f"{record.seconds:.1f}", peak, f"{record.key.flavour} {record.key.version}"
