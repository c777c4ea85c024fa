"""KServe's protocol v1: `:predict` and `:explain` on images in base64."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fastapi import APIRouter, Request, Response

from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._service import Service, service_of
from bcos_sdk.serve._tensors import invalid
from bcos_sdk.serve._uploads import Upload

__all__ = ["router"]

_MOST_INSTANCES = 64
_FIELDS = {"instances", "targets", "top_k", "arrays"}

router = APIRouter(prefix="/v1", tags=["KServe v1"])


@router.get("/models", summary="The names of the models")
def models(request: Request) -> dict[str, Any]:
    return {"models": [service_of(request).name]}


@router.get("/models/{model}", summary="Whether a model is ready")
def model_ready(request: Request, model: str) -> dict[str, Any]:
    _check_model(service_of(request), model)
    return {"name": model, "ready": True}


@router.post("/models/{model}:predict", summary="Classify images in base64")
async def predict(request: Request, model: str) -> Response:
    service = service_of(request)
    _check_model(service, model)
    images, document = _read(await request.body())
    options = {"top_k": document["top_k"]} if "top_k" in document else {}
    with service.answering():
        results = await service.client.apredict(images, timeout=service.settings.timeout, **options)
    return _joined("predictions", [result.to_json() for result in results])


@router.post("/models/{model}:explain", summary="Explain images in base64")
async def explain(request: Request, model: str) -> Response:
    service = service_of(request)
    _check_model(service, model)
    images, document = _read(await request.body())
    with service.answering():
        results = await service.client.aexplain(
            images,
            targets=document.get("targets"),
            top_k=document.get("top_k", 1),
            timeout=service.settings.timeout,
        )
    for result in results:
        service.certified(result)
    arrays = document.get("arrays", "omit")
    with service.answering():
        return _joined("explanations", [result.to_json(arrays=arrays) for result in results])


def _check_model(service: Service, model: str) -> None:
    if model != service.name:
        raise HttpError(404, "unknown_model", f"there is no such model; there is {service.name}")


def _read(body: bytes) -> tuple[list[Upload], dict[str, Any]]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid("the request is no JSON document") from None
    instances = document.get("instances") if isinstance(document, dict) else None
    if not isinstance(instances, list) or not 1 <= len(instances) <= _MOST_INSTANCES:
        raise invalid(f"the request must be an object with a list 'instances' of 1 to {_MOST_INSTANCES} images")
    if unknown := document.keys() - _FIELDS:
        raise invalid(f"unknown fields: {', '.join(sorted(unknown))[:100]}; known are {', '.join(sorted(_FIELDS))}")
    return [_image(place, instance) for place, instance in enumerate(instances)], document


def _image(place: int, instance: Any) -> Upload:
    """The bytes of {"b64": "…"} or {"image_bytes": {"b64": "…"}}."""
    inner = instance.get("image_bytes", instance) if isinstance(instance, dict) else None
    text = inner.get("b64") if isinstance(inner, dict) else None
    if not isinstance(text, str):
        raise invalid(f'instance {place} must be {{"b64": "…"}}, an image file in base64')
    try:
        return Upload.of(base64.b64decode(text, validate=True), f"instance {place}")
    except (ValueError, binascii.Error):
        raise invalid(f"instance {place} is not valid base64") from None


def _joined(name: str, results: list[str]) -> Response:
    return Response(f'{{"{name}":[{",".join(results)}]}}', media_type="application/json")
