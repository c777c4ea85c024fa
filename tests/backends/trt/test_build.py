"""Engines that TensorRT for RTX builds without a GPU: each is built once, and a failed build leaves no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.bundles import MAX_BATCH, SIZE, copy_of, sign_again, small_bundle
from support.gpu_machine import Worker, intercept_builds

from bcos_sdk import contract
from bcos_sdk._files import sha256_of
from bcos_sdk.backends.tensorrt import EngineRecord, build_engines, run_worker
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import EngineError, OutputError

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' builds engines without a GPU")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def files(bundle: Bundle) -> list[str]:
    folder = bundle.path / "engines"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("capabilities", [("8.9",), ("8.6", "12.0")])
def test_engines_are_built_ahead_of_time(bundle: Bundle, capabilities: tuple[str, ...]) -> None:
    built = build_engines(bundle, compute_capabilities=capabilities)
    for (name, record), graph in zip(built, (bundle.predict_graph, bundle.explain_graph), strict=True):
        plan = bundle.path / "engines" / name
        assert plan.stat().st_size == record.size > 1000
        assert sha256_of(plan) == record.plan_sha256
        assert record.key.graph_sha256 == sha256_of(graph)
        assert record.key.compute_capabilities == capabilities
        assert (record.key.tf32, record.key.gpu, record.key.driver) == (False, None, None)
        assert record.peak_memory is None or record.peak_memory > 50e6
        assert EngineRecord.model_validate_json(plan.with_suffix(".json").read_text("utf-8")) == record
    assert len(files(bundle)) == 4, "two plans and two records"
    open_bundle(bundle.path)


def test_an_existing_engine_is_not_built_again(bundle: Bundle) -> None:
    stages: list[str] = []
    first = build_engines(bundle, compute_capabilities=["8.9"], progress=stages.append)
    assert build_engines(bundle, compute_capabilities=["8.9"], progress=stages.append) == first
    assert len(stages) == 2
    others = build_engines(bundle, compute_capabilities=["8.9"], tf32=True)
    assert {name for name, _ in others}.isdisjoint(name for name, _ in first)
    assert all(record.key.tf32 for _, record in others)


def test_profiles_range_from_one_image_to_the_largest_batch(bundle: Bundle) -> None:
    image = ((1, 6, *SIZE), (MAX_BATCH, 6, *SIZE), (MAX_BATCH, 6, *SIZE))
    assert bundle.input_shapes(bundle.predict_graph) == {"image": image}
    targets = ((1, 1), (MAX_BATCH, 1), (MAX_BATCH, MAX_BATCH))
    assert bundle.input_shapes(bundle.explain_graph) == {"image": image, "targets": targets}


def job(bundle: Bundle, **changes: Any) -> dict[str, Any]:
    graph = bundle.explain_graph
    made = {
        "task": "build",
        "flavour": "tensorrt_rtx",
        "graph": str(graph),
        "profiles": [bundle.input_shapes(graph)],
        "capabilities": ["8.9"],
        "tf32": False,
        "gpu": None,
        "plan": str(bundle.path / "made.plan"),
    }
    return made | changes


def test_a_graph_without_a_profile_is_not_built(bundle: Bundle) -> None:
    with pytest.raises(EngineError, match=r"(?i)profile"):
        run_worker(job(bundle, profiles=[{}]))
    assert not (bundle.path / "made.plan").exists()


def test_errors_quote_tensorrt(bundle: Bundle) -> None:
    with pytest.raises(EngineError, match="FP32 GEMM is not supported"):
        run_worker(job(bundle, capabilities=["7.5"]))
    assert not (bundle.path / "made.plan").exists()


def test_an_operator_that_tensorrt_refuses_is_named_by_layer(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = contract.ONNX_OPERATORS | {"NonMaxSuppression"}
    monkeypatch.setattr("bcos_sdk.bundle._graph_gate.ONNX_OPERATORS", allowed)
    model = onnx.load(bundle.explain_graph, load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "MatMul")
    node.op_type = "NonMaxSuppression"
    bundle.explain_graph.write_bytes(model.SerializeToString())
    sign_again(bundle.path)
    with pytest.raises(
        EngineError, match=rf"cannot build an engine of explain\.onnx: NonMaxSuppression in {node.name}"
    ):
        build_engines(open_bundle(bundle.path), compute_capabilities=["8.9"])
    assert [name for name in files(bundle) if "explain" in name] == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, EngineError("out of memory")])
def test_an_interrupted_build_leaves_no_file(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    def stop(job: dict[str, Any], _build: Worker) -> dict[str, Any]:
        Path(job["plan"]).write_bytes(b"half a plan")
        raise failure

    intercept_builds(monkeypatch, stop)
    with pytest.raises(BaseException, match=r"out of memory|^$"):
        build_engines(bundle, compute_capabilities=["8.9"])
    assert files(bundle) == []


def test_the_next_build_removes_the_file_of_a_killed_one(bundle: Bundle) -> None:
    (name, _), *_ = build_engines(bundle, compute_capabilities=["8.9"])
    folder = bundle.path / "engines"
    (folder / name).with_suffix(".json").unlink()
    (folder / f".{name}.{'0' * 32}.partial").write_bytes(b"half a plan")
    build_engines(bundle, compute_capabilities=["8.9"])
    assert len(files(bundle)) == 4


def test_the_order_of_capabilities_does_not_matter(bundle: Bundle) -> None:
    both = build_engines(bundle, compute_capabilities=["8.9", "8.6", "8.9"])
    assert build_engines(bundle, compute_capabilities=["8.6"]) == both, "an engine for more capabilities fits as well"
    assert all((bundle.path / "engines" / name).is_file() for name, _ in both)


def test_a_bundle_that_changes_during_a_build_gives_no_engine(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def meddle(job: dict[str, Any], build: Worker) -> dict[str, Any]:
        reply = build(job)
        with bundle.predict_graph.open("ab") as graph:
            graph.write(b" ")
        return reply

    intercept_builds(monkeypatch, meddle)
    with pytest.raises(EngineError, match="was changed while"):
        build_engines(bundle, compute_capabilities=["8.9"])
    assert files(bundle) == []


def test_a_folder_that_cannot_be_written(bundle: Bundle) -> None:
    (bundle.path / "engines").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write an engine to"):
        build_engines(bundle, compute_capabilities=["8.9"])


PROGRAM = """
import sys
from bcos_sdk.bundle import open_bundle
from bcos_sdk.backends.tensorrt import build_engines
for _, record in build_engines(open_bundle(sys.argv[1]), compute_capabilities=["8.9"]):
    print(record.plan_sha256)
"""


def builder(bundle: Bundle) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(bundle.path)], stdout=subprocess.PIPE, text=True)


def test_two_processes_build_once(bundle: Bundle) -> None:
    """Two builds of one graph differ in their bytes, so equal hashes show that there was one build."""
    both = [builder(bundle) for _ in range(2)]
    hashes = [process.communicate(timeout=120)[0].split() for process in both]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2
    assert len(files(bundle)) == 4


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
@pytest.mark.parametrize("victim", ["caller", "worker"])
def test_a_killed_build_leaves_no_file(bundle: Bundle, victim: str) -> None:
    caller = builder(bundle)
    children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children")
    worker = 0
    while caller.poll() is None and not worker:  # the first child process reports the version, the next one builds
        for child in map(int, children.read_text().split()):
            worker = child if (bundle.path / "engines").exists() else 0
        time.sleep(0.01)
    os.kill(caller.pid if victim == "caller" else worker, signal.SIGKILL)
    caller.communicate(timeout=60)
    assert caller.returncode != 0
    end = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists(), "the worker did not exit with its caller"
    assert files(bundle) == []
