"""`bcos-sdk serve` as a process: its address, workers, SIGTERM, and errors of its arguments."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from click.testing import CliRunner
from support.serving import Server
from support.waiting import until
from uvicorn.config import STARTUP_FAILURE

from bcos_sdk import serve
from bcos_sdk.bundle import BUILTIN_MODEL, builtin_bundle
from bcos_sdk.cli import main
from bcos_sdk.serve import ServeSettings
from bcos_sdk.serve._app import app_of_worker
from bcos_sdk.serve._settings import SETTINGS_VARIABLE

CAT = Path(__file__).resolve().parents[2] / "samples" / "cat-1.jpg"


COMMAND = (sys.executable, "-c", "from bcos_sdk.cli import main; main()", "serve", "--port", "0", "--device", "cpu")


def is_ready(server: Server) -> bool:
    try:
        return server.get("/v2/health/ready").status == 200
    except OSError:  # several workers: nobody listens before the first is ready
        return False


@contextlib.contextmanager
def started(
    *arguments: str, log: Path | None = None, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], Server]]:
    with contextlib.ExitStack() as stack:
        errors = subprocess.PIPE if log is None else stack.enter_context(log.open("w"))
        process = subprocess.Popen(
            [*COMMAND, "--threads", "1", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | environment,
        )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        server = Server(int(found[1]))
        until(lambda: is_ready(server), pause=0.1)
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
    assert f"on cpu at http://127.0.0.1:{server.port}" in errors, "the log names the address when the model is ready"


def worker_of(process: int) -> int:
    """A worker process of a server."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise AssertionError("the server has no worker")


def test_workers_answer_when_their_model_is_ready_and_report_the_figures_of_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(BUILTIN_MODEL, "--workers", "2", log=log, BCOS_SDK_SERVE_TOKEN="abc") as (process, server):
        token = {"Authorization": "Bearer abc"}
        assert server.post("/predict", CAT.read_bytes()).status == 401
        statuses: list[int] = []

        def ask_until_ready(workers: int) -> bool:
            statuses.append(server.post("/predict", CAT.read_bytes(), token).status)
            return log.read_text().count("ready:") >= workers

        until(lambda: ask_until_ready(2))
        if sys.platform == "linux":
            killed = worker_of(process.pid)
            os.kill(killed, signal.SIGKILL)
            state = Path(f"/proc/{killed}/stat")
            until(lambda: not state.exists() or ") Z " in state.read_text())
            until(lambda: ask_until_ready(3))
        assert set(statuses) == {200}, "a worker gets no requests while its model is being loaded"
        text = server.get("/metrics", token).body.decode()
        assert f'bcos_requests_total{{code="200",route="/predict"}} {len(statuses)}.0' in text
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_worker_has_its_model_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(**client: Any) -> str:
        return ServeSettings(model=str(builtin_bundle()), workers=2, client=client).model_dump_json()

    monkeypatch.setattr("bcos_sdk.serve._app.configure_logs", lambda _form: None)
    monkeypatch.setenv(SETTINGS_VARIABLE, settings(device="cpu", threads=1))
    service = app_of_worker().state.service
    assert service.ready
    service.client.close()
    monkeypatch.setenv(SETTINGS_VARIABLE, settings(device="cuda:97"))
    with pytest.raises(SystemExit) as ended:
        app_of_worker()
    assert ended.value.code == STARTUP_FAILURE, "uvicorn does not start the worker again"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_that_cannot_be_opened_ends_the_server_with_its_error(workers: str) -> None:
    arguments = ("--device", "cuda:97", "--workers", workers)
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stderr
    assert "the model cannot be served: [device_unavailable]" in done.stderr
    assert "error [" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_and_a_name_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path stays a path: a name without a folder would mean an export of the store."""
    started: list[ServeSettings] = []
    monkeypatch.setattr(serve, "run_server", lambda settings, _announce: started.append(settings))
    (tmp_path / "mine").symlink_to(builtin_bundle())
    monkeypatch.chdir(tmp_path)
    for model in ("./mine", str(tmp_path / "mine"), BUILTIN_MODEL):
        done = CliRunner().invoke(main, ["serve", model])
        assert done.exit_code == 0, done.output
    assert {settings.model for settings in started} == {str(builtin_bundle().resolve())}


def test_wrong_arguments_are_errors_of_the_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    missing = run(main, ["serve", "no-such-model"])
    assert missing.exit_code != 0
    assert "no-such-model" in missing.stderr
    (tmp_path / "token").write_text("")
    empty = run(main, ["serve", "--token-file", str(tmp_path / "token")])
    assert "has no token" in empty.stderr
    absent = run(main, ["serve", "--token-file", str(tmp_path / "absent")])
    assert "No such file" in absent.stderr
    assert "ASCII" not in absent.stderr
    name = run(main, ["serve", "--name", "a/b"])
    assert "'a/b' cannot be the name of a model" in name.stderr
    host = run(main, ["serve", "--host", "999.1.1.1"])
    assert "cannot listen on 999.1.1.1:8000" in host.stderr
    assert "--host" in host.stderr
    assert "--port" not in host.stderr
    assert {one.exit_code for one in (absent, name, host)} == {1}


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
