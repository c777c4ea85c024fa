"""Every call of this package to classic TensorRT is valid in its oldest and its newest supported version.

Results need a GPU. Names, arguments and types are in the Python bindings, so the code is run against those.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bundles import small_bundle
from support.classic import VERSIONS, Bindings, open_bindings

WORKER = """
from bcos_sdk.backends.tensorrt._worker import build
print(json.dumps(build(surface.module, json.load(sys.stdin))))
print(json.dumps(sorted(surface.used)))
"""

RUNTIME = """
import types
import numpy as np
from support.fake_gpu import FakeCuda, cuda_modules

names = ["image", "logits"]
surface = stand_in(
    ICudaEngine__num_io_tensors=len(names),
    ICudaEngine__get_tensor_name=lambda index: names[index],
    ICudaEngine__get_tensor_mode=lambda name: trt.TensorIOMode.INPUT if name == "image" else trt.TensorIOMode.OUTPUT,
    ICudaEngine__get_tensor_location=trt.TensorLocation.DEVICE,
    ICudaEngine__num_optimization_profiles=2,
    ICudaEngine__get_tensor_profile_shape=lambda name, profile_index: [
        trt.Dims((n, 6, 8, 8)) for n in ((1, 1, 1), (2, 4, 4))[profile_index]
    ],
    IExecutionContext__get_tensor_shape=trt.Dims((2, 10)),
    IExecutionContext__update_device_memory_size_for_shapes=256,
)
sys.modules.update(cuda_modules(FakeCuda()))

from bcos_sdk.backends import TensorSpec
from bcos_sdk.backends.tensorrt import Cuda, Engine, EngineGraph

record = types.SimpleNamespace(key=types.SimpleNamespace(flavour="tensorrt"))
graph = EngineGraph(Engine(b"a plan", record), Cuda(0), "predict.onnx")
got = graph.run({"image": np.zeros((2, 6, 8, 8), np.float32)}, {"logits": TensorSpec((2, 10), "float32")})
assert got["logits"].shape == (2, 10)
graph.close()
print(json.dumps(sorted(surface.used)))
"""

ATTEMPTS = """
results = {}
for attempt in json.load(sys.stdin):
    names = {"trt": trt, **{name: surface.instance(name) for name in ("Builder", "IBuilderConfig", "OnnxParser")}}
    try:
        exec(attempt, names)
        results[attempt] = None
    except Exception as error:
        results[attempt] = f"{'AssertionError' if isinstance(error, AssertionError) else type(error).__name__}: {error}"
print(json.dumps(results))
"""

REFUSED = {
    "Builder.make_engine()": "has no Builder.make_engine",
    "trt.Builder.make_engine": "has no Builder.make_engine",
    "trt.ComputeCapability": "has no ComputeCapability",
    "IBuilderConfig.num_compute_capabilities = 1": "has no IBuilderConfig.num_compute_capabilities that can be set",
    "IBuilderConfig.num_optimization_profiles = 1": "has no IBuilderConfig.num_optimization_profiles that can be set",
    "IBuilderConfig.builder_optimization_level = 'high'": "IBuilderConfig.builder_optimization_level does not take",
    "Builder.create_network(1, 2)": "Builder.create_network does not take",
    "Builder.create_network(flag=1)": "Builder.create_network does not take",
    "OnnxParser.parse()": "OnnxParser.parse does not take",
    "OnnxParser.parse(3)": "OnnxParser.parse does not take",
    "IBuilderConfig.clear_flag(trt.DataType.HALF)": "IBuilderConfig.clear_flag does not take",
    "trt.OnnxParser(trt.Logger(), trt.Logger())": "OnnxParser.__init__ does not take",
    "trt.INetworkDefinition()": "it takes no call from Python",
    "Builder.build_serialized_network(Builder.create_network(), IBuilderConfig).decode()": "has no IHostMemory.decode",
}


@pytest.fixture(scope="module", params=VERSIONS)
def classic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bindings:
    return open_bindings(request.param, tmp_path_factory.mktemp("libraries"))


def used(output: str) -> set[str]:
    return set(json.loads(output.splitlines()[-1]))


def attempt(classic: Bindings, *statements: str) -> dict[str, str | None]:
    """Why each statement failed, or None."""
    results: dict[str, str | None] = json.loads(classic.run(ATTEMPTS, stdin=json.dumps(statements)))
    return results


def job(folder: Path, **changed: object) -> str:
    shapes = [[1, 6, 32, 32], [4, 6, 32, 32], [4, 6, 32, 32]]
    usual = {
        "graph": str(small_bundle().predict_graph),
        "profiles": [{"image": shapes}],
        "capabilities": [],
        "tf32": False,
        "gpu": None,
    }
    return json.dumps({**usual, "plan": str(folder / "plan"), **changed})


def test_the_calls_that_build_an_engine_are_valid(classic: Bindings, tmp_path: Path) -> None:
    output = classic.run(WORKER, stdin=job(tmp_path))
    assert (tmp_path / "plan").read_bytes() == b"a plan"
    assert json.loads(output.splitlines()[0])["version"].startswith(classic.version)
    assert used(output) >= {
        "Builder.create_network",
        "OnnxParser.parse",
        "IBuilderConfig.clear_flag",
        "IOptimizationProfile.set_shape",
        "IBuilderConfig.add_optimization_profile",
        "Builder.build_serialized_network",
    }


def test_the_calls_that_report_a_parser_error_are_valid(classic: Bindings, tmp_path: Path) -> None:
    answers = "OnnxParser__parse=False, OnnxParser__num_errors=1"
    output = classic.run(f"surface = stand_in({answers})\n{WORKER}", stdin=job(tmp_path))
    assert " in " in json.loads(output.splitlines()[0])["problem"]
    assert used(output) >= {"ParserError.node_operator", "ParserError.node_name", "ParserError.desc"}


def test_a_failed_build_exits_with_a_message(classic: Bindings, tmp_path: Path) -> None:
    done = classic.start(f"surface = stand_in(Builder__build_serialized_network=None)\n{WORKER}", stdin=job(tmp_path))
    assert done.returncode == 1
    assert "no engine" in done.stderr.splitlines()[-1]


def test_classic_tensorrt_has_no_compute_capabilities(classic: Bindings, tmp_path: Path) -> None:
    done = classic.start(WORKER, stdin=job(tmp_path, capabilities=["8.9"]))
    error = done.stderr.splitlines()[-1]
    assert f"AbsentError: tensorrt {classic.version}" in error
    assert "IBuilderConfig.num_compute_capabilities" in error


def test_the_calls_that_run_an_engine_are_valid(classic: Bindings) -> None:
    assert used(classic.run(RUNTIME)) == {
        "ICudaEngine.get_device_memory_size_for_profile_v2",
        "IErrorRecorder.__init__",
        "Logger.__init__",
        "Runtime.error_recorder",
        "Runtime.__init__",
        "Runtime.deserialize_cuda_engine",
        "ICudaEngine.create_execution_context",
        "ICudaEngine.get_tensor_dtype",
        "ICudaEngine.get_tensor_location",
        "ICudaEngine.get_tensor_mode",
        "ICudaEngine.get_tensor_name",
        "ICudaEngine.get_tensor_profile_shape",
        "ICudaEngine.num_io_tensors",
        "ICudaEngine.num_optimization_profiles",
        "IExecutionContext.execute_async_v3",
        "IExecutionContext.get_tensor_shape",
        "IExecutionContext.set_device_memory",
        "IExecutionContext.set_input_shape",
        "IExecutionContext.set_optimization_profile_async",
        "IExecutionContext.set_tensor_address",
        "IExecutionContext.update_device_memory_size_for_shapes",
    }


def test_an_invalid_call_is_an_assertion_that_names_it(classic: Bindings) -> None:
    for statement, error in attempt(classic, *REFUSED).items():
        assert error is not None, statement
        assert error.startswith(f"AssertionError: tensorrt {classic.version}"), (statement, error)
        assert REFUSED[statement] in error, (statement, error)


def test_the_severity_and_the_error_code_that_are_used_exist(classic: Bindings) -> None:
    names = ["trt.Logger.INTERNAL_ERROR", "trt.ErrorCodeTRT.FAILED_ALLOCATION"]
    assert attempt(classic, *names) == dict.fromkeys(names)


def test_enums_belong_to_the_version(classic: Bindings) -> None:
    tried = attempt(
        classic,
        "trt.BuilderFlag.FP16",
        "trt.BuilderFlag.TF32",
        "trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "assert int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == 1",
    )
    fp16, tf32, strongly_typed, second_bit = tried.values()
    assert (fp16 is None) == (classic.version == "10.16"), "TensorRT 11 takes the precision from the graph only"
    assert tf32 is None
    assert strongly_typed is None
    assert (second_bit is None) == (classic.version == "10.16"), (
        "flags are used by name: their bits change between versions"
    )
