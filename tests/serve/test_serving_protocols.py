"""The Open Inference Protocol v2 and KServe's v1, spoken literally over a socket."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.serving import LABELS, Server, encoded, fake, serving

from bcos_sdk import Explained, Limits, Prediction
from bcos_sdk.bundle import Manifest


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(max_body=1 << 20) as running:
        yield running


def photograph(seed: int = 0) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((50, 40)).save(file, "PNG")
    return file.getvalue()


def document(**tensors: Any) -> dict[str, Any]:
    kinds = {"float32": "FP32", "int64": "INT64"}
    return {
        "inputs": [
            {"name": name, "shape": list(array.shape), "datatype": kinds[str(array.dtype)], "data": array.tolist()}
            for name, array in tensors.items()
        ]
    }


def test_health_metadata_and_names(server: Server) -> None:
    assert server.get("/v2/health/live").status == 200
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    predict, explain = (server.get(f"/v2/models/fake{suffix}").json() for suffix in ("", "_explain"))
    assert predict["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 6, 16, 20]}]
    assert predict["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 3]}]
    shapes = {one["name"]: one["shape"] for one in explain["outputs"]}
    assert shapes["contributions"] == [-1, -1, 16, 20]
    assert shapes["weights"] == [-1, -1, 6, 16, 20]
    assert Manifest.model_validate_json(predict["parameters"]["bcos_manifest"]).labels == LABELS
    assert server.get("/v2/models/fake/versions/1/ready").status == 200
    for path in ("/v2/models/other", "/v2/models/fake/versions/2", "/v2/models/other/ready", "/v1/models/other"):
        assert (server.get(path).status, server.get(path).json()["code"]) == (404, "unknown_model")
    assert server.get("/v1/models").json() == {"models": ["fake"]}


def test_logits_are_those_of_the_client_as_json_and_as_bytes(server: Server) -> None:
    images = encoded(3)
    with fake()("fake") as client:
        expected = np.zeros((3, 3), np.float32)
        for row, prediction in enumerate(client.predict(list(images), top_k=3)):
            for score in prediction.classes:
                expected[row, score.index] = score.logit
    answer = server.post("/v2/models/fake/infer", json.dumps(document(image=images) | {"id": "seven"})).json()
    assert (answer["id"], answer["model_name"]) == ("seven", "fake")
    assert np.array_equal(np.array(answer["outputs"][0]["data"], np.float32).reshape(3, 3), expected)

    header = {
        "inputs": [
            {
                "name": "image",
                "shape": [3, 6, 16, 20],
                "datatype": "FP32",
                "parameters": {"binary_data_size": images.nbytes},
            }
        ],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(header).encode()
    size = {"Inference-Header-Content-Length": str(len(text))}
    raw = server.post("/v2/models/fake/infer", text + images.astype("<f4").tobytes(), size)
    length = int(raw.headers["inference-header-content-length"])
    (described,) = json.loads(raw.body[:length])["outputs"]
    assert described["parameters"] == {"binary_data_size": 36}
    assert struct.unpack("<9f", raw.body[length:]) == tuple(expected.ravel().tolist())


def test_explanations_add_up_and_weights_come_on_request(server: Server) -> None:
    images, targets = encoded(2), np.array([[1, -1], [3, 0]], np.int64)
    asked = document(image=images, targets=targets)
    names = [one["name"] for one in server.post("/v2/models/fake_explain/infer", json.dumps(asked)).json()["outputs"]]
    assert names == ["logits", "classes", "contributions", "bias_terms", "bias"]
    asked["outputs"] = [{"name": name} for name in (*names, "weights")]
    answer = server.post("/v2/models/fake_explain/infer", json.dumps(asked)).json()
    got = {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["outputs"]}
    assert got["classes"][0, 0] == 1
    assert got["classes"][0, 1] == got["logits"][0].argmax()
    for image, row in np.ndindex(2, 2):
        known = got["classes"][image, row]
        logit = got["logits"][image].mean() if known == 3 else got["logits"][image, known]
        total = (got["weights"][image, row] * images[image]).sum() + got["bias"][image, row]
        assert total == pytest.approx(logit, abs=1e-4)
        assert got["contributions"][image, row].sum() + got["bias_terms"][image, row].sum() == pytest.approx(
            logit, abs=1e-4
        )
    assert server.metric("bcos_completeness_relative_residual_count") >= 4
    assert server.metric("bcos_failed_certificates_total") == 0


WRONG: list[tuple[str, Any]] = [
    ("no JSON", b"{"),
    ("no inputs", {}),
    ("a list", []),
    ("inputs of text", {"inputs": "image"}),
    ("an unknown input", document(picture=encoded(1))),
    ("a missing shape", {"inputs": [{"name": "image", "datatype": "FP32", "data": [1]}]}),
    ("a huge shape", {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1 << 30] * 8, "data": [1]}]}),
    ("a negative size", {"inputs": [{"name": "image", "datatype": "FP32", "shape": [-1], "data": [1]}]}),
    ("another type", {"inputs": [{"name": "image", "datatype": "FP64", "shape": [1], "data": [1]}]}),
    ("text as data", {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1], "data": ["1"]}]}),
    ("ragged data", {"inputs": [{"name": "image", "datatype": "FP32", "shape": [3], "data": [[1], [1, 2]]}]}),
    (
        "missing bytes",
        {
            "inputs": [
                {"name": "image", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}},
            ]
        },
    ),
    ("an unknown output", document(image=encoded(1)) | {"outputs": [{"name": "secret"}]}),
    (
        "shared memory",
        {
            "inputs": [
                {
                    "name": "image",
                    "datatype": "FP32",
                    "shape": [1],
                    "parameters": {"shared_memory_region": "a", "shared_memory_byte_size": 4},
                }
            ]
        },
    ),
]


@pytest.mark.parametrize("body", [body for _, body in WRONG], ids=[name for name, _ in WRONG])
def test_wrong_requests_get_400_and_a_reason(server: Server, body: Any) -> None:
    answer = server.post("/v2/models/fake/infer", body if isinstance(body, bytes) else json.dumps(body))
    assert (answer.status, answer.json()["code"]) == (400, "request_invalid"), answer.body
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("images", "targets"),
    [
        (encoded(9), None),
        (encoded(1)[:, :, :8], None),
        (encoded(1) * 2, None),
        (encoded(1) * np.float32("nan"), None),
        (encoded(1)[:0], None),
        (encoded(1), [[4]]),
        (encoded(1), [[-4]]),
        (encoded(2), [[0]]),
        (encoded(8), [[0, 1]] * 8),
        (encoded(1), [0]),
    ],
    ids=["batch", "size", "range", "nan", "empty", "class", "rank", "rows", "batch of targets", "axes"],
)
def test_wrong_tensors_get_422_and_a_reason(server: Server, images: Any, targets: Any) -> None:
    if targets is None:
        answer = server.post("/v2/models/fake/infer", json.dumps(document(image=images)))
    else:
        asked = document(image=images, targets=np.array(targets, np.int64))
        answer = server.post("/v2/models/fake_explain/infer", json.dumps(asked))
    assert (answer.status, answer.json()["code"]) == (422, "input_invalid"), answer.body


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.one_of(st.none(), st.text("0123456789-", max_size=14)))
def test_any_bytes_get_an_answer_of_the_protocol(server: Server, body: bytes, length: str | None) -> None:
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    assert server.post("/v2/models/fake_explain/infer", body, headers).status == 400


def test_v1_predicts_and_explains_images_in_base64(server: Server) -> None:
    text = base64.b64encode(photograph()).decode()
    body: dict[str, Any] = {"instances": [{"b64": text}, {"image_bytes": {"b64": text}}]}
    first, second = server.post("/v1/models/fake:predict", json.dumps(body)).json()["predictions"]
    with fake(limits=Limits())("fake") as client:
        (expected,) = client.predict(photograph())
        (explained,) = client.explain(photograph(), targets=["dog vs cat"])
    assert Prediction.model_validate(first).classes == Prediction.model_validate(second).classes == expected.classes
    asked = body | {"targets": ["dog vs cat"], "arrays": "base64"}
    answer = server.post("/v1/models/fake:explain", json.dumps(asked)).json()["explanations"]
    result = Explained.from_json(json.dumps(answer[0]))
    assert result.explanations[0].completeness == explained.explanations[0].completeness
    assert np.array_equal(result.explanations[0].contributions, explained.explanations[0].contributions)
    malformed: list[dict[str, Any]] = [
        {},
        {"instances": []},
        {"instances": [{"b64": "!"}]},
        {"instances": [1]},
        body | {"what": 1},
    ]
    for wrong in malformed:
        assert server.post("/v1/models/fake:predict", json.dumps(wrong)).status == 400
    for wrong in (body | {"targets": ["wolf"]}, body | {"top_k": 0}, body | {"arrays": "all"}):
        assert server.post("/v1/models/fake:explain", json.dumps(wrong)).status == 422
    one_bad = {"instances": [{"b64": text}, {"b64": base64.b64encode(b"text").decode()}]}
    answer = server.post("/v1/models/fake:predict", json.dumps(one_bad)).json()
    assert answer["code"] == "image_unreadable"
    assert "instance 1" in answer["error"]
