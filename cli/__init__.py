"""The `bcos-sdk` command. Results go to stdout, messages to stderr, and the exit code tells the outcome."""

from bcos_sdk.cli._main import main

__all__ = ["main"]
