"""`bcos-sdk serve`: one model behind HTTP, on one machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import click

from bcos_sdk._extras import require
from bcos_sdk._open_inference import check_model_name
from bcos_sdk.bundle import DEFAULT_MODEL, find_bundle
from bcos_sdk.cli._common import device_option, tf32_option, threads_option, trust_engines_option
from bcos_sdk.cli._remote_options import read_token
from bcos_sdk.cli._terminal import print_lines, print_message
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.contract import EXPLAIN_SUFFIX
from bcos_sdk.limits import MOST_PIXELS, Limits

__all__ = ["serve"]

_TOKEN_VARIABLE = "BCOS_SDK_SERVE_TOKEN"  # noqa: S105 - a name
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--name", metavar="NAME", help="Name of the model in addresses; default: that of the bundle.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 chooses a free port.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of processes.")
@click.option("--max-body", type=click.IntRange(1), default=16, show_default=True, metavar="MIB", help="Else 413.")
@click.option("--body-timeout", type=click.FloatRange(0.1), default=20.0, show_default=True, help="Else 408.")
@click.option(
    "--queue",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Most requests at once in a process; else 503.",
)
@click.option("--timeout", type=click.FloatRange(0.01), default=30.0, show_default=True, help="Of a request; else 504.")
@click.option(
    "--drain", type=click.IntRange(1), default=60, show_default=True, help="Seconds to finish requests after SIGTERM."
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1, MOST_PIXELS),
    default=Limits().pixels,
    show_default=True,
    help="Largest width x height of an image.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the bearer token that callers must send; also {_TOKEN_VARIABLE}.",
)
@click.option(
    "--samples", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Photographs for the page."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@device_option
@threads_option
@click.option("--max-batch", type=click.IntRange(1), help="Largest images x targets; default: that of the export.")
@tf32_option
@trust_engines_option
@trust_options
def serve(
    model: str,
    name: str | None,
    host: str,
    port: int,
    workers: int,
    max_body: int,
    body_timeout: float,
    queue: int,
    timeout: float,
    drain: int,
    max_pixels: int,
    token_file: Path | None,
    samples: Path | None,
    log_format: str,
    device: str,
    threads: int | None,
    max_batch: int | None,
    tf32: bool,
    trust_engines: bool,
    trust: Trust,
) -> None:
    """Serve MODEL over HTTP on this machine; by default the built-in model.

    A page for people is at /, a list of all routes at /docs. Programs use /predict and /explain, the Open Inference
    Protocol (/v2) or that of KServe (/v1). SIGTERM finishes what was accepted. TLS and users belong
    to a proxy in front.

    \b
    Examples:
      bcos-sdk serve
      bcos-sdk serve out/resnet50 --port 9000 --log-format json
      curl --data-binary @cat.jpg localhost:8000/explain
    """
    require("fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart", purpose="`bcos-sdk serve`")
    bundle = find_bundle(model, **trust.arguments)  # a wrong model is an error of the command, not of a worker
    check_model_name(name or bundle.manifest.model.name, server="this server", reserved=EXPLAIN_SUFFIX)
    token = read_token(token_file, _TOKEN_VARIABLE)
    from bcos_sdk.serve import ServeSettings, run_server

    settings = ServeSettings(
        model=str(bundle.path.resolve()),  # a path without a folder would mean a name in the store
        name=name,
        host=host,
        port=port,
        workers=workers,
        client={
            "device": device,
            "threads": threads,
            "max_batch": max_batch,
            "tf32": tf32,
            "trust_engines": trust_engines,
            # Every process opens what was verified above: the manifest has the hashes of all files.
            "sha256": hashlib.sha256((bundle.path / "manifest.json").read_bytes()).hexdigest(),
        },
        max_body=max_body << 20,
        body_seconds=body_timeout,
        queue=queue,
        timeout=timeout,
        drain_seconds=drain,
        max_pixels=max_pixels,
        samples=None if samples is None else str(samples.resolve()),
        log_format="json" if log_format == "json" else "text",
    )
    if token is not None:
        os.environ[_TOKEN_VARIABLE] = token
    if host not in _LOOPBACK and token is None:
        print_message("everyone who reaches this address can use the server: there is no token", label="note:")

    def announce(address: str) -> None:
        print_lines(f"{name or bundle.manifest.model.name} at {address}")

    run_server(settings, announce)
