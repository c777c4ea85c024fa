"""The `bcos-sdk` command. Results go to stdout, messages to stderr. docs/commands.md lists the exit codes."""

from bcos_sdk.cli._main import main

__all__ = ["main"]
