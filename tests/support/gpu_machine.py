"""A simulated machine with two GPUs, a driver and TensorRT.

The package finds out about a machine in three ways, and each is replaced here: packages are imported (`sys.modules`),
the driver is probed in a child process (`ask_driver`), and TensorRT builds in a child process (`run_child`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bcos_sdk.backends import Driver, Gpu, _driver
from bcos_sdk.backends.tensorrt import PinnedBuffer, _flavours, _worker
from bcos_sdk.errors import EngineError
from support.fake_gpu import FakeCuda, FakeTensorRT, cuda_modules, fake_plan

GPUS = (Gpu(name="NVIDIA L4", capability="8.9"), Gpu(name="NVIDIA RTX PRO 6000", capability="12.0"))

Worker = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class GpuMachine:
    """The simulated machine. `update` changes its software while a test runs."""

    cuda: FakeCuda = field(default_factory=FakeCuda)
    driver: Driver = field(default_factory=lambda: Driver(gpus=GPUS, cuda="13.1", version="580.65"))
    jobs: list[dict[str, Any]] = field(default_factory=list)
    fails: str | None = None
    """If set, every build fails with this message."""

    def __post_init__(self) -> None:
        self.trt = FakeTensorRT(self.cuda)

    @property
    def builds(self) -> list[str]:
        """The names of the graphs from which an engine was built."""
        return [Path(job["graph"]).name for job in self.jobs if job["task"] == "build"]

    def update(self, *, tensorrt: str | None = None, **driver: Any) -> None:
        """Install another version of TensorRT, or change fields of the driver."""
        if tensorrt is not None:
            self.trt.__version__ = tensorrt
        self.driver = self.driver.model_copy(update=driver)
        forget()

    def work(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do the job of the child process."""
        self.jobs.append(job)
        if job["task"] == "build":
            if self.fails is not None:
                raise EngineError(self.fails)
            plan = fake_plan(job["graph"], job["profiles"], job.get("channels"))
            with Path(job["plan"]).open("xb") as file:
                file.write(plan)
            built = {"plan_sha256": hashlib.sha256(plan).hexdigest(), "size": len(plan)}
            return {"version": self.trt.__version__, "layers": 1, "peak_memory": 1 << 20, **built}
        return {"version": self.trt.__version__}


def install(monkeypatch: pytest.MonkeyPatch, cache: Path) -> GpuMachine:
    """Replace this machine by a simulated one, without TensorRT for RTX and OpenVINO, until the test ends."""
    machine = GpuMachine()
    for name, module in cuda_modules(machine.cuda).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "tensorrt", machine.trt)
    uninstall(monkeypatch, "tensorrt_rtx", "openvino")
    use_driver(monkeypatch, lambda: machine.driver)
    use_worker(monkeypatch, machine.work)
    monkeypatch.setenv("BCOS_SDK_CACHE", str(cache))
    _watch_host(monkeypatch, machine.cuda)
    return machine


def _watch_host(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> None:
    """Tell the simulated GPU when the host touches pinned memory."""
    array = PinnedBuffer.array

    def watched(self: PinnedBuffer, *how: Any) -> Any:
        made = array(self, *how)
        cuda.touch(self.address, made.nbytes)
        return made

    monkeypatch.setattr(PinnedBuffer, "array", watched)


def install_empty(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make these modules look as if they were installed. They are empty."""
    for name in modules:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)


def uninstall(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make these modules look as if they were not installed."""
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def use_driver(monkeypatch: pytest.MonkeyPatch, driver: Callable[[], Driver]) -> None:
    """Let the child process that probes the driver return this driver. Call `forget` when the test ends."""
    monkeypatch.setattr(_driver, "ask_driver", lambda _command: driver())
    monkeypatch.setattr(_flavours, "may_have_gpu", lambda: False)  # also on a machine that has one
    forget()


def use_worker(monkeypatch: pytest.MonkeyPatch, work: Worker) -> None:
    """Let this function do the jobs of TensorRT's child process. Call `forget` when the test ends."""
    monkeypatch.setattr(_worker, "run_child", lambda job: json.dumps(work(json.loads(job))))
    forget()


def intercept_builds(monkeypatch: pytest.MonkeyPatch, work: Callable[[dict[str, Any], Worker], dict[str, Any]]) -> None:
    """Let `work(job, build)` do the builds of TensorRT's child process; `build(job)` is the real child process."""
    real = _worker.run_child

    def build(job: dict[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(real(json.dumps(job)).splitlines()[-1])
        return reply

    def run_child(text: str) -> str:
        job = json.loads(text)
        return json.dumps(work(job, build)) if job["task"] == "build" else real(text)

    monkeypatch.setattr(_worker, "run_child", run_child)


def forget() -> None:
    """Clear the cached answers about driver and TensorRT."""
    _driver.forget_driver()
    _flavours.forget_flavours()
