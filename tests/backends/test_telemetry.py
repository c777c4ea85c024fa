"""Runtimes send and store nothing about the user: their telemetry is off before they are imported."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from support.bundles import small_bundle
from support.watching import can_watch, watch

pytestmark = pytest.mark.skipif(not can_watch(), reason="needs Linux and a C compiler (Debian: apt install gcc)")

CONTROL = """
import socket, pathlib
try:
    socket.getaddrinfo("control.invalid", 80)
except OSError:
    pass
pathlib.Path.home().joinpath("control").touch()
"""
SEEN = ["lookup control.invalid"], {"home/control"}
"""What must be recorded: only the control, which shows that lookups and files are noticed."""


@pytest.mark.parametrize("device", ["cpu", "openvino", "auto"])
def test_a_client_stores_nothing_and_looks_up_no_name(device: str, photograph: Path, tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    program = f"""
import time
from bcos_sdk import Client
with Client({str(small_bundle().path)!r}, device={device!r}) as client:
    client.explain({str(photograph)!r})
    print(client.device)
time.sleep(1)  # messages are sent by threads
"""
    seen = watch(program + CONTROL, folder)
    assert seen.stdout.split() == [device.replace("auto", "openvino")]
    assert (seen.network, seen.files) == SEEN


@pytest.mark.needs_torch
def test_an_export_stores_nothing_and_looks_up_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    program = f"""
import torch
from bcos_sdk.exporters import export
from bcos_sdk.models.layers import BcosConv2d
network = torch.nn.Sequential(BcosConv2d(6, 3, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
export(network, {str(tmp_path / "bundle")!r}, input_size=(8, 8), max_batch=2)
"""
    seen = watch(program + CONTROL, folder)
    assert (seen.network, seen.files) == SEEN


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
