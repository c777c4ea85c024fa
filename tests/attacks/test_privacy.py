"""Runtimes send and store nothing about the user: their telemetry is off before they are imported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.attacks import HELD, attack
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

STORED = "ONNX Runtime stored an id of the device and a database"


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=attack("privacy", "a client with ONNX Runtime", before=STORED)),
        pytest.param("openvino", marks=attack("privacy", "a client with OpenVINO", before=HELD)),
        pytest.param("auto", marks=attack("privacy", "a client that tries the runtimes", before=STORED)),
    ],
)
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
    verdicts = {file for file in seen.files if re.fullmatch(r"home/\.cache/bcos-sdk/trials/[0-9a-f]{64}\.json", file)}
    assert len(verdicts) == (device == "auto"), "whether the runtime can run the bundle here, by its digest"
    assert (seen.network, seen.files - verdicts) == SEEN


@attack("privacy", "an export, which runs ONNX Runtime", before=STORED)
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
