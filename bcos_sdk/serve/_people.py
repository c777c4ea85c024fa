"""For people and scripts: `POST /predict` and `POST /explain` with an image, answered with JSON or a picture."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from PIL import Image
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from bcos_sdk.client import Contrast, Targets
from bcos_sdk.results import Explained, Explanation
from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._service import Service, service_of
from bcos_sdk.serve._tensors import invalid
from bcos_sdk.serve._uploads import Upload

__all__ = ["router"]

Picture = Literal["overlay", "rgba", "heatmap", "display"]
TopK = Annotated[int | None, Query(ge=1, le=1000, description="Number of classes.")]
Index = Annotated[int | None, Query(ge=0)]
_LONGEST_INDEX = 9
_UNNAMED = "request body"
_MOST_TARGETS = 32

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"image": {"type": "string", "format": "binary"}}}
            },
        },
    }
}


def _known_parameters(request: Request) -> None:
    """Raise an error for a parameter that the route does not have: it would be ignored."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    if unknown := [name for name in dict.fromkeys(request.query_params) if name not in known]:
        raise _wrong(f"unknown query parameters: {', '.join(unknown)[:100]}; known are {', '.join(known)}")


def _wrong(message: str) -> HttpError:
    return HttpError(422, "input_invalid", message)


router = APIRouter(tags=["Images"], dependencies=[Depends(_known_parameters)])


@router.post("/predict", summary="Classify an image: the body, or the only file of a form", openapi_extra=_BODY)
async def predict(request: Request, top_k: TopK = None) -> Response:
    service = service_of(request)
    client = service.client
    accept = request.headers.get("accept", "")
    if _prefers_png(accept) and not any(kind in _JSON_KINDS for kind in _kinds(accept)):
        raise HttpError(406, "not_acceptable", "predictions are JSON; POST /explain answers with a picture")
    image = await _image_of(request)
    with service.answering():
        (result,) = await client.apredict(image, top_k=top_k or 5, timeout=service.settings.timeout)
    return Response(result.to_json(), media_type="application/json")


@router.post(
    "/explain",
    summary="Explain classes of an image; with `Accept: image/png`, the answer is the picture of the first one",
    openapi_extra=_BODY,
    responses={200: {"content": {"application/json": {}, "image/png": {}}}},
)
async def explain(
    request: Request,
    target: Annotated[
        list[str] | None, Query(description="A label, an index, 'mean' or 'A vs B'; default: the likeliest class.")
    ] = None,
    index: Annotated[Index, Query(description="The index of a class, instead of `target`.")] = None,
    against: Annotated[Index, Query(description="With `index`: the index of the class to subtract.")] = None,
    top_k: TopK = None,
    picture: Annotated[list[Picture] | None, Query(description="Pictures to draw; default for PNG: overlay.")] = None,
    arrays: Annotated[Literal["omit", "base64"], Query(description="Whether JSON has the arrays.")] = "omit",
) -> Response:
    service = service_of(request)
    client = service.client
    if len(target or ()) > _MOST_TARGETS:
        raise invalid(f"there are {len(target or ())} targets, expected at most {_MOST_TARGETS}")
    if (target and index is not None) or (index is None and against is not None):
        raise _wrong("the query needs `target`, or `index`, or `index` and `against`")
    image = await _image_of(request)
    targets: Targets = [_target(text, client.labels) for text in target] if target else None
    if index is not None:
        targets = index if against is None else Contrast(index, against)
    wanted: tuple[Picture, ...] = tuple(dict.fromkeys(picture or ()))
    as_picture = _prefers_png(request.headers.get("accept", ""))
    with service.answering():
        (result,) = await client.aexplain(
            image, targets=targets, top_k=top_k or 1, weights="rgba" in wanted, timeout=service.settings.timeout
        )
    service.certified(result)
    if as_picture:
        return await asyncio.to_thread(_picture_answer, result.explanations[0], wanted[0] if wanted else "overlay")
    text = await asyncio.to_thread(_json, service, result, wanted, arrays)
    return Response(text, media_type="application/json")


def _json(service: Service, result: Explained, wanted: tuple[Picture, ...], arrays: Literal["omit", "base64"]) -> str:
    """The JSON of the command line. If pictures are wanted, each explanation also has them as data URLs."""
    text = result.to_json(arrays=arrays)
    if not wanted:
        return text
    with service.answering():
        document: dict[str, Any] = json.loads(text)
        for entry, explanation in zip(document["explanations"], result.explanations, strict=True):
            entry["pictures"] = {
                kind: "data:image/png;base64," + base64.b64encode(_png(explanation, kind)).decode() for kind in wanted
            }
    return json.dumps(document)


def _picture_answer(explanation: Explanation, kind: Picture) -> Response:
    figures = explanation.completeness
    headers = {
        "X-Bcos-Target": json.dumps(explanation.target.label),  # ASCII
        "X-Bcos-Logit": repr(explanation.target.logit),
        "X-Bcos-Relative-Residual": f"{figures.relative_residual:.3e}",
    }
    return Response(_png(explanation, kind), media_type="image/png", headers=headers)


def _png(explanation: Explanation, kind: Picture) -> bytes:
    explanation.require_complete()
    drawn = Image.fromarray(explanation.display) if kind == "display" else getattr(explanation, kind)()
    file = io.BytesIO()
    drawn.save(file, "PNG", compress_level=1)
    return file.getvalue()


_JSON_KINDS = ("application/json", "application/*", "*/*")


def _kinds(accept: str) -> list[str]:
    return [part.split(";")[0].strip().lower() for part in accept.split(",")]


def _prefers_png(accept: str) -> bool:
    """Whether the header asks for a PNG and not for JSON. Browsers and curl accept anything: they get JSON."""
    kinds = _kinds(accept)
    pictures = [place for place, kind in enumerate(kinds) if kind in ("image/png", "image/*")]
    return bool(pictures) and "application/json" not in kinds[: pictures[0]]


async def _image_of(request: Request) -> Upload:
    """The image: the body itself, or the only file of a multipart form."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        image, name = await request.body(), _UNNAMED
    else:
        try:
            form = await request.form(max_files=1, max_fields=10)
        except (MultiPartException, KeyError, ValueError):
            raise invalid("the form cannot be read") from None
        except Exception as error:  # starlette turns the parser's error into an HTTPException
            if getattr(error, "status_code", None) == 400:
                raise invalid("the form cannot be read") from None
            raise
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        image = await files[0].read() if files else b""
        name = (files[0].filename if files else None) or _UNNAMED
        await form.close()
    if not image:
        raise _wrong("the request has no image: send it as the body, or as a file of a form")
    return Upload.of(image, name)


def _target(text: str, labels: tuple[str, ...]) -> int | str:
    is_index = text.isdecimal() and len(text) <= _LONGEST_INDEX and text not in labels
    return int(text) if is_index else text
