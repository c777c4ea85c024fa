"""`bcos-sdk inspect`, `validate` and `doctor` on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.bundles import copy_of, edit_manifest, sign_again, small_bundle

from bcos_sdk.backends import Device, check_device, examine_device
from bcos_sdk.backends._probe import PROBE_SPECS, Outcome, probe_image, probe_model
from bcos_sdk.backends.onnxruntime import CPU, CUDA
from bcos_sdk.cli import _doctor_command, main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return copy_of(small_bundle(), tmp_path / "bundle")


def test_a_good_bundle_is_valid(bundle: Path) -> None:
    result = run("validate", bundle, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["ok", "hashes"],
        ["ok", "predict"],
        ["ok", "explain"],
        ["ok", "completeness"],
    ]


def test_changed_files_and_wrong_outputs_have_different_exit_codes(bundle: Path) -> None:
    weights = bundle / "weights.bin"
    values = np.frombuffer(weights.read_bytes(), np.float32).copy()
    values[:50] *= 2
    weights.write_bytes(values.tobytes())
    changed = run("validate", bundle)
    assert (changed.exit_code, "[bundle_invalid]" in changed.stderr) == (1, True)
    sign_again(bundle)
    different = run("validate", bundle)
    assert (different.exit_code, "[self_test_failed]" in different.stderr) == (3, True)


def test_an_incomplete_explanation_is_exit_code_4(bundle: Path) -> None:
    edit_manifest(bundle, lambda document: document.update(tolerance=1e-30))
    result = run("validate", bundle)
    assert result.exit_code == 4
    assert "[explanation_incomplete]" in result.stderr


@pytest.mark.needs_torch
def test_inspecting_a_bundle(bundle: Path) -> None:
    text = run("inspect", bundle).stdout
    for expected in (
        "small",
        "20×28",
        "resize 32",
        "head.bias",
        "contributions float[batch, targets, 20, 28]",
        "Conv ",
    ):
        assert expected in text
    document = json.loads(run("inspect", bundle, "--json").stdout)
    assert document["graphs"]["explain.onnx"]["explains"] is True
    assert document["graphs"]["predict.onnx"]["explains"] is False
    assert document["manifest"]["classes"] == 7


@pytest.mark.needs_torch
def test_inspecting_a_graph(bundle: Path, tmp_path: Path) -> None:
    found = json.loads(run("inspect", bundle / "explain.onnx", "--json").stdout)
    assert found["bias_terms"] == ["head.bias", "position"]
    assert found["inputs"] == {"image": "float[batch, 6, 20, 28]", "targets": "int64[batch, targets]"}
    assert "explains   no" in run("inspect", bundle / "predict.onnx").stdout
    (tmp_path / "none.onnx").write_bytes(b"\xff\xff\xff")
    for name in ("none.onnx", "missing.onnx"):
        result = run("inspect", tmp_path / name)
        assert result.exit_code == 1
        assert f"cannot read {tmp_path / name} as ONNX" in result.stderr


@pytest.mark.needs_torch
def test_doctor_describes_this_machine() -> None:
    result = run("doctor")
    assert result.exit_code == 0
    assert "device cpu" in result.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["devices"]["cpu"] is None
    assert found["packages"]["torch"]
    assert {"cpu", "openvino", "cuda:0", "tensorrt:0"} <= found["devices"].keys()
    assert bool(found["driver"]["gpus"]) == (found["driver"]["problem"] is None)


def test_doctor_warns_of_two_runtimes_and_fails_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor_command, "installed_version", lambda name: "1.0")
    monkeypatch.setattr(_doctor_command, "examine_device", lambda device: Outcome("broken"))
    result = run("doctor")
    assert result.exit_code == 1
    assert "both installed and overwrite each other" in result.stdout
    assert re.search(r"^device cpu +no: broken$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_available(shell: str) -> None:
    environment = {**os.environ, "_BCOS_SDK_COMPLETE": f"{shell}_source"}
    program = "from bcos_sdk.cli import main; main(prog_name='bcos-sdk')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert "_BCOS_SDK_COMPLETE" in done.stdout


def test_devices_are_tried_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_device(Device(CPU)) is None
    monkeypatch.setattr(CUDA, "problem", lambda index: None)
    assert "does not work here" in str(check_device(Device(CUDA, 7)))

    class Wrong:
        def run(self, *_: Any) -> Any:
            right = dict(opened.run({"image": probe_image()}, PROBE_SPECS))
            return {**right, spoilt: right[spoilt] * np.float32(1 + error)}

        def close(self) -> None:
            """Nothing to free."""

    opened = CPU.open_onnx(probe_model(), 0)
    for spoilt in PROBE_SPECS:
        error = 1e-2
        monkeypatch.setattr(CPU, "open_onnx", lambda *_: Wrong())
        assert f"wrong results: the error of a {spoilt.replace('_', ' ')} is 1e-02" in str(check_device(Device(CPU)))
        error = 3e-4
        assert examine_device(Device(CPU)).precision == "tf32"
        error = 0.0
        assert examine_device(Device(CPU)).precision == "fp32"
