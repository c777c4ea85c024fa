"""The command group `bcos-sdk`, and how errors are printed."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from bcos_sdk import __version__
from bcos_sdk.cli._commands import LazyGroup
from bcos_sdk.cli._signals import exit_code_of, watch_signals
from bcos_sdk.cli._terminal import (
    PlainFormatter,
    plain_usage_error,
    print_error,
    print_message,
    print_traceback,
)
from bcos_sdk.errors import BcosError, OutputError

__all__ = ["main"]


class _Group(LazyGroup):
    """Prints every error to stderr as one message, and exits with its exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. Interrupts and failed writes to stdout end it without a traceback."""
        with watch_signals() as interrupts:
            try:
                return super().main(*args, **extra)
            except KeyboardInterrupt as interrupt:
                sys.exit(exit_code_of(interrupt))
            except OSError as error:
                sys.exit(_report_failed_write(error))
            except SystemExit as end:
                if interrupts.received is not None and end.code in (0, None):
                    sys.exit(exit_code_of(interrupts.received))
                raise
            except Exception:
                if interrupts.received is None:
                    sys.excepthook = print_traceback
                    raise
                # A library has turned the interrupt into an exception of its own.
                print_message(str(interrupts.received))
                sys.exit(exit_code_of(interrupts.received))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.ClickException as error:
            raise plain_usage_error(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            raise plain_usage_error(error) from None
        except BcosError as error:
            _print_error(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt as interrupt:  # click would report it as "Aborted!" with exit code 1
            print_message(str(interrupt) or "interrupted")
            ctx.exit(exit_code_of(interrupt))


def _print_error(error: BcosError) -> None:
    print_error(error.code, error.message, error.hint)


def _report_failed_write(error: OSError) -> int:
    """Print the error of a write that no command has handled, and return the exit code.

    Writes to files raise an `OutputError` with the name of the file. Without a name, this is stdout.
    """
    if error.filename is None:
        sys.stdout = None  # Python would try to write the rest again when it ends
    what = "to stdout" if error.filename is None else str(error.filename)
    hint = "Free some space, or write to another place."
    failure = OutputError(f"cannot write {what}: {error.strerror or error}", hint=hint)
    _print_error(failure)
    return failure.exit_code


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO if verbose else logging.WARNING)
    logging.captureWarnings(True)
