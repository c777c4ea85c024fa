"""The page at `/`, its files and samples, and a page with all routes. They load nothing from other servers."""

from __future__ import annotations

import html
from typing import Any

from fastapi import APIRouter, Request, Response

from bcos_sdk.pages import PICTURE_TYPES, index_page, media_type, page_files, sample_files
from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._service import service_of

__all__ = ["router"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_FOOTER = '<a href="docs">All routes of this server</a>'

router = APIRouter(include_in_schema=False)


@router.get("/")
def page() -> Response:
    return _answer(index_page(_POLICY, _FOOTER), "text/html")


@router.get("/page/info")
def info(request: Request) -> dict[str, Any]:
    """What the page shows before the first image."""
    service = service_of(request)
    client = service.client
    return {
        "name": service.name,
        "labels": client.labels,
        "device": client.device,
        "samples": [path.name for path in sample_files(service.settings.samples)],
        "probability": client.manifest.probability,
    }


@router.get("/page/samples/{name}")
def sample(request: Request, name: str) -> Response:
    for path in sample_files(service_of(request).settings.samples):
        if path.name == name:
            return Response(path.read_bytes(), media_type=PICTURE_TYPES[path.suffix.lower()], headers=_HEADERS)
    raise HttpError(404, "not_found", "there is no such sample")


@router.get("/page/{name}")
def page_file(name: str) -> Response:
    """A file of the page. Only the names of its files exist: `name` is compared, not opened."""
    contents = page_files("bcos_sdk.serve").get(name)
    if contents is None:
        raise HttpError(404, "not_found", "there is no such page")
    return _answer(contents, media_type(name))


@router.get("/docs")
def docs(request: Request) -> Response:
    """All routes with their parameters, made from the OpenAPI document."""
    schema = request.app.openapi()
    parts = [
        _route(path, method, route) for path, methods in schema["paths"].items() for method, route in methods.items()
    ]
    title = f"{schema['info']['title']} {schema['info']['version']}"
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="page/base.css"><link rel="stylesheet" href="page/style.css"></head>'
        '<body class="docs"><header><h1>'
        f"{html.escape(title)}</h1><p>{html.escape(schema['info']['description'])} "
        'For programs: <a href="openapi.json">openapi.json</a>.</p></header>'
        f'<div class="routes">{"".join(parts)}</div></body></html>'
    )
    return Response(body, media_type="text/html", headers=_HEADERS)


def _route(path: str, method: str, route: dict[str, Any]) -> str:
    rows = "".join(
        f"<li><code>{html.escape(one['name'])}</code> ({html.escape(one['in'])}"
        f"{', required' if one.get('required') else ''}) {html.escape(one.get('description', ''))}</li>"
        for one in route.get("parameters", ())
    )
    summary = html.escape(route.get("summary", ""))
    return (
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{summary}</p><ul>{rows}</ul></section>"
    )


def _answer(contents: bytes, kind: str) -> Response:
    return Response(contents, media_type=kind, headers=_HEADERS | {"Cache-Control": "no-cache"})
