"""What our code asks of classic TensorRT exists in the oldest and the newest supported version, as it is asked.

Behaviour needs a GPU; names, arguments and types are in the bindings, and the code itself is run against these.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.classic import VERSIONS, Bindings, open_bindings

WORKER = """
from bcos_sdk.exporters.tensorrt._worker import main
main()
print(json.dumps(sorted(surface.used)))
"""

RUNTIME = """
import numpy as np

names = ["image", "logits"]
surface = stand_in(
    ICudaEngine__num_io_tensors=len(names),
    ICudaEngine__get_tensor_name=lambda index: names[index],
    ICudaEngine__get_tensor_mode=lambda name: trt.TensorIOMode.INPUT if name == "image" else trt.TensorIOMode.OUTPUT,
    ICudaEngine__get_tensor_profile_shape=lambda name, profile_index: [trt.Dims((n, 6, 8, 8)) for n in (1, 4, 4)],
    IExecutionContext__get_tensor_shape=trt.Dims((2, 10)),
)
import tensorrt as trt

runtime = trt.Runtime(trt.Logger(trt.Logger.Severity.WARNING))
engine = runtime.deserialize_cuda_engine(memoryview(b"a plan"))
assert engine.num_optimization_profiles == 1
context = engine.create_execution_context()
assert context.set_optimization_profile_async(0, 7)
found = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
assert found == names
for name in found:
    assert trt.nptype(engine.get_tensor_dtype(name)) is np.float32
    assert len(engine.get_tensor_shape(name)) == 1
    if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
        low, _, high = engine.get_tensor_profile_shape(name, 0)
        assert (tuple(low)[0], tuple(high)[0]) == (1, 4)
        assert context.set_input_shape(name, (2, 6, 8, 8))
    assert tuple(context.get_tensor_shape(name)) == (2, 10)
    assert context.set_tensor_address(name, 4096)
assert context.infer_shapes()
assert context.execute_async_v3(stream_handle=7)
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
    "OnnxParser.parse_from_file()": "OnnxParser.parse_from_file does not take",
    "OnnxParser.parse_from_file(3)": "OnnxParser.parse_from_file does not take",
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
    usual = {"flavour": "tensorrt", "graph": "a.onnx", "profile": {"image": shapes}, "capabilities": []}
    return json.dumps({**usual, "plan": str(folder / "plan"), **changed})


def test_engines_are_built_with_what_exists(classic: Bindings, tmp_path: Path) -> None:
    output = classic.run(WORKER, stdin=job(tmp_path))
    assert (tmp_path / "plan").read_bytes() == b"a plan"
    assert json.loads(output.splitlines()[0])["version"].startswith(classic.version)
    assert used(output) >= {
        "Builder.create_network",
        "OnnxParser.parse_from_file",
        "IBuilderConfig.clear_flag",
        "IOptimizationProfile.set_shape",
        "IBuilderConfig.add_optimization_profile",
        "Builder.build_serialized_network",
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("OnnxParser__parse_from_file=False", "cannot be parsed"),
        ("Builder__build_serialized_network=None", "no engine"),
    ],
)
def test_refusals_are_told_with_what_exists(classic: Bindings, tmp_path: Path, answer: str, said: str) -> None:
    done = classic.start(f"surface = stand_in({answer})\n{WORKER}", stdin=job(tmp_path))
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


def test_compute_capabilities_are_refused_by_name(classic: Bindings, tmp_path: Path) -> None:
    done = classic.start(WORKER, stdin=job(tmp_path, capabilities=["8.9"]))
    error = done.stderr.splitlines()[-1]
    assert f"AbsentError: tensorrt {classic.version}" in error
    assert "IBuilderConfig.num_compute_capabilities" in error


def test_what_running_an_engine_takes_exists(classic: Bindings) -> None:
    assert used(classic.run(RUNTIME)) == {
        "Logger.__init__",
        "Runtime.__init__",
        "Runtime.deserialize_cuda_engine",
        "ICudaEngine.create_execution_context",
        "ICudaEngine.get_tensor_dtype",
        "ICudaEngine.get_tensor_mode",
        "ICudaEngine.get_tensor_name",
        "ICudaEngine.get_tensor_profile_shape",
        "ICudaEngine.get_tensor_shape",
        "ICudaEngine.num_io_tensors",
        "ICudaEngine.num_optimization_profiles",
        "IExecutionContext.execute_async_v3",
        "IExecutionContext.get_tensor_shape",
        "IExecutionContext.infer_shapes",
        "IExecutionContext.set_input_shape",
        "IExecutionContext.set_optimization_profile_async",
        "IExecutionContext.set_tensor_address",
    }


def test_what_does_not_exist_is_an_assertion_that_names_it(classic: Bindings) -> None:
    for statement, error in attempt(classic, *REFUSED).items():
        assert error is not None, statement
        assert error.startswith(f"AssertionError: tensorrt {classic.version}"), (statement, error)
        assert REFUSED[statement] in error, (statement, error)


def test_enums_are_those_of_the_version(classic: Bindings) -> None:
    tried = attempt(
        classic,
        "trt.BuilderFlag.FP16",
        "trt.BuilderFlag.TF32",
        "trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "assert int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == 1",
    )
    fp16, tf32, strongly_typed, second_bit = tried.values()
    assert (fp16 is None) == (classic.version == "10.16"), "TensorRT 11 takes precision from the graph alone"
    assert tf32 is None
    assert strongly_typed is None
    assert (second_bit is None) == (classic.version == "10.16"), "a flag must be asked for by name: bits move"
