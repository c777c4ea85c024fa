"""`bcos-sdk export`: write a registry model, a fine-tuned one, or your own network, as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import click

from bcos_sdk._paths import store_dir
from bcos_sdk.backends.tensorrt import build_engines, choose_flavour
from bcos_sdk.bundle import BundleWriter, Signer, check_name, is_name
from bcos_sdk.cli._common import (
    channels_option,
    output_name_option,
    parse_sizes,
    print_stages,
    registry_option,
    split_list,
    tf32_option,
)
from bcos_sdk.cli._sign_command import print_signature, signing_options
from bcos_sdk.cli._triton_command import print_models
from bcos_sdk.cli._web_command import print_site, samples_option
from bcos_sdk.cli.export._choices import Choices
from bcos_sdk.cli.export._own_module import is_factory
from bcos_sdk.cli.export._source import from_factory, from_registry
from bcos_sdk.cli.export._summary import print_agreement, print_bundle, print_source
from bcos_sdk.contract import Interpolation, Probability
from bcos_sdk.errors import BcosError, BundleExistsError, InputError
from bcos_sdk.registry import model_registry, parse_settings
from bcos_sdk.triton import check_repository, write_repository
from bcos_sdk.web import check_site, write_site

__all__ = ["export"]

_FILE = click.Path(path_type=Path)
_FOR_REGISTRY_MODELS = ("--random-weights", "--logit-bias", "--temperature", "--set", "--registry")


def _in_one_line(error: BcosError) -> str:
    return " ".join(f"{error.message}. {error.hint or ''}".split())


def _settings(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    try:
        return parse_settings(texts)
    except InputError as error:
        raise click.BadParameter(_in_one_line(error)) from error


def _store_name(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    try:
        return name if name is None else check_name(name)
    except InputError as error:
        raise click.BadParameter(_in_one_line(error)) from error


def _layer_paths(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    paths = split_list(text or "")
    if text is not None and not paths:
        raise click.BadParameter(f"{text!r} names no layer: `bcos-sdk layers MODEL` lists those that can be named")
    return paths


@click.command()
@click.argument("model")
@click.option("--weights", type=_FILE, help="A weights file; default: those of the registry.")
@click.option("--no-ema", is_flag=True, help="Use the weights of the file that are not averaged.")
@click.option("--weights-key", metavar="KEY", help="The copy to use if the file has several, e.g. state_dict.teacher.")
@click.option("--random-weights", is_flag=True, help="Use random weights, to try the export without a download.")
@click.option("--labels", type=_FILE, help="A file with one class name per line; default: those of the weights file.")
@click.option("--classes", type=click.IntRange(1), help="Number of classes; default: as the weights have.")
@click.option("--logit-bias", type=float, help="The constant that the network adds to its logits.")
@click.option("--temperature", type=float, help="The constant that divides the logits.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings,
    help="Another value of the architecture, e.g. b=1.5 or norm.eps=1e-6.",
)
@registry_option
@click.option(
    "--input-size",
    "input_sizes",
    callback=parse_sizes,
    metavar="H[xW],...",
    help="Input size; default: the model's, or 224. Several for a network that takes them, the default first.",
)
@click.option("--resize", type=click.IntRange(1), help="Shorter side before the crop; default: size · 256/224.")
@click.option("--no-resize", is_flag=True, help="Take only images of exactly the input size.")
@click.option("--interpolation", type=click.Choice(get_args(Interpolation)), help="How images are resized.")
@channels_option
@click.option("--probability", type=click.Choice(get_args(Probability)), help="Of the classes; default: sigmoid.")
@click.option("--expect", type=_FILE, metavar="FILE.npz", help="An image and the logits that your code gives for it.")
@click.option("--name", callback=_store_name, help="Name of the bundle in the store; default: that of the model.")
@click.option("-o", "--output", type=_FILE, help="The bundle's folder; default: the local store, found by name.")
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1), help="Largest batch size to test.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16"]),
    default="fp32",
    show_default=True,
    help="Precision of convolutions and matrix products. Everything else is float32.",
)
@output_name_option
@click.option(
    "--layers",
    metavar="PATH,...",
    callback=_layer_paths,
    help="Inner layers to explain as well, e.g. layer3: see `bcos-sdk layers MODEL`.",
)
@click.option("--force", is_flag=True, help="Replace an existing bundle, and its models in --triton.")
@click.option("--trt", is_flag=True, help="Also build TensorRT engines, for the GPU of this machine.")
@click.option(
    "--compute-capability", "capabilities", metavar="X.Y,...", help="Build the engines for these GPUs instead."
)
@tf32_option
@click.option("--triton", type=_FILE, metavar="DIR", help="Also write the model repository DIR: see `bcos-sdk triton`.")
@click.option("--web", type=_FILE, metavar="DIR", help="Also write a site that explains images in the browser.")
@samples_option
@signing_options("sign-")
def export(
    model: str,
    weights: Path | None,
    no_ema: bool,
    weights_key: str | None,
    random_weights: bool,
    labels: Path | None,
    classes: int | None,
    logit_bias: float | None,
    temperature: float | None,
    settings: dict[str, Any],
    registries: tuple[Path, ...],
    input_sizes: tuple[tuple[int, int], ...],
    resize: int | None,
    no_resize: bool,
    interpolation: Interpolation | None,
    channels: str | None,
    probability: Probability | None,
    expect: Path | None,
    name: str | None,
    output: Path | None,
    max_batch: int,
    precision: Literal["fp32", "fp16"],
    output_name: str | None,
    layers: tuple[str, ...],
    force: bool,
    trt: bool,
    capabilities: str | None,
    tf32: bool,
    triton: Path | None,
    web: Path | None,
    samples: Path | None,
    signer: Signer | None,
) -> None:
    """Export MODEL to ONNX graphs that predict and explain.

    MODEL is a registry name: an architecture with defaults. With --weights FILE it is your own model of this
    architecture; the number of classes is read from the file. MODEL is otherwise package.module:factory, a callable
    that returns a torch module. The graphs are compared with the module in torch. If they differ, no bundle is
    written and the exit code is 3. With --sign-key or --sign-sigstore the bundle is signed, as by `bcos-sdk sign`.

    \b
    Examples:
      bcos-sdk export resnet50
      bcos-sdk export resnet18 --weights mine.ckpt --labels labels.txt --expect expected.npz
      bcos-sdk export resnet50 --weights mine.pth --input-size 160 --resize 184 --logit-bias 0 --temperature 5
      bcos-sdk export my_package.networks:make --weights mine.safetensors --labels labels.txt --resize 256
      bcos-sdk export mymodel --registry mine.yaml
      bcos-sdk export resnet152 --trt --compute-capability 8.9
      bcos-sdk export resnet50 --sign-key private.pem
      bcos-sdk export resnet50 --triton models/
      bcos-sdk export resnet50 --web out/web
    """
    given = click.get_current_context().params
    if (capabilities or tf32) and not trt:
        raise click.UsageError(f"{'--compute-capability' if capabilities else '--tf32'} needs --trt")
    if samples is not None and web is None:
        raise click.UsageError("--samples needs --web")
    _check_combinations(model, given)
    choices = Choices(
        weights=weights,
        random_weights=random_weights,
        ema=not no_ema,
        weights_key=weights_key,
        classes=_only_one("classes", classes, settings),
        labels=labels,
        input_size=input_sizes[0] if input_sizes else None,
        resize=resize,
        no_resize=no_resize,
        interpolation=interpolation,
        probability=probability,
        channels=channels,
        settings=_merged(settings, logit_bias=logit_bias, temperature=temperature),
    )
    own = is_factory(model)
    spec = None if own else model_registry(*registries).find(model)
    choices.check(spec)  # wrong options are reported first
    known_as = name or model.replace(":", ".")
    stored = name or (known_as if precision == "fp32" else f"{known_as}-{precision}")
    target = output or store_dir() / _checked(stored)
    _check_target(target, force=force, in_store=output is None)
    if triton is not None:
        check_repository(triton, known_as, overwrite=force)
    if web is not None:
        check_site(web, force=force)
    capability_list = list(split_list(capabilities or ""))
    from bcos_sdk.exporters import export as export_module
    from bcos_sdk.exporters import read_expectation

    if trt:
        choose_flavour(capability_list, precision)  # fails now, not after the export
    expectation = None if expect is None else read_expectation(expect)
    source = from_factory(model, choices) if spec is None else from_registry(spec, choices)
    progress = print_stages()
    bias_shares: list[float] = []
    bundle = export_module(
        source.network,
        target,
        labels=source.labels,
        max_batch=max_batch,
        name=known_as,
        preprocessing=source.preprocessing,
        probability=probability or "sigmoid",
        precision=precision,
        output=output_name,
        expected=expectation,
        layers=layers,
        more_sizes=input_sizes[1:],
        force=force,
        progress=progress,
        on_bias_share=bias_shares.append,
    )
    if signer is not None:
        signer.sign(bundle)
    models = None if triton is None else write_repository(bundle, triton, overwrite=force, progress=progress)
    engines = build_engines(bundle, compute_capabilities=capability_list, tf32=tf32, progress=progress) if trt else []
    progress("done")
    agreement = None
    if expectation is not None:
        agreement = expectation.agreement(source.network, source.preprocessing, output_name)
        print_agreement(agreement, expect)
    print_source(source, agreement)
    print_bundle(bundle, bias_shares[0], engines, stored if output is None else _as_path(output))
    if signer is not None:
        print_signature(bundle)
    if models is not None:
        print_models(models)
    if web is not None:
        print_site(write_site(bundle, web, samples=samples, force=force))


def _check_combinations(model: str, given: dict[str, Any]) -> None:
    """Raise if options contradict each other, or do not apply to a factory."""
    for one, other in (
        ("weights", "random_weights"),
        ("weights_key", "random_weights"),
        ("weights_key", "no_ema"),
        ("resize", "no_resize"),
        ("interpolation", "no_resize"),
    ):
        if given[one] is not None and given[other]:
            raise click.UsageError(f"{_option(one)} and {_option(other)} cannot be used together")
    if given["no_ema"] and given["weights"] is None:
        raise click.UsageError("--no-ema needs --weights")
    if is_factory(model):
        if given["weights_key"] is not None and given["weights"] is None:
            raise click.UsageError("--weights-key needs --weights")
        used = {"--registry": given["registries"], "--set": given["settings"]}
        used |= {_option(key): given[key] for key in ("random_weights", "logit_bias", "temperature")}
        if names := [name for name in _FOR_REGISTRY_MODELS if used[name] not in (None, False, (), {})]:
            raise click.UsageError(f"{', '.join(names)} cannot be used with {model}: the factory makes the network")


def _checked(stored: str) -> str:
    """The default name in the store. Names of modules and of registry entries may have characters that it refuses."""
    try:
        return check_name(stored)
    except InputError as error:
        raise click.UsageError(f"{_in_one_line(error)} Pass a name with --name, or a folder with -o.") from error


def _as_path(output: Path) -> str:
    """The folder as an argument of a command: a single name would mean an export of the store."""
    return f"./{output}" if is_name(str(output)) else str(output)


def _option(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def _only_one(key: str, value: Any, settings: dict[str, Any]) -> Any:
    """The value of an option that `--set` can give too; it is removed from the settings."""
    if key not in settings:
        return value
    if value is not None:
        raise click.UsageError(f"{_option(key)} and --set {key}=… cannot be used together")
    found = settings.pop(key)
    if type(found) is not int or found < 1:
        raise click.UsageError(f"--set {key}={found}: must be a positive integer")
    return found


def _merged(settings: dict[str, Any], **options: float | None) -> dict[str, Any]:
    for key, value in options.items():
        if value is not None:
            if key in settings:
                raise click.UsageError(f"{_option(key)} and --set {key}=… cannot be used together")
            settings = settings | {key: value}
    return settings


def _check_target(target: Path, *, force: bool, in_store: bool) -> None:
    """Raise now, not after the weights were loaded, if the bundle may not be written there."""
    try:
        BundleWriter(target, force=force)
    except BundleExistsError as error:
        other = " Or keep both: --name NAME stores this one under another name." if in_store else ""
        raise BundleExistsError(error.message, source=error.source, hint=f"{error.hint or ''}{other}") from error
