"""`bcos-sdk sign`, and the options of `export` that sign the new bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from bcos_sdk.bundle import Bundle, Signer, SignWithKey, SignWithSigstore, find_bundle, is_encrypted
from bcos_sdk.cli._terminal import ask_password, print_lines

__all__ = ["print_signature", "sign", "signing_options"]

PASSWORD_VARIABLE = "BCOS_SDK_SIGN_PASSWORD"  # noqa: S105 - the name of the variable
_FILE = click.Path(path_type=Path, dir_okay=False)


def signing_options(prefix: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of signing to a command, each name after a prefix. The command gets them as `signer`."""

    def option(name: str) -> str:
        return f"--{prefix}{name}"

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(option("key"), "sign_key", type=_FILE, metavar="FILE", help="The private key to sign with.")
        @click.option(option("certificate"), "sign_certificate", type=_FILE, metavar="FILE", help="Its certificate.")
        @click.option(
            option("chain"),
            "sign_chain",
            type=_FILE,
            multiple=True,
            metavar="FILE",
            help="Certificates between it and the root.",
        )
        @click.option(option("sigstore"), "sign_sigstore", is_flag=True, help="Sign with your identity, in public.")
        @click.option(
            option("trust-config"), "sign_trust_config", type=_FILE, metavar="FILE", help="A Sigstore of your own."
        )
        @wraps(command)
        def with_signer(
            *arguments: Any,
            sign_key: Path | None,
            sign_certificate: Path | None,
            sign_chain: tuple[Path, ...],
            sign_sigstore: bool,
            sign_trust_config: Path | None,
            **options: Any,
        ) -> None:
            if sign_sigstore and sign_key is not None:
                raise click.UsageError(f"{option('key')} and {option('sigstore')} cannot be used together")
            if sign_key is None and (sign_certificate is not None or sign_chain):
                given = "certificate" if sign_certificate is not None else "chain"
                raise click.UsageError(f"{option(given)} needs {option('key')}")
            if sign_certificate is None and sign_chain:
                raise click.UsageError(f"{option('chain')} needs {option('certificate')}")
            if sign_trust_config is not None and not sign_sigstore:
                raise click.UsageError(f"{option('trust-config')} needs {option('sigstore')}")
            signer = None
            if sign_sigstore:
                signer = Signer(SignWithSigstore(sign_trust_config))
            elif sign_key is not None:
                password = _password(sign_key) if sign_certificate is None else None
                signer = Signer(SignWithKey(sign_key, password, sign_certificate, sign_chain))
            command(*arguments, signer=signer, **options)

        return with_signer

    return decorate


@click.command()
@click.argument("model", metavar="DIR|NAME")
@signing_options()
@click.option("--force", is_flag=True, help="Replace an existing signature.")
def sign(model: str, signer: Signer | None, force: bool) -> None:
    """Sign the bundle DIR, or the stored export NAME, so that others can check who made it.

    The signature covers the manifest and all files that it lists, and is written to model.sig in the bundle. TensorRT
    engines are not signed. The password of an encrypted key is asked for, or taken from BCOS_SDK_SIGN_PASSWORD.
    Sigstore publishes your e-mail address or workflow in a log that cannot be changed.

    \b
    Examples:
      bcos-sdk sign out/resnet50 --key private.pem
      bcos-sdk sign resnet50 --key private.pem --certificate mine.pem --chain intermediate.pem
      bcos-sdk sign resnet50 --sigstore
    """
    if signer is None:
        raise click.UsageError("pass --key FILE or --sigstore")
    bundle = find_bundle(model)
    signer.sign(bundle, force=force)
    print_signature(bundle)


def print_signature(bundle: Bundle) -> None:
    print_lines(f"signed {bundle.path}", f"sha256 {bundle.sha256}")


def _password(private_key: Path) -> str | None:
    if not is_encrypted(private_key):
        return None
    given = os.environ.get(PASSWORD_VARIABLE)
    return given if given is not None else ask_password(f"Password of {private_key}")
