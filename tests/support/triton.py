"""The real tritonserver on a model repository, and calls to it in the Open Inference Protocol v2 over HTTP.

It needs an environment with `nvidia-pytriton`, which contains the server with the Python backend, and onnxruntime:
`make test-triton` makes one. BCOS_SDK_TEST_TRITON names its folder. Without it, tests that use it are skipped.

    @pytest.fixture(scope="module")
    def triton(tmp_path_factory):
        repository = tmp_path_factory.mktemp("triton") / "repository"
        write_repository(bundle, repository, RepositorySettings(flavour="python", threads=1))
        with running_triton(repository) as server:
            yield server

    server.http, server.grpc, server.metrics     # the ports
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

__all__ = ["ENVIRONMENT", "Reply", "TritonServer", "run_in_environment", "running_triton", "triton_environment"]

ENVIRONMENT = "BCOS_SDK_TEST_TRITON"
"""The environment variable that names the folder of the virtual environment with nvidia-pytriton."""
_START_SECONDS = 60
_DTYPES = {"FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8}
_DATATYPES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_HEADER = "inference-header-content-length"


class Reply(NamedTuple):
    """The answer to one call: its status, the JSON of its body, and the tensors of an inference."""

    status: int
    document: Any
    tensors: dict[str, Any]


class TritonServer:
    """A tritonserver process on free ports of loopback."""

    def __init__(self, repository: Path, environment: Path, log: Path, options: Sequence[str] = ()) -> None:
        self.repository = repository
        self.log = log
        self._environment = environment
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.http, self.grpc, self.metrics = free_ports(3)

    def start(self) -> None:
        """Start the process and wait until all models are ready. The ports stay the same after a restart."""
        (server,) = self._environment.glob("lib/python*/site-packages/pytriton/tritonserver")
        library = run_in_environment(self._environment, "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))")
        # The process of the Python backend ignores PYTHONPATH: it takes the Python that is first in PATH.
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": os.pathsep.join([str(self._environment / "bin"), os.environ["PATH"]]),
            "LD_LIBRARY_PATH": library.strip(),
            "VIRTUAL_ENV": str(self._environment),
        }
        command = [
            str(server / "bin" / "tritonserver"),
            f"--model-repository={self.repository}",
            f"--backend-directory={self._backends(server)}",
            "--disable-auto-complete-config",
            *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
            *(f"--{name}-port={getattr(self, name)}" for name in ("http", "grpc", "metrics")),
            *self._options,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"tritonserver did not start:\n{self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)

    def _backends(self, server: Path) -> Path:
        """A folder with the Python backend and the program for the version of Python that the environment has."""
        folder = self.repository.with_name(f"{self.repository.name}-backends")
        if not folder.exists():
            (folder / "python").mkdir(parents=True)
            (site,) = {path.parent.name for path in self._environment.glob("lib/python*/site-packages")}
            stub = server / "python_backend_stubs" / site.removeprefix("python") / "triton_python_backend_stub"
            for source in (*(server / "backends" / "python").glob("*triton_python*"), stub):
                (folder / "python" / source.name).symlink_to(source)
        return folder

    def kill(self) -> None:
        """End the server and the processes of its models at once, as a crash does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_START_SECONDS)
            self._process = None

    def stop(self) -> None:
        """End the server as an operator does: it finishes the requests that it has."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_START_SECONDS)
            self.kill()

    def is_ready(self) -> bool:
        try:
            return self.call("GET", "/v2/health/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One HTTP call on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            content = answer.read()
            size = int(answer.headers.get(_HEADER, len(content)))
            document: Any = json.loads(content[:size]) if size else None
            tensors = memoryview(content)[size:]
            described = document["outputs"] if tensors else ()
            return Reply(answer.status, document, dict(_tensors(described, tensors)))
        finally:
            connection.close()

    def config(self, model: str) -> dict[str, Any]:
        """The configuration of a model as the server has it."""
        found: dict[str, Any] = self.call("GET", f"/v2/models/{model}/config").document
        return found

    def infer(self, model: str, outputs: Sequence[str] = (), **inputs: Any) -> Reply:
        """Run a model with the binary tensor extension."""
        described = [
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": _DATATYPES[array.dtype],
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array in inputs.items()
        ]
        document: dict[str, Any] = {"inputs": described, "parameters": {"binary_data_output": True}}
        if outputs:
            document["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        header = json.dumps(document).encode()
        body = b"".join([header, *(np.ascontiguousarray(array).tobytes() for array in inputs.values())])
        return self.call("POST", f"/v2/models/{model}/infer", body, {_HEADER: str(len(header))})

    def metric(self, name: str, model: str) -> float:
        """A metric of Prometheus for one model, summed over its other labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=60)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        wanted = re.compile(rf'{name}\{{.*model="{re.escape(model)}".*\}} (\S+)')
        return sum(float(found[1]) for found in map(wanted.fullmatch, lines) if found)


def _tensors(described: Sequence[Mapping[str, Any]], content: memoryview) -> Iterator[tuple[str, Any]]:
    for one in described:
        size = one["parameters"]["binary_data_size"]
        yield one["name"], np.frombuffer(content[:size], _DTYPES[one["datatype"]]).reshape(one["shape"])
        content = content[size:]


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in sockets]


def triton_environment() -> Path:
    """The environment with the server; skip the test if there is none."""
    if not (folder := os.environ.get(ENVIRONMENT)):
        pytest.skip(f"needs a tritonserver: run `make test-triton`, or set {ENVIRONMENT}")
    return Path(folder).absolute()


def run_in_environment(environment: Path, program: str, *arguments: str, stdin: str = "") -> str:
    """Run a Python program with the packages of the environment; return its stdout."""
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", program, *arguments],
        input=stdin,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running_triton(repository: Path, *options: str) -> Iterator[TritonServer]:
    """Run a server on the repository until the end of the block."""
    server = TritonServer(repository, triton_environment(), repository.with_name(f"{repository.name}.log"), options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
