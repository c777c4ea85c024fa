"""Every call to CUDA exists in the real bindings with these arguments. Without a driver each returns an error code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bcos_sdk.backends.tensorrt import _cuda

pytest.importorskip("cuda.bindings.runtime", reason="pip install 'bcos-sdk[trt-rtx]' brings the bindings")

PROGRAM = """
import inspect, json
from importlib import import_module
from bcos_sdk.backends.tensorrt import Cuda
from bcos_sdk.errors import BcosError

real = import_module("cuda.bindings.runtime")
called = []

class Runtime:
    def __getattr__(self, name):
        found = getattr(real, name)
        if name.startswith("cuda") and callable(found) and not isinstance(found, type):
            called.append(name)
        return found

cuda = object.__new__(Cuda)
cuda._runtime, cuda.index = Runtime(), 0
outcomes = {}
for name, method in inspect.getmembers(Cuda, inspect.isfunction):
    if name.startswith("_") or name == "selected":
        continue
    names = [one for one in inspect.signature(method).parameters if one != "self"]
    try:
        outcomes[name] = repr(method(cuda, *[64 if one != "queue" else (lambda: True) for one in names]))
    except BcosError as error:
        outcomes[name] = error.message
try:
    with cuda.selected():
        pass
except BcosError as error:
    outcomes["selected"] = error.message
# `capture` ends with its first call, so the others that it makes are called on their own.
others = {"cudaStreamEndCapture": [64], "cudaGraphInstantiate": [64, 0], "cudaGraphDestroy": [64]}
for name, arguments in others.items():
    try:
        outcomes[name] = repr(cuda._call(name, *arguments))
    except BcosError as error:
        outcomes[name] = error.message
print(json.dumps([outcomes, sorted(set(called))]))
"""


def test_every_call_exists_and_takes_these_arguments() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    outcomes, called = json.loads(done.stdout.splitlines()[-1])
    if "CUDA error" not in outcomes["select"]:
        pytest.skip("this machine has a driver: `make test-gpu` makes these calls")
    assert {outcome.partition(" failed with ")[2].partition(" ")[0] for outcome in outcomes.values()} == {"CUDA"}
    written = set(re.findall(r'_call\("(\w+)"', Path(_cuda.__file__).read_text("utf-8")))
    assert set(called) == written
    assert len(written) > 20
