"""The options that say whose bundle a command accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from bcos_sdk.bundle import Certificates, PublicKey, Sigstore, Verification, parse_digest
from bcos_sdk.errors import InputError

__all__ = ["Trust", "trust_options"]

_FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class Trust:
    """The arguments `sha256` and `verify` of `Client` and `find_bundle`."""

    sha256: str | None = None
    verify: Verification | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "verify": self.verify}


def trust_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `trust`."""

    @click.option("--sha256", callback=_digest, metavar="DIGEST", help="The bundle's digest, as `inspect` shows it.")
    @click.option("--public-key", type=_FILE, metavar="FILE", help="The public key of who must have signed the bundle.")
    @click.option(
        "--certificate-chain",
        type=_FILE,
        multiple=True,
        metavar="FILE",
        help="The root that the signer's certificate must lead to.",
    )
    @click.option("--identity", metavar="NAME", help="Who must have signed: the name in the certificate.")
    @click.option("--issuer", metavar="URL", help="Who confirmed the identity, for signatures of Sigstore.")
    @click.option("--trust-config", type=_FILE, metavar="FILE", help="Roots of a Sigstore of your own, or offline.")
    @wraps(command)
    def with_trust(
        *arguments: Any,
        sha256: str | None,
        public_key: Path | None,
        certificate_chain: tuple[Path, ...],
        identity: str | None,
        issuer: str | None,
        trust_config: Path | None,
        **options: Any,
    ) -> None:
        verify = _verification(public_key, certificate_chain, identity, issuer, trust_config)
        command(*arguments, trust=Trust(sha256, verify), **options)

    return with_trust


def _digest(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else parse_digest(text)
    except InputError as error:
        raise click.BadParameter(str(error)) from error


def _verification(
    public_key: Path | None,
    certificate_chain: tuple[Path, ...],
    identity: str | None,
    issuer: str | None,
    trust_config: Path | None,
) -> Verification | None:
    methods = {"--public-key": public_key, "--certificate-chain": certificate_chain, "--issuer": issuer}
    given = [name for name, value in methods.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} cannot be used together")
    if trust_config is not None and not issuer:
        raise click.UsageError("--trust-config needs --issuer")
    if public_key is not None:
        if identity is not None:
            raise click.UsageError("--public-key and --identity cannot be used together: a key has no name")
        return PublicKey(public_key)
    if certificate_chain:
        return Certificates(certificate_chain, identity)
    if issuer:
        if not identity:
            raise click.UsageError("--issuer needs --identity")
        return Sigstore(identity, issuer, trust_config)
    if identity is not None:
        raise click.UsageError("--identity needs --issuer (Sigstore) or --certificate-chain")
    return None
