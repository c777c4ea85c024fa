"""A machine with two GPUs, a driver and TensorRT, none of which is there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bcos_sdk.backends import _devices
from bcos_sdk.backends._driver import Driver, Gpu
from bcos_sdk.backends.tensorrt import _build, _flavours, _obtain
from bcos_sdk.backends.tensorrt import _graph as _tensorrt
from bcos_sdk.errors import EngineError
from support.fake_gpu import FakeCuda, FakeTensorRT, cuda_modules, fake_plan

GPUS = (Gpu(name="NVIDIA L4", capability="8.9"), Gpu(name="NVIDIA RTX PRO 6000", capability="12.0"))


@dataclass
class GpuMachine:
    """Its parts can be changed while it runs, as updates do."""

    cuda: FakeCuda = field(default_factory=FakeCuda)
    driver: Driver = field(default_factory=lambda: Driver(gpus=GPUS, cuda="13.1", version="580.65"))
    flavours: tuple[str, ...] = ("tensorrt",)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    fails: str | None = None

    def __post_init__(self) -> None:
        self.trt = FakeTensorRT(self.cuda)

    @property
    def builds(self) -> list[str]:
        """The graphs of which an engine was built."""
        return [Path(job["graph"]).name for job in self.jobs if job["task"] == "build"]

    def update(self, version: str | None = None, **driver: Any) -> None:
        """Another version of TensorRT, or other answers of the driver."""
        if version is not None:
            self.trt.__version__ = version
        self.driver = self.driver.model_copy(update=driver)
        forget()

    def work(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the worker process would do and answer."""
        self.jobs.append(job)
        if job["task"] == "build":
            if self.fails is not None:
                raise EngineError(self.fails)
            Path(job["plan"]).write_bytes(fake_plan(job["graph"], [job["profile"]]))
        return {"version": self.trt.__version__, "layers": 1, "peak_memory": 1 << 20}


def forget() -> None:
    """What was asked once is asked again."""
    _flavours.version_of.cache_clear()
    _flavours.flavour_problem.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, cache: Path) -> GpuMachine:
    """Everything that asks for a driver, TensorRT or CUDA is answered by this machine until the test ends.

    OpenVINO is not on it.
    """
    machine = GpuMachine()
    for name, module in cuda_modules(machine.cuda).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "tensorrt", machine.trt)
    for asking in (_devices, _flavours, _obtain):
        monkeypatch.setattr(asking, "probe_driver", lambda: machine.driver)
    for asking in (_devices, _tensorrt):
        monkeypatch.setattr(asking, "installed_flavours", lambda: list(machine.flavours))
    for asking in (_flavours, _build):
        monkeypatch.setattr(asking, "run_worker", machine.work)
    monkeypatch.setattr(_devices, "is_installed", lambda _module: False)
    monkeypatch.setenv("BCOS_SDK_CACHE", str(cache))
    machine.update()
    return machine
