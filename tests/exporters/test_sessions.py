"""During an export ONNX Runtime runs in a child process. If it crashes there, the export fails and leaves no file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bcos_sdk.errors import ExportError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.verify import _sessions
from bcos_sdk.exporters.verify._session_process import read_frame, write_frame

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """A process of this test's own."""
    kept = _sessions._THREAD.process
    _sessions._THREAD.process = None
    yield
    if _sessions._THREAD.process is not None:
        _sessions._THREAD.process.end()
    _sessions._THREAD.process = kept


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(6, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


def test_a_crash_is_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _sessions.Session.run

    def crashes(self: Any, *arguments: Any) -> Any:
        assert _sessions._THREAD.process is not None
        os.kill(_sessions._THREAD.process._child.pid, signal.SIGSEGV)
        return run(self, *arguments)

    monkeypatch.setattr(_sessions.Session, "run", crashes)
    with pytest.raises(ExportError, match=r"ONNX Runtime failed while running \w+\.onnx: signal 11 ended its process"):
        export(network(), tmp_path / "b", input_size=(8, 8), max_batch=1)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    export(network(), tmp_path / "b", input_size=(8, 8), max_batch=1)  # a new process has replaced it


def test_the_process_ends_with_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sessions._THREAD, "depth", 0)
    seen = []
    start = _sessions._Process.__init__

    def noted(self: Any) -> None:
        start(self)
        seen.append(self)

    monkeypatch.setattr(_sessions._Process, "__init__", noted)
    export(network(), tmp_path / "b", input_size=(8, 8), max_batch=1)
    assert [process.has_ended for process in seen] == [True]


def test_a_graph_that_does_not_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(b"no graph")
    with pytest.raises(ExportError, match=r"failed while loading graph\.onnx: .*INVALID_PROTOBUF"):
        _sessions.open_session(tmp_path / "graph.onnx")


def test_arrays_of_every_kind_pass_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    arrays = {
        "scalar": np.float32(3.5).reshape(()),
        "empty": np.zeros((0, 3), np.int64),
        "flags": np.array([[True], [False]]),
        "transposed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
    }
    with path.open("wb") as pipe:
        write_frame(pipe, {"do": "run"}, arrays)
    with path.open("rb") as pipe:
        header, got = read_frame(pipe)
        with pytest.raises(EOFError):
            read_frame(pipe)
    assert header == {"do": "run"}
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)
