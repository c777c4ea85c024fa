"""`bcos-sdk export`: write a registry model, or your own network, as a bundle."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import click

from bcos_sdk._paths import store_dir
from bcos_sdk.backends.tensorrt import EngineRecord, build_engines, choose_flavour
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._common import columns, parse_size, print_stages, read_labels, split_list, tf32_option
from bcos_sdk.contract import InputSpec
from bcos_sdk.registry import ModelSpec, builtin_registry

__all__ = ["export"]

_FILE = click.Path(path_type=Path)
_DEFAULT_SIZE = (224, 224)
_OWN_CLASSES = "For your own classes see docs/own_module.md"


@click.command()
@click.argument("model")
@click.option("--weights", type=_FILE, help="A weights file; default: the published weights.")
@click.option("--random-weights", is_flag=True, help="Use random weights, to try the export without a download.")
@click.option("-o", "--output", type=_FILE, help="The bundle's folder; default: the local store, found by name.")
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1), help="Largest batch size to test.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16"]),
    default="fp32",
    show_default=True,
    help="Precision of convolutions and matrix products. Everything else is float32.",
)
@click.option("--force", is_flag=True, help="Replace an existing bundle.")
@click.option("--trt", is_flag=True, help="Also build TensorRT engines, for the GPU of this machine.")
@click.option(
    "--compute-capability", "capabilities", metavar="X.Y,...", help="Build the engines for these GPUs instead."
)
@tf32_option
@click.option("--input-size", callback=parse_size, metavar="H[xW]", help="Input size of your network; default: 224.")
@click.option("--resize", type=click.IntRange(1), help="Length of the shorter side before the crop, for your network.")
@click.option("--labels", type=_FILE, help="A file with one class name per line, for your network.")
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

    MODEL is a registry name, or package.module:factory for your own network: a callable that returns a torch module
    with its weights. The graphs are compared with the module in torch. If they differ, no bundle is written and the
    exit code is 3.

    \b
    Examples:
      bcos-sdk export resnet50
      bcos-sdk export resnet50 --weights resnet_50-ead259efe4.pth -o out/resnet50
      bcos-sdk export resnet50 --precision fp16
      bcos-sdk export resnet152 --trt --compute-capability 8.9
      bcos-sdk export my_package.networks:make --input-size 128 --labels classes.txt
    """
    if weights is not None and random_weights:
        raise click.UsageError("--weights and --random-weights cannot be used together")
    own = _is_factory(model)
    if own:
        _refuse_weights_options(model, {"--weights": weights is not None, "--random-weights": random_weights})
    if (capabilities or tf32) and not trt:
        raise click.UsageError(f"{'--compute-capability' if capabilities else '--tf32'} needs --trt")
    capability_list = list(split_list(capabilities or ""))
    if not own:
        spec = builtin_registry().find(model)
        _refuse_input_options(spec, input_size, resize, labels)
    from bcos_sdk.exporters import export as export_module

    if trt:
        choose_flavour(capability_list, precision)  # fails now, not after the export
    if own:
        name = model.replace(":", ".")
        network, described = _build_own(model), _own_input(input_size or _DEFAULT_SIZE, resize, labels)
    else:
        name = model
        network, described = _from_registry(spec, weights, random_weights)
    stored = name if precision == "fp32" else f"{name}-{precision}"
    target = output or store_dir() / stored
    progress = print_stages()
    described["precision"] = precision
    bundle = export_module(network, target, name=name, max_batch=max_batch, force=force, progress=progress, **described)
    engines = build_engines(bundle, compute_capabilities=capability_list, tf32=tf32, progress=progress) if trt else []
    progress("done")
    _print_summary(bundle, engines, str(output) if output else stored)


def _refuse_weights_options(model: str, given: dict[str, bool]) -> None:
    if names := [name for name, is_given in given.items() if is_given]:
        raise click.UsageError(f"{', '.join(names)} cannot be used with {model}: the factory loads the weights")


def _refuse_input_options(
    spec: ModelSpec, input_size: tuple[int, int] | None, resize: int | None, labels: Path | None
) -> None:
    """Raise if an option would change the labels or the input of a registry model, with its values in the message."""
    reasons = []
    if labels is not None:
        kind = {"imagenet": " ImageNet", "cifar10": " CIFAR-10"}.get(spec.dataset, "")
        reasons.append(f"{spec.name} has the {len(spec.class_names)}{kind} labels. {_OWN_CLASSES}")
    if input_size is not None or resize is not None:
        (height, width), resized = spec.input.size, spec.input.resize
        steps = f"no resize and no crop, input {height}x{width}"
        if resized is not None:
            steps = f"resize to {resized}, input {height}x{width}"
        reasons.append(f"{spec.name} has a fixed preprocessing: {steps}. For your own network see docs/own_module.md")
    if reasons:
        raise click.UsageError("\n".join(reasons))


def _from_registry(spec: ModelSpec, weights: Path | None, random_weights: bool) -> tuple[Any, dict[str, Any]]:
    from bcos_sdk.models import build_model
    from bcos_sdk.weights import load_model

    network = build_model(spec) if random_weights else load_model(spec, weights=weights)
    return network, {"labels": spec.class_names, "preprocessing": spec.input}


def _is_factory(model: str) -> bool:
    return ":" in model


def _build_own(model: str) -> Any:
    """Import `package.module:factory` and return the module that the factory makes, in eval mode.

    Modules in the current folder can be imported. The name may also stand for a torch module instead of a factory.
    """
    module_name, _, attributes = model.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"cannot import {model}: {error}", param_hint="MODEL") from error
    finally:
        sys.path.pop(0)
    import torch

    network = found() if callable(found) and not isinstance(found, torch.nn.Module) else found
    if not isinstance(network, torch.nn.Module):
        message = f"{model} must return a torch module, got {type(network).__name__}"
        raise click.BadParameter(message, param_hint="MODEL")
    return network.eval()


def _own_input(size: tuple[int, int], resize: int | None, labels: Path | None) -> dict[str, Any]:
    if resize is not None and resize < max(size):
        raise click.UsageError(f"--resize {resize} is smaller than the crop {size[0]}x{size[1]}")
    spec = InputSpec(size=size, resize=resize, crop=None if resize is None else size)
    return {"labels": None if labels is None else read_labels(labels), "preprocessing": spec}


def _print_summary(bundle: Bundle, engines: list[tuple[str, EngineRecord]], name: str) -> None:
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
