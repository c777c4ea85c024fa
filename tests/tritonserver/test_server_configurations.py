"""Configurations of all flavours, read by Triton's own protobuf and by the core of a real tritonserver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support.bundles import MAX_BATCH, encoded_batch, small_bundle
from support.gpu_machine import GpuMachine
from support.triton import run_in_environment, running_triton, triton_environment

from bcos_sdk.triton import RepositorySettings, write_repository

pytestmark = pytest.mark.full


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_the_core_of_the_server_accepts_the_configuration_for_onnx_runtime(tmp_path: Path, device: Any) -> None:
    """This server has no backend for ONNX Runtime: the configuration with another name of the backend is loaded."""
    models = tmp_path / "models"
    python = write_repository(small_bundle(), tmp_path / "python", RepositorySettings(flavour="python"))
    for one, other in zip(
        write_repository(small_bundle(), models, RepositorySettings(device=device, threads=1)), python, strict=True
    ):
        config = one.path / "config.pbtxt"
        text = config.read_text("ascii")
        changed = text.replace('backend: "onnxruntime"', 'backend: "python"').replace("model.onnx", "model.py")
        assert changed.count("python") == text.count("python") + 1
        config.write_text(changed, "ascii")
        (one.path / "1" / "model.py").write_bytes((other.path / "1" / "model.py").read_bytes())
    with running_triton(models) as server:
        found = server.config("small")
        assert [one["kind"] for one in found["instance_group"]] == ["KIND_CPU"]
        accelerators = found["optimization"].get("execution_accelerators", {}).get("gpu_execution_accelerator", [])
        assert [one["parameters"] for one in accelerators] == ([{"use_tf32": "0"}] if device == "auto" else [])
        session = onnxruntime.InferenceSession(str(small_bundle().predict_graph), providers=["CPUExecutionProvider"])
        (expected,) = session.run(["logits"], {"image": encoded_batch(2)})
        assert np.array_equal(server.infer("small", image=encoded_batch(2)).tensors["logits"], expected)


PARSE = """
import json, sys
from google.protobuf import text_format, json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig
for path in sys.argv[1:]:
    config = text_format.Parse(open(path).read(), ModelConfig())
    print(json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True)))
"""


@pytest.mark.parametrize("flavour", ["onnxruntime", "tensorrt", "python"])
def test_the_schema_of_triton_accepts_every_configuration(tmp_path: Path, machine: GpuMachine, flavour: Any) -> None:
    """Triton's own protobuf parses them. Names, types and shapes are those of the graphs. Unknown fields are errors."""
    types = {"tensor(float)": "TYPE_FP32", "tensor(int64)": "TYPE_INT64", "tensor(uint8)": "TYPE_UINT8"}
    for place, (pixels, weights) in enumerate(np.ndindex(2, 2)):
        settings = RepositorySettings(flavour=flavour, pixels=bool(pixels), weights=bool(weights))
        models = write_repository(small_bundle(), tmp_path / f"models{place}", settings)
        graphs = write_repository(
            small_bundle(), tmp_path / f"graphs{place}", settings.model_copy(update={"flavour": "onnxruntime"})
        )
        lines = run_in_environment(triton_environment(), PARSE, *(str(one.path / "config.pbtxt") for one in models))
        for one, graph, line in zip(models, graphs, lines.splitlines(), strict=True):
            config = json.loads(line)
            assert (config["name"], config["backend"]) == (one.name, flavour)
            assert config["max_batch_size"] == MAX_BATCH
            session = onnxruntime.InferenceSession(
                str(graph.path / "1" / "model.onnx"), providers=["CPUExecutionProvider"]
            )
            for field, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
                described = {
                    tensor["name"]: (tensor["data_type"], [-1, *map(int, tensor.get("dims", []))])
                    for tensor in config[field]
                }
                assert described == {
                    value.name: (types[value.type], [side if isinstance(side, int) else -1 for side in value.shape])
                    for value in values
                }
            assert config["parameters"]["bcos_manifest"]["string_value"] == small_bundle().manifest.to_json()
