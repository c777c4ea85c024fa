"""`bcos-sdk inspect`, `validate` and `doctor`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.bundles import copy_of, edit_manifest, sign_again, small_bundle

from bcos_sdk.backends import Device, check_device
from bcos_sdk.cli import _doctor, main


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


def test_damage_is_told_apart_by_the_exit_code(bundle: Path) -> None:
    weights = bundle / "weights.bin"
    values = np.frombuffer(weights.read_bytes(), np.float32).copy()
    values[:50] *= 2
    weights.write_bytes(values.tobytes())
    changed = run("validate", bundle)
    assert (changed.exit_code, "[bundle_invalid]" in changed.stderr) == (1, True)
    sign_again(bundle)
    different = run("validate", bundle)
    assert (different.exit_code, "[self_test_failed]" in different.stderr) == (3, True)


def test_what_does_not_add_up_is_exit_code_4(bundle: Path) -> None:
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
        assert "cannot be read as ONNX" in result.stderr


@pytest.mark.needs_torch
def test_the_doctor_knows_this_machine() -> None:
    result = run("doctor")
    assert result.exit_code == 0
    assert "device cpu" in result.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["devices"]["cpu"] is None
    assert found["packages"]["torch"]
    assert {"cpu", "openvino", "cuda:0", "tensorrt:0"} <= found["devices"].keys()
    assert bool(found["driver"]["gpus"]) == (found["driver"]["problem"] is None)


def test_the_doctor_sees_both_runtimes_and_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor, "installed_version", lambda name: "1.0")
    monkeypatch.setattr(_doctor, "check_device", lambda device: "broken")
    result = run("doctor")
    assert result.exit_code == 1
    assert "both installed and overwrite each other" in result.stdout
    assert "device cpu         no: broken" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_offered_completion(shell: str) -> None:
    environment = {**os.environ, "_BCOS_SDK_COMPLETE": f"{shell}_source"}
    program = "from bcos_sdk.cli import main; main(prog_name='bcos-sdk')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert "_BCOS_SDK_COMPLETE" in done.stdout


def test_devices_are_tried_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_device(Device("cpu")) is None
    from bcos_sdk.backends import _check

    monkeypatch.setattr(_check, "problem_of", lambda device: None)
    assert "does not work here" in str(check_device(Device("cuda", 7)))

    class Wrong:
        def run(self, *_: Any) -> Any:
            return [np.array([2, 5])]

    monkeypatch.setattr(_check, "open_session", lambda *_: Wrong())
    assert check_device(Device("cpu")) == "it computes wrongly"
