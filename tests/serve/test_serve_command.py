"""`bcos-sdk serve` as a process: its address, workers, SIGTERM, and errors of its arguments."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from click.testing import CliRunner
from support.serving import Server

from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.cli import main

CAT = Path(__file__).resolve().parents[2] / "samples" / "cat-1.jpg"


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Server]]:
    command = [sys.executable, "-c", "from bcos_sdk.cli import main; main()", "serve", "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        [*command, "--threads", "1", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        server = Server(int(found[1]))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if server.get("/v2/health/ready").status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        yield process, server
    finally:
        process.kill()
        process.communicate()


def test_sigterm_answers_what_was_accepted_and_ends() -> None:
    with started(BUILTIN_MODEL, "--log-format", "json") as (process, server):
        picture = CAT.read_bytes()
        assert server.post("/predict", picture).json()["classes"][0]["label"] == "cat"
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.post("/explain?picture=rgba", picture).status))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        while server.metric("bcos_requests_in_progress") < 1 and not answers:
            time.sleep(0.001)
        answered = len(answers)  # before the metric, so that no request is counted twice
        accepted = answered + server.metric("bcos_requests_in_progress")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        for thread in threads:
            thread.join(10)
    assert len([status for status in answers if status == 200]) >= accepted
    assert set(answers) == {200}
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors


def test_workers_share_the_port_and_report_the_figures_of_all() -> None:
    with started(BUILTIN_MODEL, "--workers", "2", BCOS_SDK_SERVE_TOKEN="abc") as (process, server):
        token = {"Authorization": "Bearer abc"}
        assert server.post("/predict", CAT.read_bytes()).status == 401
        answers = [server.post("/predict", CAT.read_bytes(), token) for _ in range(10)]
        served = sum(answer.status == 200 for answer in answers)
        assert {answer.status for answer in answers} <= {200, 503}, "the other worker may not be ready yet"
        text = server.get("/metrics", token).body.decode()
        assert f'bcos_requests_total{{code="200",route="/predict"}} {served}.0' in text
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_wrong_arguments_are_errors_of_the_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    missing = run(main, ["serve", "no-such-model"])
    assert missing.exit_code != 0
    assert "no-such-model" in missing.stderr
    (tmp_path / "token").write_text("")
    empty = run(main, ["serve", "--token-file", str(tmp_path / "token")])
    assert "has no token" in empty.stderr


@pytest.mark.full
def test_an_unmodified_tritonclient_gets_the_same_tensors() -> None:
    triton = pytest.importorskip("tritonclient.http")
    import numpy as np

    from bcos_sdk.backends import open_backend
    from bcos_sdk.bundle import find_bundle

    colours = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)
    images, targets = np.concatenate([colours, 1 - colours], axis=1), np.array([[3, -1], [10, 0]], np.int64)
    expected = open_backend(find_bundle(BUILTIN_MODEL), "cpu", threads=1).explain(images, targets, weights=True)
    with started(BUILTIN_MODEL) as (_, server):
        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        inputs = [triton.InferInput("image", images.shape, "FP32"), triton.InferInput("targets", [2, 2], "INT64")]
        for one, array in zip(inputs, (images, targets), strict=True):
            one.set_data_from_numpy(array)
        names = ("logits", "classes", "contributions", "bias_terms", "weights")
        wanted = [triton.InferRequestedOutput(name) for name in names]
        result = client.infer(f"{BUILTIN_MODEL}_explain", inputs, outputs=wanted)
        for name in names:
            assert np.array_equal(result.as_numpy(name), getattr(expected, name)), name
