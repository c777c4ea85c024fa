"""`bcos-sdk export`: a model of the registry, or of one's own, becomes a bundle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import click

from bcos_sdk._paths import store_dir
from bcos_sdk.backends.tensorrt import EngineRecord, build_engines, choose_flavour
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._factory import build_own, is_factory, parse_size
from bcos_sdk.cli._tables import columns
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.registry import builtin_registry

__all__ = ["export"]

_FILE = click.Path(path_type=Path)
_PRECISION = "Of convolutions and matrix products; the rest is float."


@click.command()
@click.argument("model")
@click.option("--weights", type=_FILE, help="A weights file; default: the published weights.")
@click.option("--random-weights", is_flag=True, help="Fresh weights, to try things out without a download.")
@click.option("-o", "--output", type=_FILE, help="The bundle's folder; default: the local store, found by name.")
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1), help="Largest batch to check.")
@click.option("--precision", type=click.Choice(["fp32", "fp16"]), default="fp32", show_default=True, help=_PRECISION)
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@click.option("--trt", is_flag=True, help="Also build TensorRT engines, for the GPU at hand or as named next.")
@click.option("--compute-capability", "capabilities", metavar="X.Y,...", help="Build engines ahead of time for these.")
@click.option("--tf32", is_flag=True, help="Let engines multiply with 11 binary digits: faster, less exact.")
@click.option("--input-size", callback=parse_size, metavar="H[xW]", help="Of a network of your own; default: 224.")
@click.option("--resize", type=click.IntRange(1), help="Shorter side before the crop, of a network of your own.")
@click.option("--labels", type=_FILE, help="A file with one class per line, of a network of your own.")
def export(
    model: str,
    weights: Path | None,
    random_weights: bool,
    output: Path | None,
    max_batch: int,
    precision: Literal["fp32", "fp16"],
    force: bool,
    trt: bool,
    capabilities: str | None,
    tf32: bool,
    input_size: tuple[int, int] | None,
    resize: int | None,
    labels: Path | None,
) -> None:
    """Export MODEL to ONNX graphs that predict and explain.

    MODEL is a name of the registry, or package.module:factory, which returns a torch module with its weights. The
    graphs are measured against the network in torch. Where they differ no bundle is written: exit code 3.

    \b
    Examples:
      bcos-sdk export resnet50
      bcos-sdk export resnet50 --weights resnet_50-ead259efe4.pth -o out/resnet50
      bcos-sdk export resnet50 --precision fp16
      bcos-sdk export resnet152 --trt --compute-capability 8.9
      bcos-sdk export my_package.networks:make --input-size 128 --labels classes.txt
    """
    if weights is not None and random_weights:
        raise click.UsageError("--weights and --random-weights exclude each other")
    own = {"--input-size": input_size, "--resize": resize, "--labels": labels}
    registered = {"--weights": weights, "--random-weights": random_weights or None}
    idle = [name for name, value in (registered if is_factory(model) else own).items() if value is not None]
    if idle:
        whose = "the factory loads its own weights" if is_factory(model) else "the registry knows them"
        raise click.UsageError(f"{', '.join(idle)} does nothing here: {whose}")
    if (capabilities or tf32) and not trt:
        raise click.UsageError(f"{'--compute-capability' if capabilities else '--tf32'} does nothing without --trt")
    named = [part.strip() for part in (capabilities or "").split(",") if part.strip()]
    from bcos_sdk.exporters import export as export_module

    if trt:
        choose_flavour(named, precision)  # what cannot be built is said before an export is worth any work
    if is_factory(model):
        name = model.replace(":", ".")
        network, described = build_own(model), _own_input(input_size or (224, 224), resize, labels)
    else:
        name = model
        network, described = _from_registry(model, weights, random_weights)
    stored = name if precision == "fp32" else f"{name}-{precision}"
    target = output or store_dir() / stored
    began = time.monotonic()

    def progress(stage: str) -> None:
        click.echo(f"[{time.monotonic() - began:5.1f} s] {stage}", err=True)

    described["precision"] = precision
    bundle = export_module(network, target, name=name, max_batch=max_batch, force=force, progress=progress, **described)
    engines = build_engines(bundle, compute_capabilities=named, tf32=tf32, progress=progress) if trt else []
    progress("done")
    _show(bundle, engines, str(output) if output else stored)


def _engine_row(engine: tuple[str, EngineRecord]) -> tuple[str, ...]:
    name, record = engine
    peak = "-" if record.peak_memory is None else f"{record.peak_memory / 1e6:.0f}"
    return name, f"{record.size / 1e6:.1f}", f"{record.seconds:.1f}", peak, f"{record.key.flavour} {record.key.version}"


def _from_registry(model: str, weights: Path | None, random_weights: bool) -> tuple[Any, dict[str, Any]]:
    spec = builtin_registry().find(model)
    from bcos_sdk.models import build_model
    from bcos_sdk.weights import load_model

    network = build_model(spec) if random_weights else load_model(spec, weights=weights)
    return network, {"labels": spec.class_names, "preprocessing": spec.input}


def _own_input(size: tuple[int, int], resize: int | None, labels: Path | None) -> dict[str, Any]:
    if resize is not None and resize < max(size):
        raise click.UsageError(f"--resize {resize} is smaller than the crop, {size[0]}x{size[1]}")
    names = None
    if labels is not None:
        try:
            names = [line.strip() for line in labels.read_text("utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {labels}: {error}", source=str(labels)) from error
    spec = InputSpec(size=size, resize=resize, crop=None if resize is None else size)
    return {"labels": names, "preprocessing": spec}


def _show(bundle: Bundle, engines: list[tuple[str, EngineRecord]], name: str) -> None:
    from bcos_sdk.exporters import parity_table

    header, *rows = parity_table(bundle.manifest.parity, bundle.manifest.parity_limits)
    click.echo("Distance from the network in torch (float64):")
    click.echo(columns(header, rows))
    if bundle.manifest.float_layers:
        click.echo(f"In float: {', '.join(bundle.manifest.float_layers)}")
    click.echo(f"\n{bundle.path}")
    for file, record in bundle.manifest.files.items():
        click.echo(f"  {file:<14} {record.size / 1e3:>10,.0f} kB")
    if engines:
        click.echo("\n" + columns(["ENGINE", "MB", "SECONDS", "PEAK MB", "BUILT WITH"], [*map(_engine_row, engines)]))
        extra = " --tf32" if engines[0][1].key.tf32 else ""
        click.echo(f"Built, not run: on the GPU, `bcos-sdk validate {name} --device tensorrt{extra}` runs them.")
    click.echo(f"\nNext:\n  bcos-sdk predict IMAGES --explain --report --model {name}")
    click.echo(f'  python -c \'from bcos_sdk import Client; print(Client("{name}").predict("IMAGE"))\'')
