"""The address of a model behind a server: "http://host:8000/NAME", "https://…" or "grpc://host:8001/NAME"."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from bcos_sdk.errors import InputError, shown

__all__ = ["Address", "is_address"]

_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}
_ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
_FORM = "Write http://host:8000/NAME, https://host/NAME, grpc://host:8001/NAME or grpcs://host:8001/NAME."


def is_address(model: str | os.PathLike[str]) -> bool:
    """Whether a model is given by an address, not by a name or a folder."""
    return isinstance(model, str) and _ADDRESS.match(model) is not None


@dataclass(frozen=True)
class Address:
    """Where a server is, and which of its models is meant."""

    scheme: str
    host: str
    port: int
    prefix: str
    """The path before that of the protocol, as proxies add it: "/triton", or empty."""
    model: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """The parts of an address; an `InputError` if it is none."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise _wrong(text, str(error)) from None
        if parts.scheme not in _PORTS:
            raise _wrong(text, f"there is no scheme {shown(parts.scheme)}")
        if not parts.hostname or port == 0 or any(char.isspace() for char in text):
            raise _wrong(text, "it has no host, or a host or port that cannot exist")
        if parts.username is not None or parts.password is not None:
            raise _wrong(text, "it has a user", " Pass Remote(token=…) for a bearer token.")
        if parts.query or parts.fragment:
            raise _wrong(text, "it has a query or a fragment")
        *prefix, model = parts.path.rstrip("/").split("/")
        if not model:
            raise _wrong(text, "it has no name of a model")
        if parts.scheme.startswith("grpc") and any(prefix):
            raise _wrong(text, "gRPC has no paths before the name of the model")
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], "/".join(prefix), unquote(model))

    @property
    def is_grpc(self) -> bool:
        return self.scheme.startswith("grpc")

    @property
    def is_encrypted(self) -> bool:
        return self.scheme.endswith("s")

    @property
    def server(self) -> str:
        """Host and port, as they are written in addresses."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def path(self, model: str, *parts: str) -> str:
        """The path of a model of the server in the protocol over HTTP."""
        return "/".join([f"{self.prefix}/v2/models/{quote(model, safe='')}", *parts])

    def __str__(self) -> str:
        return f"{self.scheme}://{self.server}{self.prefix}/{quote(self.model, safe='')}"


def _wrong(text: str, reason: str, more: str = "") -> InputError:
    without_user = re.sub(r"//[^/@]*@", "//…@", text)
    return InputError(f"{shown(without_user)} is no address of a model: {reason}", source="model", hint=_FORM + more)
