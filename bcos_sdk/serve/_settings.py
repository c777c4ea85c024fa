"""The settings of a server. They are plain values, so that they reach worker processes as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

__all__ = ["SETTINGS_VARIABLE", "TOKEN_VARIABLE", "ServeSettings"]

SETTINGS_VARIABLE = "BCOS_SDK_SERVE_SETTINGS"
"""The environment variable in which worker processes find the settings."""
TOKEN_VARIABLE = "BCOS_SDK_SERVE_TOKEN"  # noqa: S105 - a name
"""The environment variable with the bearer token. It is in no file and no command line."""


class ServeSettings(BaseModel):
    """What to serve, where, and within which limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    """The folder of a bundle, or the name of an export."""
    name: str | None = None
    """The name in addresses; by default that of the manifest."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    address: str | None = None
    """Where callers reach the server, for the log: set when the port is bound."""
    workers: PositiveInt = 1
    client: dict[str, Any] = {}
    """Further arguments of `Client`: device, threads, max_batch, sha256, ..."""
    max_body: PositiveInt = 16 << 20
    """Largest body of a request in bytes. A larger one is answered with 413."""
    body_seconds: float = Field(default=20.0, gt=0)
    """How long a body may take to arrive. A slower one is answered with 408."""
    queue: PositiveInt = 64
    """Most requests with a body in the server at once. Further ones are answered with 503."""
    timeout: float = Field(default=30.0, gt=0)
    """Seconds from the arrival of a body to its answer. After them, the answer is 504."""
    drain_seconds: PositiveInt = 60
    """How long accepted requests may take after SIGTERM."""
    max_pixels: PositiveInt | None = None
    """Largest width × height of an image; None: that of `Limits`."""
    samples: str | None = None
    """A folder with photographs for the page."""
    log_format: Literal["text", "json"] = "text"
