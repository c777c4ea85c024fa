"""Connect to the model at an address."""

from __future__ import annotations

from dataclasses import dataclass

from bcos_sdk._logs import log
from bcos_sdk.backends._backend import Backend
from bcos_sdk.backends.remote._address import Address
from bcos_sdk.backends.remote._backend import backend_of
from bcos_sdk.backends.remote._grpc import GrpcTransport
from bcos_sdk.backends.remote._http import HttpTransport
from bcos_sdk.backends.remote._options import Remote
from bcos_sdk.backends.remote._served import ServedModel
from bcos_sdk.backends.remote._transport import Transport
from bcos_sdk.bundle import Bundle, Manifest, Verification, find_bundle
from bcos_sdk.errors import InputError

__all__ = ["Connected", "connect"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Connected:
    """A model behind a server, ready to be used."""

    address: str
    manifest: Manifest
    """The manifest at the size of the input that the server runs."""
    exported: Manifest
    """The manifest as it was exported."""
    max_batch: int
    """The largest images × targets of one request."""
    golden: memoryview | None
    """The file of the golden record, if it could be obtained."""
    backend: Backend


def connect(
    address: str,
    remote: Remote,
    *,
    sha256: str | None = None,
    verify: Verification | None = None,
    size: tuple[int, int] | None = None,
) -> Connected:
    """Ask the server at the address for its model. `sha256` and `verify` say whose it must be, as in `find_bundle`."""
    parsed = Address.parse(address)
    local: Bundle | None = None
    if remote.bundle is not None:
        local = find_bundle(remote.bundle, sha256=sha256, verify=verify)
    elif verify is not None:
        raise InputError(
            "a server does not send the signature of its bundle",
            source="verify",
            hint="Pass Remote(bundle=…) with the signed bundle, or its SHA-256 instead of the signer.",
        )
    if remote.token is not None and not parsed.is_encrypted and parsed.host not in _LOOPBACK:
        log.warning("the token for %s is sent without encryption: use https or grpcs", parsed)
    transport = _transport(parsed, remote)
    try:
        served = ServedModel.find(parsed, transport, local, sha256=None if local else sha256, size=size)
        manifest = served.bundle.manifest
        return Connected(
            str(parsed),
            manifest,
            served.exported,
            served.max_batch,
            served.bundle.contents.get(manifest.golden),
            backend_of(served, remote.connections),
        )
    except BaseException:
        transport.close()
        raise


def _transport(address: Address, remote: Remote) -> Transport:
    return GrpcTransport(address, remote) if address.is_grpc else HttpTransport(address, remote)
