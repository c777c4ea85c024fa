"""The command group: its options, its commands, and how an error reaches the user."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from bcos_sdk import __version__
from bcos_sdk.cli._doctor import doctor
from bcos_sdk.cli._export import export
from bcos_sdk.cli._inspect import inspect
from bcos_sdk.cli._models import models
from bcos_sdk.cli._predict import predict
from bcos_sdk.cli._validate import validate
from bcos_sdk.cli.benchmark._command import benchmark
from bcos_sdk.errors import BcosError

__all__ = ["main"]


class _Group(click.Group):
    """Turns a `BcosError` into one message on stderr and its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BcosError as error:
            click.echo(f"{click.style('error', fg='red')} [{error.code}]: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="bcos-sdk %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Say what is being done, on stderr.")
def main(verbose: bool) -> None:
    """Export and run B-cos networks, with explanations that add up to the logit.

    \b
    Examples:
      bcos-sdk models                    every model, as a table
      bcos-sdk export resnet152          ONNX graphs that predict and explain
      bcos-sdk predict images/ --explain what is in the images, and which pixels say so
      bcos-sdk doctor                    what is installed, which devices work
    """
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO if verbose else logging.WARNING)


for command in (export, predict, models, inspect, validate, doctor, benchmark):
    main.add_command(command)
