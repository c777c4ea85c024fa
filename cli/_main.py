"""The command group `bcos-sdk`, and how errors are printed."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from bcos_sdk import __version__
from bcos_sdk.cli._doctor_command import doctor
from bcos_sdk.cli._export_command import export
from bcos_sdk.cli._inspect_command import inspect
from bcos_sdk.cli._models_command import models
from bcos_sdk.cli._predict_command import predict
from bcos_sdk.cli._validate_command import validate
from bcos_sdk.cli.benchmark import benchmark
from bcos_sdk.errors import BcosError

__all__ = ["main"]


class _Group(click.Group):
    """Prints a `BcosError` to stderr and exits with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BcosError as error:
            click.echo(f"{click.style('error', fg='red')} [{error.code}]: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="bcos-sdk %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Print log messages to stderr.")
def main(verbose: bool) -> None:
    """Export and run B-cos networks. The explanation of a class adds up to its logit.

    \b
    Examples:
      bcos-sdk models                     list all models
      bcos-sdk export resnet152           write ONNX graphs that predict and explain
      bcos-sdk predict images/ --explain  classify images, and show which pixels support the class
      bcos-sdk doctor                     show installed packages and working devices
    """
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO if verbose else logging.WARNING)


for command in (export, predict, models, inspect, validate, doctor, benchmark):
    main.add_command(command)
