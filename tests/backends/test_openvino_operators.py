"""OpenVINO computes every operator of the exporter's table as the Jacobian in float64 says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.openvino_cases import DIFFERS
from support.operator_cases import CASES

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")

TOLERANCE = 2e-5
PARTS = 16
FAST = 1
"""The number of parts in the fast tests. `make test-full` runs all of them."""


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[] if part < FAST else [pytest.mark.full]) for part in range(PARTS)]
)
def test_every_operator(part: int) -> None:
    """In a child process, because OpenVINO may crash. The output then ends with the name of the case."""
    names = list(CASES)[part::PARTS]
    program = "from support.openvino_cases import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *names], capture_output=True, text=True, check=False, env=environment
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]} ended the process: {done.stderr[-2000:]}"
    errors = dict(zip(lines[::2], map(json.loads, lines[1::2]), strict=True))
    assert list(errors) == names
    differs = {name for name, error in errors.items() if not all(value < TOLERANCE for value in error.values())}
    assert differs == DIFFERS.keys() & set(names), {name: errors[name] for name in differs}
