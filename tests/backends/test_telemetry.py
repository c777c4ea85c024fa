"""An application may keep the telemetry of a runtime. That it is off by default is tested in tests/attacks."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from support.watching import can_watch, watch


@pytest.mark.skipif(not can_watch(), reason="needs Linux and a C compiler (Debian: apt install gcc)")
def test_the_application_may_keep_the_telemetry_of_onnxruntime(tmp_path: Path) -> None:
    program = """
import os
os.environ["ORT_DISABLE_TELEMETRY"] = "0"
from bcos_sdk._telemetry import import_onnxruntime
import_onnxruntime()
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""
    seen = watch(program, tmp_path)
    assert seen.stdout.strip() == "0"
    if tuple(map(int, version("onnxruntime").split(".")[:2])) >= (1, 29):  # the first version with telemetry on Linux
        assert any(".onnxruntime" in file for file in seen.files)
