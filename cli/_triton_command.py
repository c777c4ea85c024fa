"""`bcos-sdk triton`: write a bundle as two models of a model repository of Triton."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from bcos_sdk.bundle import find_bundle
from bcos_sdk.cli._common import parse_size, print_stages, tf32_option
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.limits import MOST_THREADS
from bcos_sdk.triton import Flavour, InstanceDevice, RepositorySettings, ServedModel, Tensor, write_repository

__all__ = ["print_models", "triton"]

_DEFAULTS = RepositorySettings()


@click.command()
@click.argument("model", metavar="BUNDLE")
@click.argument("repository", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the model that predicts; default: that of the bundle.")
@click.option(
    "--flavour",
    type=click.Choice(get_args(Flavour)),
    default=_DEFAULTS.flavour,
    show_default=True,
    help="Backend of Triton. tensorrt builds plans, on the machine with the GPU; python is for tests.",
)
@click.option(
    "--device",
    type=click.Choice(get_args(InstanceDevice)),
    default=_DEFAULTS.device,
    show_default=True,
    help="Where the models run; auto: on every GPU, on the CPU if there is none.",
)
@click.option("--input-size", callback=parse_size, metavar="H[xW]", help="For a bundle with several sizes.")
@click.option("--pixels", is_flag=True, help="Take 8-bit pixels, an eighth of the bytes; the graph encodes them.")
@click.option("--weights", is_flag=True, help="Let NAME_explain return W(x) as well.")
@click.option("--max-batch", type=click.IntRange(1), help="Largest batch; default: that of the export.")
@click.option(
    "--max-targets", type=click.IntRange(1), help="Most targets per image; default: the export's largest batch."
)
@click.option(
    "--instances", type=click.IntRange(1, 64), default=_DEFAULTS.instances, show_default=True, help="Copies of a model."
)
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads per instance; default: all cores.")
@click.option(
    "--queue",
    type=click.IntRange(1),
    default=_DEFAULTS.queue,
    show_default=True,
    help="Most requests that wait; Triton refuses further ones.",
)
@click.option(
    "--queue-delay",
    type=click.IntRange(0, 1_000_000),
    default=_DEFAULTS.queue_delay,
    show_default=True,
    metavar="MICROSECONDS",
    help="How long a request waits for others to share its batch.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.001, 3600),
    default=_DEFAULTS.timeout,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may wait in the queue.",
)
@tf32_option
@click.option("--overwrite", is_flag=True, help="Replace these two models if bcos-sdk wrote them.")
@trust_options
def triton(
    model: str,
    repository: Path,
    name: str | None,
    flavour: Flavour,
    device: InstanceDevice,
    input_size: tuple[int, int] | None,
    pixels: bool,
    weights: bool,
    max_batch: int | None,
    max_targets: int | None,
    instances: int,
    threads: int | None,
    queue: int,
    queue_delay: int,
    timeout: float,
    tf32: bool,
    overwrite: bool,
    trust: Trust,
) -> None:
    """Write BUNDLE into the model repository DIR of NVIDIA's Triton Inference Server.

    BUNDLE is a bundle's folder, or the name of an export. DIR gets the model NAME, which predicts, and the model
    NAME_explain, which explains. DIR may hold other models, and need not exist. Either both models are written or none.

    \b
    Examples:
      bcos-sdk triton resnet50 models/
      bcos-sdk triton out/resnet50 models/ --name birds --pixels --weights --overwrite
      bcos-sdk triton resnet50 models/ --flavour tensorrt
      tritonserver --model-repository=models
    """
    bundle = find_bundle(model, **trust.arguments)
    settings = RepositorySettings(
        name=name,
        flavour=flavour,
        device=device,
        input_size=input_size,
        pixels=pixels,
        weights=weights,
        max_batch=max_batch,
        max_targets=max_targets,
        instances=instances,
        threads=threads,
        queue=queue,
        queue_delay=queue_delay,
        timeout=timeout,
        tf32=tf32,
    )
    print_models(write_repository(bundle, repository, settings, overwrite=overwrite, progress=print_stages()))


def print_models(models: Sequence[ServedModel]) -> None:
    """Print the folders that were written with their tensors, and how to start the server."""
    for one in models:
        print_lines(str(one.path), f"  in   {_listed(one.inputs)}", f"  out  {_listed(one.outputs)}")
    if (version := models[0].tensorrt) is not None:
        print_lines("", f"The plans were built with TensorRT {version} but not run. The server must have this version.")
    print_lines("", "Next:", f"  tritonserver --model-repository={models[0].path.parent}")


def _listed(tensors: Sequence[Tensor]) -> str:
    return ", ".join(
        f"{one.name} {one.data_type.removeprefix('TYPE_')} [{', '.join(map(str, (-1, *one.dims)))}]" for one in tensors
    )
