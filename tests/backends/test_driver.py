"""The driver is probed in a child process, so that its crash is an answer and not a crash of this process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bcos_sdk.backends import Driver, Gpu, _driver, probe_driver
from bcos_sdk.backends._driver import ask_driver

A, B = Gpu(name="Ada", capability="8.9"), Gpu(name="Blackwell", capability="12.0")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            f"print({Driver(gpus=(A, B), cuda='13.1', version='580.65').model_dump_json()!r})",
            Driver(gpus=(A, B), cuda="13.1", version="580.65"),
        ),
        ("""print('{"gpus": []}')""", Driver(problem="the NVIDIA driver reports no GPU")),
        ("import sys; sys.exit('no NVIDIA driver is installed')", Driver(problem="no NVIDIA driver is installed")),
        ("import os; os.abort()", Driver(problem="the NVIDIA driver crashed with signal 6")),
        ("import sys; sys.exit(3)", Driver(problem="the NVIDIA driver could not be queried")),
    ],
)
def test_every_end_of_the_child_process_is_an_answer(program: str, expected: Driver) -> None:
    assert ask_driver([sys.executable, "-c", program]) == expected


def test_a_driver_that_hangs_or_cannot_be_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "_SECONDS", 0.2)
    assert "did not respond" in str(ask_driver([sys.executable, "-c", "import time; time.sleep(9)"]).problem)
    assert "could not be queried" in str(ask_driver(["/no/such/program"]).problem)


def test_the_real_probe_runs_and_agrees_with_torch() -> None:
    import torch

    _driver.forget_driver()
    driver = probe_driver()
    assert bool(driver.gpus) == torch.cuda.is_available()
    assert (driver.problem is None) == bool(driver.gpus)


LIBCUDA = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = 10 + index; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    strncpy(name, device == 10 ? "Ada" : "Blackwell", size);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = device == 10 ? (attribute == 75 ? 8 : 9) : (attribute == 75 ? 12 : 0);
    return 0;
}
int cuDriverGetVersion(int *version) { *version = 13010; return 0; }
"""
LIBNVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { strncpy(version, "580.65", size); return 0; }
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_the_probe_reads_the_answers_of_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is two small C libraries."""
    for library, source in {"libcuda.so.1": LIBCUDA, "libnvidia-ml.so.1": LIBNVML}.items():
        (tmp_path / "source.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / library, tmp_path / "source.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    driver = ask_driver([sys.executable, "-I", "-c", _driver.DRIVER_PROGRAM])
    assert driver == Driver(gpus=(A, B), cuda="13.1", version="580.65")
