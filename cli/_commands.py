"""The subcommands of `bcos-sdk`. A command is imported when it runs, so that the others do not delay it."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click

__all__ = ["COMMANDS", "LazyGroup"]


class Entry(NamedTuple):
    """Where a command is defined, below `bcos_sdk.cli`, and its line in the list of commands."""

    module: str
    summary: str


COMMANDS = {
    "benchmark": Entry("benchmark", "Measure speed and memory of models."),
    "concepts": Entry("concepts", "Draw which features of inner layers speak for a class."),
    "doctor": Entry("_doctor_command", "Show packages, the GPU driver and devices that work."),
    "evaluate": Entry("evaluate", "Measure a model and its explanations on labelled images."),
    "export": Entry("export", "Write the graphs of a model, which predict and explain."),
    "inspect": Entry("_inspect_command", "Show what a bundle or an ONNX graph contains."),
    "layers": Entry("_layers_command", "List the inner layers that an export can explain."),
    "models": Entry("_models_command", "List the models of the registry and your exports."),
    "predict": Entry("predict", "Classify images, and explain the classes."),
    "serve": Entry("_serve_command", "Serve a model over HTTP, with a page for the browser."),
    "sign": Entry("_sign_command", "Sign a bundle, so that others know who made it."),
    "triton": Entry("_triton_command", "Write a model repository for NVIDIA Triton."),
    "validate": Entry("_validate_command", "Check that a bundle is complete and works here."),
    "web": Entry("_web_command", "Write a site that explains images in the browser."),
}


class LazyGroup(click.Group):
    """A group with the commands of `COMMANDS`, besides those that are added to it.

    Each is the function that has its name.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, sorted."""
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"bcos_sdk.cli.{COMMANDS[cmd_name].module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in sorted(COMMANDS.items())])
