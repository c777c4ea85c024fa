"""The `bcos-sdk` command: results on stdout, everything else on stderr, the exit code is the verdict."""

from bcos_sdk.cli._main import main

__all__ = ["main"]
