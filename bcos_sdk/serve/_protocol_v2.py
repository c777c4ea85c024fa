"""The Open Inference Protocol v2: health, metadata and inference. NAME predicts, NAME_explain explains.

The protocol has no verb for explanations, so that they are a second model: every client of the protocol can use it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from bcos_sdk import __version__
from bcos_sdk._open_inference import (
    BINARY_EXTENSION,
    DATATYPES,
    HEADER_LENGTH,
    LARGEST_BATCH_PARAMETER,
    LARGEST_BODY_PARAMETER,
    PRECISION_PARAMETER,
)
from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import (
    BIAS,
    BIAS_TERMS,
    EXPLAIN_INPUTS,
    EXPLAIN_OUTPUTS,
    EXPLAIN_SUFFIX,
    LOGITS,
    MANIFEST_PARAMETER,
    PREDICT_INPUTS,
    PREDICT_OUTPUTS,
    WEIGHTS,
    Arrays,
    Layout,
    Port,
)
from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._service import Service, service_of
from bcos_sdk.serve._tensors import InferRequest, invalid, read_request, write_response

__all__ = ["answer_inference", "inference_path", "router"]

_VERSIONS = ("1", "")

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])


@router.get("", summary="Name and extensions of the server")
def server_metadata() -> dict[str, Any]:
    return {"name": "bcos-sdk", "version": __version__, "extensions": [BINARY_EXTENSION]}


@router.get("/health/live", summary="Whether the process answers")
def live() -> dict[str, bool]:
    return {"live": True}


@router.get("/health/ready", summary="Whether the model is loaded and has passed its self-test")
def ready(request: Request) -> Response:
    is_ready = service_of(request).ready
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


@router.get("/models/{model}", summary="Inputs and outputs of a model, and its manifest")
@router.get("/models/{model}/versions/{version}", include_in_schema=False)
def model_metadata(request: Request, model: str, version: str = "") -> dict[str, Any]:
    service = service_of(request)
    explains = _explains(service, model, version)
    client = service.client
    manifest = client.manifest
    inputs, outputs = (EXPLAIN_INPUTS, EXPLAIN_OUTPUTS) if explains else (PREDICT_INPUTS, PREDICT_OUTPUTS)
    return {
        "name": model,
        "versions": ["1"],
        "platform": "bcos_sdk",
        "inputs": [_described(port, manifest) for port in inputs],
        "outputs": [_described(port, manifest) for port in outputs],
        "parameters": {
            MANIFEST_PARAMETER: client.exported_manifest.to_json(),
            LARGEST_BATCH_PARAMETER: str(client.max_batch),
            LARGEST_BODY_PARAMETER: str(service.settings.max_body),
            PRECISION_PARAMETER: client.precision,
        },
    }


@router.get("/models/{model}/golden", summary="The golden record, with which clients test the model")
def golden_record(request: Request, model: str) -> Response:
    service = service_of(request)
    _explains(service, model, "")
    record = service.client.golden_record
    if record is None:
        raise HttpError(404, "not_found", "this model has no golden record")
    return Response(bytes(record), media_type="application/octet-stream")


@router.get("/models/{model}/ready", summary="Whether a model can be used")
@router.get("/models/{model}/versions/{version}/ready", include_in_schema=False)
def model_ready(request: Request, model: str, version: str = "") -> dict[str, Any]:
    _explains(service_of(request), model, version)
    return {"name": model, "ready": True}


@router.post("/models/{model}/infer", summary="Run a model on tensors")
@router.post("/models/{model}/versions/{version}/infer", include_in_schema=False)
async def infer(request: Request, model: str, version: str = "") -> Response:
    return await answer_inference(
        service_of(request), model, version, await request.body(), request.headers.get(HEADER_LENGTH)
    )


_INFERENCE = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


def inference_path(path: str) -> tuple[str, str] | None:
    """The model and the version in the path of an inference request; None for other paths."""
    found = _INFERENCE.fullmatch(path)
    return None if found is None else (found[1], found[2] or "")


async def answer_inference(
    service: Service, model: str, version: str, body: bytes, header_length: str | None
) -> Response:
    """The answer to an inference request."""
    explains = _explains(service, model, version)
    asked = read_request(body, header_length)
    ports = EXPLAIN_OUTPUTS if explains else PREDICT_OUTPUTS
    names = {port.name for port in ports}
    if unknown := [name for name in asked.outputs if name not in names]:
        raise invalid(f"{model} has no output {unknown[0]!r}; it has {', '.join(sorted(names))}")
    with service.answering():
        outputs = await (_explain if explains else _predict)(service, asked)
    # W(x) is the largest output by far, so it is sent only if it is asked for.
    wanted = asked.outputs or tuple(name for name in outputs if name != WEIGHTS.name)
    contents, headers = write_response(model, service.digest, asked, {name: outputs[name] for name in wanted})
    return Response(contents, headers=headers)


async def _predict(service: Service, asked: InferRequest) -> Arrays:
    (images,) = _inputs(asked, PREDICT_INPUTS)
    return {LOGITS.name: await service.client.apredict_tensors(images, timeout=service.settings.timeout)}


async def _explain(service: Service, asked: InferRequest) -> Arrays:
    images, targets = _inputs(asked, EXPLAIN_INPUTS)
    outputs, certificates = await service.client.aexplain_tensors(
        images, targets, weights=WEIGHTS.name in asked.outputs, timeout=service.settings.timeout
    )
    service.metrics.certified(certificates)
    arrays = {port.name: getattr(outputs, port.name) for port in EXPLAIN_OUTPUTS if port is not BIAS}
    arrays[BIAS.name] = arrays[BIAS_TERMS.name].sum(-1, dtype=np.float64).astype(np.float32)
    return {name: array for name, array in arrays.items() if array is not None}


def _inputs(asked: InferRequest, ports: tuple[Port, ...]) -> list[Any]:
    inputs = asked.inputs
    if len(inputs) != len(ports) or any(
        port.name not in inputs or inputs[port.name].dtype != port.dtype for port in ports
    ):
        wanted = ", ".join(f"{port.name} ({DATATYPES[port.dtype]})" for port in ports)
        raise invalid(f"the inputs must be {wanted}")
    return [inputs[port.name] for port in ports]


def _explains(service: Service, model: str, version: str) -> bool:
    """Whether this model is the one that explains. An unknown model is an answer with status 404."""
    name = service.name
    if model not in (name, name + EXPLAIN_SUFFIX) or version not in _VERSIONS:
        raise HttpError(404, "unknown_model", f"there is no such model; there are {name} and {name}{EXPLAIN_SUFFIX}")
    return model != name


def _described(port: Port, manifest: Manifest) -> dict[str, Any]:
    axes = port.axes(Layout.GRID)
    shape = [axis if isinstance(axis, int) else manifest.sizes.get(axis, -1) for axis in axes]
    return {"name": port.name, "datatype": DATATYPES[port.dtype], "shape": shape}
