"""Helpers that several commands share: options, parsers of option values, text tables, stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import click

from bcos_sdk._plain_text import plain
from bcos_sdk.backends import device_names
from bcos_sdk.cli._terminal import print_message
from bcos_sdk.contract import CHANNEL_COUNTS, MOST_CHANNELS
from bcos_sdk.limits import MOST_THREADS

__all__ = [
    "channels_option",
    "columns",
    "device_option",
    "json_option",
    "output_name_option",
    "pairs",
    "parse_size",
    "parse_sizes",
    "print_stages",
    "registry_option",
    "split_list",
    "tf32_option",
    "threads_option",
    "trust_engines_option",
]

_MOST_DIGITS = 9


def _parse_channels(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    number = int(text) if text is not None and text.isdecimal() and len(text) <= 5 else None
    if text is None or text in CHANNEL_COUNTS or (number is not None and 1 <= number <= MOST_CHANNELS):
        return text
    known = ", ".join(CHANNEL_COUNTS)
    raise click.BadParameter(f"{text!r} is neither one of {known} nor a number from 1 to {MOST_CHANNELS}")


device_option = click.option("--device", default="auto", show_default=True, help=f"{', '.join(device_names())}, ...")
threads_option = click.option(
    "--threads", type=click.IntRange(1, MOST_THREADS), help="Number of CPU threads; default: one per core."
)
tf32_option = click.option(
    "--tf32", is_flag=True, help="Let the GPU round the factors of products to TF32 (11 bits): faster, less exact."
)
trust_engines_option = click.option(
    "--trust-engines", is_flag=True, help="Run TensorRT engines in the bundle that you have not built. They are code."
)
registry_option = click.option(
    "--registry",
    "registries",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A registry file of your own, which joins the built-in one; also BCOS_SDK_REGISTRY.",
)
channels_option = click.option(
    "--channels",
    metavar="KIND|N",
    callback=_parse_channels,
    help="rgb+complement (default), rgb, grey, grey+complement, or N for arrays with N channels instead of images.",
)
output_name_option = click.option(
    "--output-name", metavar="NAME", help="Which of several results of the network are the logits."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def split_list(text: str) -> tuple[str, ...]:
    """Split text at commas. Empty and repeated parts are left out."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Parse "224" or "224x320" to height and width."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and len(side) <= _MOST_DIGITS and int(side) for side in sides):
        raise click.BadParameter(f"{text!r} is not a size: write 224, or 224x320 for height x width")
    return int(sides[0]), int(sides[-1])


def parse_sizes(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[tuple[int, int], ...]:
    """Parse "224,448x320" to heights and widths."""
    sizes = [parse_size(ctx, param, part.strip()) for part in (text or "").split(",")] if text is not None else []
    return tuple(size for size in sizes if size is not None)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> list[str]:
    """The lines of a table: one per row below a header, columns aligned. Those with the titles `right` end flush."""
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    adjust = [str.rjust if title in right else str.ljust for title in header]
    lines = (
        [fit(cell, width) for fit, cell, width in zip(adjust, line, widths, strict=True)] for line in (header, *rows)
    )
    return ["  ".join(line).rstrip() for line in lines]


def pairs(rows: Sequence[tuple[str, str]]) -> list[str]:
    """The lines of names and values: one per pair, values aligned."""
    shown = [(plain(name), plain(value)) for name, value in rows]
    width = max(len(name) for name, _ in shown)
    return [f"{name:<{width}}  {value}".rstrip() for name, value in shown]


def print_stages() -> Callable[[str], None]:
    """Return a function that prints a stage to stderr with the seconds since this call."""
    began = time.monotonic()

    def progress(stage: str) -> None:
        print_message(f"[{time.monotonic() - began:6.1f} s] {stage}")

    return progress
