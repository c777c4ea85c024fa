"""Limits, deadlines, tokens, ids, metrics and logs of a server."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from PIL import Image
from support.serving import encoded, fake, serving
from support.waiting import until

from bcos_sdk import Client
from bcos_sdk.errors import IncompleteExplanationError, SelfTestError
from bcos_sdk.results import Completeness
from bcos_sdk.serve._log_format import configure_logs
from bcos_sdk.testing import FakeClient


def photograph() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(file, "PNG")
    return file.getvalue()


def tensor_request() -> str:
    image = encoded(1)
    entry = {"name": "image", "shape": list(image.shape), "datatype": "FP32", "data": image.ravel().tolist()}
    return json.dumps({"inputs": [entry]})


def test_it_is_live_at_once_and_ready_after_the_warmup() -> None:
    may_open = threading.Event()

    def slowly(model: str, **given: Any) -> Client:
        may_open.wait(20)
        return fake()(model, **given)

    with serving(slowly, wait=False) as server:
        assert server.get("/v2/health/live").status == 200
        assert server.get("/v2/health/ready").status == 503
        early = server.post("/predict", photograph())
        assert (early.status, early.json()["code"], early.headers["retry-after"]) == (503, "not_ready", "1")
        may_open.set()
        while server.get("/v2/health/ready").status != 200:
            time.sleep(0.01)
        assert server.post("/predict", photograph()).status == 200


def test_a_model_that_fails_its_self_test_is_never_ready() -> None:
    def broken(model: str, **given: Any) -> Client:
        raise SelfTestError("the graph differs from its golden record")

    with serving(broken, wait=False) as server:
        until(lambda: server.post("/predict", photograph()).status == 500)
        assert server.get("/v2/health/ready").status == 503
        assert server.get("/v2/health/live").status == 200
        answer = server.post("/predict", photograph()).json()
        assert (answer["error"], answer["retryable"]) == (
            "the model cannot be served; the log of the server has the cause",
            False,
        )


def test_bodies_are_bounded_also_if_their_length_is_not_stated() -> None:
    with serving(max_body=1000) as server:
        stated = server.post("/predict", bytes(1001))
        assert (stated.status, stated.json()["code"], stated.headers["connection"]) == (413, "body_too_large", "close")
        chunks = iter([bytes(400)] * 3)
        chunked = server.post("/predict", chunks)  # http.client sends an iterator in chunks
        assert chunked.status == 413
        assert server.post("/predict", photograph()).status == 200


def test_an_upload_that_stalls_gets_408_and_frees_its_slot() -> None:
    with serving(body_seconds=0.2, queue=1) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
            time.sleep(0.05)
            full = server.post("/predict", photograph())
            assert (full.status, full.json()["code"], full.headers["retry-after"]) == (503, "queue_full", "1")
            answer = b""
            while part := slow.recv(4096):  # the server closes the connection
                answer += part
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"body_timeout" in answer
        assert server.post("/predict", photograph()).status == 200
        assert server.metric("bcos_requests_in_progress") == 0


def test_a_full_queue_gets_503_and_a_passed_deadline_504() -> None:
    # The warm-up takes a few delays as well.
    with serving(fake(delay=0.25, max_batch=1), queue=2, timeout=0.6) as server:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: server.post("/predict", photograph()), range(8)))
        codes = {answer.status for answer in answers}
        assert {200, 503} <= codes <= {200, 503, 504}
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status == 503)
    with serving(fake(delay=0.3), timeout=0.05) as server:
        for path, body in (("/predict", photograph()), ("/v2/models/fake/infer", tensor_request())):
            late = server.post(path, body)
            assert (late.status, late.json()["code"], late.json()["retryable"]) == (504, "deadline_exceeded", True)


def test_only_the_bearer_of_the_token_may_ask() -> None:
    with serving(token="s3cret") as server:
        for path in ("/v2/health/live", "/v2/health/ready", "/", "/docs"):
            assert server.get(path).status == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            refused = server.post("/predict", photograph(), headers)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert server.get("/metrics", headers).status == 401
            assert server.get("/v2/models/fake", headers).status == 401
        assert server.post("/predict", photograph(), {"Authorization": "bearer s3cret"}).status == 200


def test_request_ids_come_back_and_are_in_every_log_line(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("bcos_sdk")
    before = logger.handlers, logger.level, logger.propagate
    others = logging.getLogger("uvicorn")
    uvicorn_before = others.handlers, others.level, others.propagate
    try:
        configure_logs("json")
        (handler,) = logger.handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream)
        with serving() as server:
            assert server.post("/predict", photograph(), {"X-Request-ID": "order-17"}).headers["x-request-id"] == (
                "order-17"
            )
            odd = server.post("/predict", b"text", {"X-Request-ID": "a b; c"})
            assert odd.headers["x-request-id"] == odd.json()["request_id"] != "a b; c"
            server.get("/no/such/\u001b%0aroute".replace("\u001b", "%1b"))
    finally:
        logger.handlers, logger.level, logger.propagate = before
        others.handlers, others.level, others.propagate = uvicorn_before
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (mine,) = [line for line in lines if line["request_id"] == "order-17"]
    assert (mine["path"], mine["status"], mine["method"]) == ("/predict", 200, "POST")
    assert all("request_id" in line for line in lines)
    assert "\x1b" not in stream.getvalue()


def test_metrics_count_requests_by_route_and_code_and_batches() -> None:
    with serving() as server:
        for _ in range(3):
            server.post("/predict", photograph())
        server.post("/predict", b"text")
        server.get("/no/such/route")
        text = server.get("/metrics").body.decode()
        assert 'bcos_requests_total{code="200",route="/predict"} 3.0' in text
        assert 'bcos_requests_total{code="415",route="/predict"} 1.0' in text
        assert 'bcos_requests_total{code="404",route="unknown"} 1.0' in text
        assert 'bcos_request_seconds_count{route="/predict"} 4.0' in text
        assert server.metric("bcos_batch_images_sum") >= 3
        assert server.metric("bcos_queue_images") == 0


class LyingClient(FakeClient):
    """Its explanations of images do not add up."""

    async def aexplain(self, *arguments: Any, **options: Any) -> Any:
        figures = Completeness(logit=1.0, sum=2.0, scale=3.0, tolerance=1e-5)
        raise IncompleteExplanationError("it does not add up", source="image", hint="a hint", completeness=figures)


def test_failed_certificates_are_errors_and_are_counted() -> None:
    with serving(lambda model, **given: LyingClient(model, **given)) as server:
        answer = server.post("/explain", photograph())
        assert (answer.status, answer.json()["code"]) == (500, "explanation_incomplete")
        assert b"hint" not in answer.body
        assert server.metric("bcos_failed_certificates_total") == 1
        assert server.metric("bcos_completeness_relative_residual_count") == 1


def test_what_was_accepted_is_answered_when_the_server_ends() -> None:
    answers: list[int] = []
    with serving(fake(delay=0.3), queue=16) as server:

        def ask(_: int) -> None:
            answers.append(server.post("/v2/models/fake/infer", tensor_request()).status)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        while server.metric("bcos_requests_in_progress") < 6 and len(answers) < 6:
            time.sleep(0.01)
    for thread in threads:
        thread.join(10)
    assert answers == [200] * 6
