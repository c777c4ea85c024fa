"""Where the model of a client can be: in this process, or behind a server of the Open Inference Protocol.

A test that takes a client promises the same in all places. Servers of Triton need `make test-triton`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcos_sdk import Client, Remote
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import EXPLAIN_INPUTS, EXPLAIN_OUTPUTS, LOGITS, WEIGHTS, Arrays, Layout, Port
from support.bundles import cpu_backend, small_bundle

__all__ = ["PLACES", "graph_runner", "grpc_serving", "ports_of", "small_client"]

PLACES = ("in process", "HTTP", "gRPC", "Triton over HTTP", "Triton over gRPC")


@contextmanager
def small_client(place: str, folder: Path, **options: Any) -> Iterator[Client]:
    """A client of the small bundle, which is at this place. `folder` does not exist yet."""
    bundle = small_bundle()
    with _opened(place, folder, bundle) as open_client, open_client(**options) as client:
        yield client


@contextmanager
def _opened(place: str, folder: Path, bundle: Bundle) -> Iterator[Callable[..., Client]]:
    if place == "in process":
        yield partial(Client, bundle.path, device="cpu")
    elif place == "HTTP":
        pytest.importorskip("urllib3")
        import support.needs_serve  # noqa: F401
        from support.serving import serving

        with serving(lambda _model, **given: Client(bundle.path, device="cpu", **given)) as server:
            yield partial(Client, f"http://127.0.0.1:{server.port}/small")
    elif place == "gRPC":
        with grpc_serving(bundle) as port:
            yield partial(Client, f"grpc://127.0.0.1:{port}/small", remote=Remote(bundle=bundle.path))
    else:
        from bcos_sdk.triton import RepositorySettings, write_repository
        from support.triton import running_triton, triton_environment

        triton_environment()
        if place.endswith("gRPC"):
            pytest.importorskip("grpc", reason="pip install 'bcos-sdk[remote]'")
        write_repository(bundle, folder, RepositorySettings(flavour="python", threads=1, weights=True))
        with running_triton(folder) as triton:
            port = triton.grpc if place.endswith("gRPC") else triton.http
            scheme = "grpc" if place.endswith("gRPC") else "http"
            yield partial(Client, f"{scheme}://127.0.0.1:{port}/small", remote=Remote(bundle=bundle.path))


@contextmanager
def grpc_serving(bundle: Bundle, run: Callable[..., Arrays] | None = None) -> Iterator[int]:
    """Serve the bundle over gRPC on this port. `run` replaces the runner of the graphs."""
    from support.grpc_server import serving_grpc

    inputs, outputs = ports_of(bundle)
    manifest = bundle.manifest
    with serving_grpc(
        "small", run or graph_runner(bundle), inputs, outputs, manifest.to_json(), manifest.max_batch
    ) as server:
        yield server.port


def ports_of(bundle: Bundle) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """The inputs of NAME_explain, and the outputs of NAME and NAME_explain, as servers describe them."""
    kinds = {"float32": "FP32", "int64": "INT64"}
    sizes = bundle.manifest.sizes

    def described(port: Port) -> tuple[str, tuple[int, ...]]:
        return kinds[port.dtype], tuple(
            one if isinstance(one, int) else sizes.get(one, -1) for one in port.axes(Layout.GRID)
        )

    inputs = {port.name: described(port) for port in EXPLAIN_INPUTS}
    return inputs, {
        "small": {LOGITS.name: described(LOGITS)},
        "small_explain": {port.name: described(port) for port in EXPLAIN_OUTPUTS},
    }


def graph_runner(bundle: Bundle) -> Callable[[str, Arrays, list[str]], Arrays]:
    """What runs the graphs of the bundle for a server."""
    backend = cpu_backend(bundle)

    def run(_model: str, inputs: Arrays, outputs: list[str]) -> Arrays:
        if "targets" not in inputs:
            return {LOGITS.name: backend.predict(inputs["image"])}
        found = backend.explain(inputs["image"], inputs["targets"], weights=WEIGHTS.name in outputs)
        return {name: np.asarray(getattr(found, name)) for name in outputs}

    return run
