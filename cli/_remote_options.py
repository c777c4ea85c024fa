"""The options for a model behind a server, and how commands read a bearer token."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from bcos_sdk.backends import Remote, is_address
from bcos_sdk.errors import InputError

__all__ = ["REMOTE_TOKEN_VARIABLE", "RemoteOptions", "read_token", "remote_options"]

REMOTE_TOKEN_VARIABLE = "BCOS_SDK_REMOTE_TOKEN"  # noqa: S105 - a name
_LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class RemoteOptions:
    """What was given for a model behind a server."""

    token_file: Path | None
    bundle: str | None

    def arguments(self, model: str | Path) -> dict[str, Any]:
        """The argument `remote` of `Client` for this model."""
        if is_address(model):
            token = read_token(self.token_file, REMOTE_TOKEN_VARIABLE)
            return {"remote": Remote(token=token, bundle=self.bundle)}
        if self.token_file is not None or self.bundle is not None:
            raise click.UsageError("--token-file and --bundle need a model with an address: --model http://...")
        return {}


def remote_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `remote`."""

    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"For a model behind a server: file with its bearer token; also {REMOTE_TOKEN_VARIABLE}.",
    )
    @click.option("--bundle", metavar="DIR", help="For a model behind a server: the bundle that it must serve.")
    @wraps(command)
    def with_remote(*arguments: Any, token_file: Path | None, bundle: str | None, **options: Any) -> None:
        command(*arguments, remote=RemoteOptions(token_file, bundle), **options)

    return with_remote


def read_token(file: Path | None, variable: str) -> str | None:
    """The bearer token in the file, else in the environment variable; None if there is none."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        token = file.read_bytes()[: _LONGEST_TOKEN + 1].decode("ascii").strip()
    except OSError as error:
        raise InputError(
            f"cannot read the token from {file}: {error.strerror or error}",
            source=str(file),
            hint=f"Name a file that you can read, or set {variable}.",
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"the token in {file} is not ASCII", source=str(file), hint="Write one line of ASCII characters."
        ) from None
    if not token or len(token) > _LONGEST_TOKEN or not token.isprintable():
        raise InputError(
            f"{file} has no token", source=str(file), hint=f"Write one line of 1 to {_LONGEST_TOKEN} ASCII characters."
        )
    return token
