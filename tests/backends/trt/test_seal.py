"""The seal of an engine: what it covers, and the key that makes it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bundles import copy_of, small_bundle
from support.gpu_machine import GpuMachine

from bcos_sdk.backends import Device, open_backend
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.tensorrt import TENSORRT, EngineRecord, find_engine, key_for_gpu, obtain_engine
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import EngineError

KNOWN = bytes(range(32))
STRANGER = 54321


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the key. There is none yet."""
    monkeypatch.setenv("BCOS_SDK_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "key"


@pytest.mark.usefixtures("machine")
def test_the_key_is_made_once_and_for_this_user_alone(bundle: Bundle, key: Path) -> None:
    assert open_backend(bundle, "auto").device == Device(CPU)
    assert not key.exists(), "looking for engines makes no key"
    open_backend(bundle, "tensorrt").close()
    first = key.read_bytes()
    assert len(first) == 32
    open_backend(bundle, "tensorrt", tf32=True).close()
    assert key.read_bytes() == first
    if sys.platform != "win32":
        assert [stat.S_IMODE(path.stat().st_mode) for path in (key.parent, key)] == [0o700, 0o600]


CHANGES: dict[str, Any] = {"plan_sha256": "0" * 64, "size": 1, "seconds": 1e6, "peak_memory": 1, "seal": "0" * 64}


@pytest.mark.usefixtures("machine", "key")
@pytest.mark.parametrize("field", [*EngineRecord.model_fields])
def test_every_field_of_the_record_is_sealed(bundle: Bundle, tmp_path: Path, field: str) -> None:
    graph = bundle.explain_graph
    wanted = key_for_gpu(bundle, graph, "tensorrt", 0, tf32=False)
    record = obtain_engine(bundle, graph, [wanted], 0).record
    cached = tmp_path / "cache" / "engines"
    (path,) = cached.glob("*.json")
    other = wanted.model_copy(update={"tf32": True})
    changed = record.model_copy(update={field: other if field == "key" else CHANGES[field]})
    path.write_text(changed.model_dump_json(), "utf-8")
    found = find_engine([cached], "explain", other if field == "key" else wanted)
    assert isinstance(found, str)
    assert found.endswith("it was not built by this user on this machine")


def link_key(key: Path) -> None:
    elsewhere = key.parent.with_name("elsewhere")
    elsewhere.write_bytes(KNOWN)
    elsewhere.chmod(0o600)
    key.symlink_to(elsewhere)


def write_key(key: Path, mode: int, contents: bytes = KNOWN) -> None:
    key.write_bytes(contents)
    key.chmod(mode)


def give_key(key: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    write_key(key, 0o600)
    os.chown(key, STRANGER, STRANGER)


BAD_KEYS: dict[str, Callable[[Path], None]] = {
    "others could read it": lambda key: write_key(key, 0o644),
    "short": lambda key: write_key(key, 0o600, KNOWN[:5]),
    "long": lambda key: write_key(key, 0o600, KNOWN + b"x"),
    "link": link_key,
    "of another user": give_key,
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither owners nor modes of this kind")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("case", BAD_KEYS)
def test_a_key_that_may_be_known_to_others_is_replaced(bundle: Bundle, key: Path, case: str) -> None:
    key.parent.mkdir(0o700)
    BAD_KEYS[case](key)
    open_backend(bundle, "tensorrt").close()
    assert not key.is_symlink()
    assert not key.read_bytes().startswith(KNOWN[:5])
    assert (len(key.read_bytes()), stat.S_IMODE(key.stat().st_mode)) == (32, 0o600)
    assert open_backend(bundle, "auto").device == Device(TENSORRT)


def test_without_a_place_for_the_key_nothing_is_built(machine: GpuMachine, bundle: Bundle, key: Path) -> None:
    key.parent.write_text("in the way")
    with pytest.raises(EngineError, match=r"(?s)cannot write .*key.*BCOS_SDK_CONFIG"):
        open_backend(bundle, "tensorrt")
    assert machine.builds == []
