"""Engines: what can be built without a GPU is built, and what cannot says both ways on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.bundles import MAX_BATCH, SIZE, copy_of, small_bundle

from bcos_sdk._hashing import sha256_of
from bcos_sdk.backends._driver import Driver
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import DeviceError, EngineError, InputError, MissingExtraError
from bcos_sdk.exporters.tensorrt import EngineRecord, _flavours, build_engines

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' builds engines without a GPU")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


@pytest.mark.parametrize("capabilities", [("8.9",), ("8.6", "12.0")])
def test_engines_are_built_ahead_of_time(bundle: Bundle, capabilities: tuple[str, ...]) -> None:
    predict, explain = build_engines(bundle, compute_capabilities=capabilities)
    for record, graph in ((predict, bundle.predict_graph), (explain, bundle.explain_graph)):
        plan = bundle.path / "engines" / record.plan
        assert plan.stat().st_size == record.size > 1000
        assert sha256_of(plan) == record.plan_sha256
        assert record.graph_sha256 == sha256_of(graph)
        assert record.compute_capabilities == capabilities
        assert not record.tf32
        stored = json.loads(plan.with_suffix(".json").read_text("utf-8"))
        assert EngineRecord.model_validate(stored) == record
    assert len(list((bundle.path / "engines").iterdir())) == 4, "two plans, two records, nothing else"
    open_bundle(bundle.path)


def test_profiles_reach_from_one_image_to_the_largest_batch(bundle: Bundle) -> None:
    image = ((1, 6, *SIZE), (MAX_BATCH, 6, *SIZE), (MAX_BATCH, 6, *SIZE))
    assert bundle.input_shapes(bundle.predict_graph) == {"image": image}
    targets = ((1, 1), (MAX_BATCH, 1), (MAX_BATCH, MAX_BATCH))
    assert bundle.input_shapes(bundle.explain_graph) == {"image": image, "targets": targets}


def test_a_graph_that_tensorrt_refuses_is_named_and_leaves_nothing(bundle: Bundle) -> None:
    model = onnx.load(bundle.explain_graph, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "MatMul").op_type = "NonMaxSuppression"
    bundle.explain_graph.write_bytes(model.SerializeToString())
    with pytest.raises(EngineError, match=r"no engine of explain\.onnx was built"):
        build_engines(bundle, compute_capabilities=["8.9"])
    assert [path.suffix for path in (bundle.path / "engines").iterdir() if "explain" in path.name] == []


@pytest.mark.parametrize("capability", ["9.9", "89", "sm89", ""])
def test_unknown_capabilities(bundle: Bundle, capability: str) -> None:
    with pytest.raises(InputError, match="no compute capability"):
        build_engines(bundle, compute_capabilities=[capability])


def test_without_a_gpu_both_ways_on_are_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(0, "no NVIDIA driver is installed"))
    with pytest.raises(DeviceError, match="no NVIDIA driver is installed") as caught:
        build_engines(bundle)
    assert "--compute-capability" in str(caught.value)
    assert "machine with the GPU" in str(caught.value)


def test_with_a_gpu_the_classic_flavour_is_asked_for(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(1))

    def missing(*_: Any, **__: Any) -> None:
        raise MissingExtraError("Building engines needs tensorrt")

    monkeypatch.setattr(_flavours, "require", missing)
    with pytest.raises(MissingExtraError, match="needs tensorrt"):
        build_engines(bundle)
