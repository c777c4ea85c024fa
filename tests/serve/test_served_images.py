"""`POST /predict` and `POST /explain`: an image in, JSON as on the command line or a PNG out."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from PIL import Image
from support.serving import Server, fake, serving

from bcos_sdk import Client, Explained, Prediction
from bcos_sdk.bundle import BUILTIN_MODEL, DEFAULT_MODEL, find_bundle
from bcos_sdk.client import check_targets
from bcos_sdk.errors import UnknownLayerError
from bcos_sdk.limits import Limits

CAT = Path(__file__).resolve().parents[2] / "samples" / "cat-1.jpg"
BOUNDARY = "a7f3"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(lambda model, **given: Client(BUILTIN_MODEL, device="cpu", threads=1, **given)) as running:
        yield running


def form(content: bytes, name: str = "image") -> tuple[bytes, dict[str, str]]:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="a.jpg"\r\n\r\n'.encode()
    body = head + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def test_json_is_that_of_the_client_for_a_body_and_a_form(server: Server) -> None:
    picture = CAT.read_bytes()
    with Client(BUILTIN_MODEL, device="cpu", threads=1) as client:
        (predicted,) = client.predict(picture)
        (explained,) = client.explain(picture, targets=["cat", "cat vs dog"])
    for answer, source in (
        (server.post("/predict", picture), "request body"),
        (server.post("/predict", *form(picture)), "a.jpg"),
    ):
        assert Prediction.from_json(answer.body) == predicted.model_copy(update={"source": source})
    assert len(server.post("/predict?top_k=2", picture).json()["classes"]) == 2
    answer = server.post("/explain?target=cat&target=cat%20vs%20dog&arrays=base64", picture)
    result = Explained.from_json(answer.body)
    for got, expected in zip(result.explanations, explained.explanations, strict=True):
        assert got.completeness == expected.completeness
        assert np.array_equal(got.contributions, expected.contributions)
        assert got.verified
    assert server.post("/explain?target=3", picture).json()["explanations"][0]["target"]["label"] == "cat"


def test_the_picture_is_the_overlay_of_the_client(server: Server) -> None:
    picture = CAT.read_bytes()
    with Client(BUILTIN_MODEL, device="cpu", threads=1) as client:
        (explained,) = client.explain(picture, weights=True)
    best = explained.explanations[0]
    for query, drawn in (("", best.overlay()), ("?picture=rgba", best.rgba()), ("?picture=heatmap", best.heatmap())):
        answer = server.post(f"/explain{query}", picture, {"Accept": "image/png"})
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-bcos-target"] == '"cat"'
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(answer.body))), np.asarray(drawn))
    for accept in ("*/*", "application/json, image/png", "text/html"):
        assert server.post("/explain", picture, {"Accept": accept}).headers["content-type"] == "application/json"
    pictures = server.post("/explain?picture=overlay&picture=display", picture).json()["explanations"][0]["pictures"]
    assert pictures.keys() == {"overlay", "display"}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/explain", b"text", 415, "image_unreadable"),
        ("/explain", b"", 422, "input_invalid"),
        ("/explain?target=wolf", CAT.read_bytes(), 422, "unknown_target"),
        ("/explain?target=99", CAT.read_bytes(), 422, "unknown_target"),
        ("/explain?picture=oil", CAT.read_bytes(), 422, "input_invalid"),
        ("/predict?top_k=0", CAT.read_bytes(), 422, "input_invalid"),
        ("/predict?top_k=many", CAT.read_bytes(), 422, "input_invalid"),
        ("/predict?topk=3", CAT.read_bytes(), 422, "input_invalid"),
        ("/explain?targets=cat", CAT.read_bytes(), 422, "input_invalid"),
        ("/explain?index=10", CAT.read_bytes(), 422, "unknown_target"),
        ("/explain?index=-1", CAT.read_bytes(), 422, "input_invalid"),
        ("/explain?index=3&target=cat", CAT.read_bytes(), 422, "input_invalid"),
        ("/explain?against=3", CAT.read_bytes(), 422, "input_invalid"),
    ],
)
def test_failures_are_typed_and_have_no_hints_for_programmers(
    server: Server, path: str, body: bytes, status: int, code: str
) -> None:
    answer = server.post(path, body)
    assert (answer.status, answer.json()["code"]) == (status, code)
    assert answer.json().keys() == {"error", "code", "retryable", "request_id"}
    assert "Limits(" not in answer.body.decode()
    assert "client." not in answer.body.decode()


def test_failures_name_the_file_the_parameter_and_similar_classes_once(server: Server) -> None:
    def error(path: str, body: bytes, headers: dict[str, str] | None = None) -> str:
        text: str = server.post(path, body, headers).json()["error"]
        return text

    assert error("/predict", *form(b"text")) == "a.jpg is not an image of an allowed format"
    assert error("/predict", b"text") == "request body is not an image of an allowed format"
    assert "unknown query parameters: topk; known are top_k" in error("/predict?topk=3", CAT.read_bytes())
    assert "Similar labels: truck" in error("/explain?target=trucks", CAT.read_bytes())
    assert "Similar labels: automobile" in error("/explain?target=auto", CAT.read_bytes())
    assert "Labels are, for example, airplane" in error("/explain?target=wolf", CAT.read_bytes())
    refused = server.post("/predict", CAT.read_bytes(), {"Accept": "image/png"})
    assert (refused.status, refused.json()["code"]) == (406, "not_acceptable")
    assert server.post("/predict", CAT.read_bytes(), {"Accept": "image/png, */*"}).status == 200


LABELS = ("7", "cat vs dog", "cat", "dog")


def test_an_index_is_never_taken_for_a_label() -> None:
    with serving(fake(labels=LABELS)) as server:

        def explained(query: str) -> str:
            target = server.post(f"/explain?{query}", CAT.read_bytes()).json()["explanations"][0]["target"]
            return f"{target['index']} {target['label']}"

        assert explained("index=1") == "1 cat vs dog"
        assert explained("index=2&against=3") == "None cat vs dog"
        assert explained("index=1&against=0") == "None cat vs dog vs 7"
        assert explained("target=7") == "0 7"


def test_the_commands_of_the_documentation_name_classes_of_the_default_model() -> None:
    manifest = find_bundle(DEFAULT_MODEL).manifest
    page = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text("utf-8")
    queries = re.findall(r"localhost:8000/explain\?([^' ]+)", page)
    targets = [target for query in queries for target in parse_qs(query)["target"]]
    targets += [json.loads(found)[0] for found in re.findall(r'"targets": (\[.*?\])', page)]
    assert len(targets) >= 3
    check_targets(manifest, targets, 1, Limits())


def test_forms_that_are_broken_or_without_a_file_are_refused(server: Server) -> None:
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    assert server.post("/predict", b"--nothing", headers).status in (400, 422)
    assert server.post("/predict", b"", {"Content-Type": "multipart/form-data"}).status in (400, 422)
    assert server.post("/predict", *form(b"")).status == 422


def test_routes_are_described(server: Server) -> None:
    schema = server.get("/openapi.json").json()
    assert {"/predict", "/explain", "/metrics", "/v2/models/{model}/infer"} <= schema["paths"].keys()
    page = server.get("/docs").body.decode()
    assert "POST /explain" in page
    assert "//" not in page.replace("<!doctype", ""), "nothing is loaded from another server"


def test_a_client_with_the_address_gives_what_the_model_gives_here(server: Server) -> None:
    pytest.importorskip("urllib3")
    with (
        Client(f"http://127.0.0.1:{server.port}/{BUILTIN_MODEL}") as remote,
        Client(BUILTIN_MODEL, device="cpu", threads=1) as local,
    ):
        options: dict[str, Any] = {"targets": ["cat", "cat vs dog", "mean"], "weights": True}
        assert remote.explain(CAT, **options) == local.explain(CAT, **options)
        assert remote.predict(CAT) == local.predict(CAT)
        assert (remote.max_batch, remote.manifest) == (local.max_batch, local.manifest)
        assert remote.layers == local.layers
        calls: list[Any] = [remote.features, partial(remote.explain_features, layer=local.layers[0])]
        for call in calls:
            with pytest.raises(UnknownLayerError, match="does not serve inner layers"):
                call(CAT)
