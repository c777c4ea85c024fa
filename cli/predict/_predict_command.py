"""`bcos-sdk predict`: classify images and explain the classes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bcos_sdk._extras import require
from bcos_sdk.cli._common import (
    device_option,
    parse_size,
    split_list,
    tf32_option,
    threads_option,
    trust_engines_option,
)
from bcos_sdk.cli._remote_options import RemoteOptions, remote_options
from bcos_sdk.cli._terminal import count_of, print_message
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.cli.predict._choices import choose_model, target_of
from bcos_sdk.cli.predict._drawings import PICTURES, Artist
from bcos_sdk.cli.predict._image_files import find_images
from bcos_sdk.cli.predict._output import Output
from bcos_sdk.cli.predict._output_options import OutputOptions, Start
from bcos_sdk.cli.predict._ray_command import Asked, predict_on_ray
from bcos_sdk.cli.predict._ray_options import FolderOrUrl, RayOptions, ray_options
from bcos_sdk.cli.predict._run import PredictRun
from bcos_sdk.images import DecodingPool
from bcos_sdk.limits import MOST_PIXELS, Limits
from bcos_sdk.ray import is_url
from bcos_sdk.results import Work

__all__ = ["predict"]


_DEFAULT_OUT = Path("bcos-out")
_FORMATS = click.Choice(["text", "jsonl", "csv", "parquet"])


def _kinds(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    kinds = split_list(text)
    if unknown := [kind for kind in kinds if kind not in PICTURES]:
        raise click.BadParameter(f"unknown kind {', '.join(unknown)}: choose from {', '.join(PICTURES)}")
    return kinds


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("--explain", is_flag=True, help="Explain the class; implied by --target, --save and --report.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="What to explain: a label, an index, 'mean' or 'A vs B'; can be repeated.",
)
@click.option(
    "--save", default="", metavar="KINDS", callback=_kinds, help=f"Write these for each image: {','.join(PICTURES)}."
)
@click.option("--report", is_flag=True, help="Write OUT/report.html: one page with all images and explanations.")
@click.option(
    "--model",
    help="A folder (./NAME), a stored export, or an address: http://HOST:8000/NAME; default: BCOS_SDK_MODEL, the last "
    "export, or the built-in model.",
)
@click.option(
    "--top-k", type=click.IntRange(1), help="Number of classes to list (default 5) or to explain (default 1)."
)
@click.option("--out", type=FolderOrUrl(), help="The output folder, or with --engine ray a URL; default: bcos-out.")
@click.option(
    "--format",
    "form",
    type=_FORMATS,
    default="text",
    show_default=True,
    help="Format of the results on stdout. With an output folder, parquet is written to OUT/results.parquet instead.",
)
@click.option("--resume", is_flag=True, help="Continue the run recorded in OUT; failed images are tried again.")
@click.option("--overwrite", is_flag=True, help="Replace the run recorded in OUT.")
@click.option(
    "--untrusted", is_flag=True, help="The images are from strangers: decode them in child processes that can be ended."
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1, MOST_PIXELS),
    default=Limits().pixels,
    show_default=True,
    help="Largest width x height of an image.",
)
@click.option("-0", "--null", is_flag=True, help="Names in lists (@FILE and -) are separated by NUL, not by line ends.")
@device_option
@threads_option
@click.option(
    "--input-size",
    callback=parse_size,
    metavar="H[xW]",
    help="One of the sizes of the model; default: the first.",
)
@click.option("--max-batch", type=click.IntRange(1), help="Largest images x targets; default: that of the export.")
@click.option(
    "--fixed-batch",
    is_flag=True,
    help="Fill every batch, so that the last bits of a result do not depend on other images, as --engine ray does.",
)
@tf32_option
@trust_engines_option
@trust_options
@remote_options
@ray_options
@click.pass_context
def predict(
    ctx: click.Context,
    sources: tuple[str, ...],
    explain: bool,
    targets: tuple[str, ...],
    save: tuple[str, ...],
    report: bool,
    model: str | None,
    top_k: int | None,
    out: Path | str | None,
    form: str,
    resume: bool,
    overwrite: bool,
    untrusted: bool,
    max_pixels: int,
    null: bool,
    device: str,
    threads: int | None,
    input_size: tuple[int, int] | None,
    max_batch: int | None,
    fixed_batch: bool,
    tf32: bool,
    trust_engines: bool,
    trust: Trust,
    remote: RemoteOptions,
    ray: RayOptions,
) -> None:
    """Classify the images SRC, and explain the classes.

    SRC is an image, a folder (searched recursively), a quoted pattern, @FILE with one path per line, or - for such a
    list on stdin. Results go to stdout, files to OUT. An image that fails is reported and does not stop the run: the
    exit code is 5, or 4 if an explanation is incomplete (does not add up to the logit).

    \b
    Examples:
      bcos-sdk predict cat.jpg
      bcos-sdk predict images/ --explain --report
      bcos-sdk predict images/ --target 'cat vs dog' --save overlay,npz --out why
      find . -name '*.png' -print0 | bcos-sdk predict -0 - --format jsonl
      bcos-sdk predict s3://bucket/images/ --explain --engine ray --out s3://bucket/results/ --resume
    """
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be used together")
    if ray.chosen:
        refused = {"--report": report, "--format": form not in ("text", "parquet"), "--save npz": "npz" in save}
        if given := [name for name, wanted in refused.items() if wanted]:
            raise click.UsageError(
                f"{given[0]} cannot be used with --engine ray, which writes Parquet: see docs/ray.md"
            )
        arguments = {
            "device": device,
            "threads": threads,
            "max_batch": max_batch,
            "tf32": tf32,
            "trust_engines": trust_engines,
            "limits": Limits(pixels=max_pixels, decoding="isolated" if untrusted else "in_process"),
            "input_size": input_size,
        }
        chosen, reason = choose_model(model)
        asked = Asked(sources, null, out or _DEFAULT_OUT, str(chosen), reason, explain, targets, top_k, save)
        ctx.exit(predict_on_ray(asked, arguments, trust, ray, _start(resume, overwrite).name))
    if urls := [text for text in (*sources, out) if isinstance(text, str) and is_url(text)]:
        raise click.UsageError(f"{urls[0]} is a URL: add --engine ray")
    assert not isinstance(out, str)
    if out is None and (save or report or resume or overwrite):
        out = _DEFAULT_OUT
    if form == "parquet":
        _check_parquet(out)
    found = find_images(sources, null=null, out=out)
    options = OutputOptions(out or _DEFAULT_OUT, save, report, form == "parquet", _start(resume, overwrite))
    if out is not None:
        options.check_start()
    from bcos_sdk import Client

    chosen, reason = choose_model(model)
    explain = explain or bool(targets or save or report)
    least = 2 if report and not targets else 1  # the report shows the second class
    top_k = max(top_k or (1 if explain else 5), least)
    limits = Limits(pixels=max_pixels, decoding="isolated" if untrusted else "in_process")
    opened = Client(
        chosen,
        device=device,
        threads=threads,
        max_batch=max_batch,
        fixed_batch=fixed_batch,
        tf32=tf32,
        trust_engines=trust_engines,
        limits=limits,
        input_size=input_size,
        **trust.arguments,
        **remote.arguments(chosen),
    )
    with opened as client, DecodingPool(1) as pool:
        output = None
        if out is not None:
            work = Work(
                model=client.manifest.digest,
                explain=explain,
                targets=targets,
                top_k=top_k,
                tf32=tf32,
                outputs=options.kinds,
            )
            output = Output(options, Artist(client.manifest, ranked=not targets, limits=limits, pool=pool), work)
        run = PredictRun(
            client=client,
            explain=explain,
            targets=tuple(target_of(text, client.labels) for text in targets),
            top_k=top_k,
            weights=options.weights_wanted,
            form=form,
            output=output,
        )
        run.check_arguments()
        images = count_of(len(found.images), "image")
        print_message(f"{client.manifest.model.name} ({reason}) on {client.device}, {images}")
        if skipped := found.skipped_text():
            print_message(skipped)
        run.process(found)
    ctx.exit(run.exit_code())


def _check_parquet(out: Path | None) -> None:
    """Raise an error if Parquet cannot be written, before the images are processed."""
    require("pyarrow", purpose="Writing Parquet")
    if out is None and sys.stdout.isatty():
        raise click.UsageError(
            "Parquet is binary and cannot be shown on a terminal: add `> results.parquet`, or --out DIR"
        )


def _start(resume: bool, overwrite: bool) -> Start:
    return Start.RESUME if resume else Start.OVERWRITE if overwrite else Start.NEW
