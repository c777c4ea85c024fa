"""The messages of gRPC are those that protobuf's own code writes and reads, and hostile ones are typed errors."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grpc_server import message

from bcos_sdk.backends import TensorSpec
from bcos_sdk.backends.remote._grpc_messages import (
    infer_request,
    model_request,
    read_config,
    read_infer,
    read_metadata,
)
from bcos_sdk.errors import ServerAnswerError

names = st.text(max_size=20).filter(lambda text: text.isprintable())
shapes = st.lists(st.integers(-1, 1 << 40), max_size=5)
ports = st.dictionaries(names, st.tuples(st.sampled_from(["FP32", "INT64", "UINT8"]), shapes), max_size=4)


@given(names)
def test_requests_for_a_model_are_read_by_protobuf(name: str) -> None:
    for kind in ("ModelMetadataRequest", "ModelConfigRequest"):
        found = message(kind)
        found.ParseFromString(model_request(name))
        assert (found.name, found.version) == (name, "")


@given(st.integers(0, 3), st.integers(0, 200), st.sampled_from(["float32", "int64", "uint8"]), names)
def test_inference_requests_are_read_by_protobuf(count: int, size: int, kind: str, name: str) -> None:
    generator = np.random.default_rng(size)
    inputs = {f"{name}{number}": generator.integers(0, 99, (number + 1, size)).astype(kind) for number in range(count)}
    found = message("ModelInferRequest")
    found.ParseFromString(
        infer_request(name, inputs, {"a": TensorSpec((1,), "float32"), name: TensorSpec((), "int64")})
    )
    assert found.model_name == name
    assert [one.name for one in found.outputs] == list({"a": 0, name: 0})
    for one, raw, (key, array) in zip(found.inputs, found.raw_input_contents, inputs.items(), strict=True):
        assert (one.name, tuple(one.shape)) == (key, array.shape)
        assert one.datatype == {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}[kind]
        assert raw == array.tobytes()


@given(names, ports, ports)
def test_metadata_of_protobuf_are_read(name: str, inputs: Any, outputs: Any) -> None:
    def listed(described: Any) -> list[Any]:
        return [
            message("TensorMetadata", name=key, datatype=kind, shape=shape) for key, (kind, shape) in described.items()
        ]

    written = message(
        "ModelMetadataResponse", name=name, versions=["1"], inputs=listed(inputs), outputs=listed(outputs)
    )
    found = read_metadata(written.SerializeToString())
    assert found.inputs == {key: (kind, tuple(shape)) for key, (kind, shape) in inputs.items()}
    assert found.outputs == {key: (kind, tuple(shape)) for key, (kind, shape) in outputs.items()}


@given(st.integers(0, 1 << 30), st.dictionaries(names, st.text(max_size=50).filter(str.isprintable), max_size=3))
def test_configurations_of_protobuf_are_read(max_batch: int, parameters: dict[str, str]) -> None:
    entries = [
        message("ParametersEntry", key=key, value=message("ModelParameter", string_value=text))
        for key, text in parameters.items()
    ]
    config = message("ModelConfig", name="net", platform="x", max_batch_size=max_batch, parameters=entries)
    found = read_config(message("ModelConfigResponse", config=config).SerializeToString())
    assert (found.max_batch, found.parameters) == (max_batch, parameters)


@given(st.integers(1, 3), st.integers(0, 50), st.sampled_from(["FP32", "INT64"]))
def test_answers_of_protobuf_are_read(rows: int, columns: int, datatype: str) -> None:
    kind = "float32" if datatype == "FP32" else "int64"
    array = np.random.default_rng(columns).integers(-99, 99, (rows, columns)).astype(kind)
    described = [message("InferOutputTensor", name=name, datatype=datatype, shape=array.shape) for name in ("a", "b")]
    written = message("ModelInferResponse", outputs=described, raw_output_contents=[array.tobytes()] * 2)
    found, _ = read_infer(written.SerializeToString(), {"a": TensorSpec(array.shape, kind)})
    assert found.keys() == {"a"}
    assert found["a"].dtype == kind
    np.testing.assert_array_equal(found["a"], array)
    found["a"][...] = 0  # it belongs to the caller


def read_one(contents: bytes) -> Any:
    return read_infer(contents, {"a": TensorSpec((1,), "float32")})


@given(st.binary(max_size=80), st.sampled_from([read_metadata, read_config, read_one]))
def test_any_bytes_are_read_or_a_typed_error(contents: bytes, read: Any) -> None:
    with contextlib.suppress(ServerAnswerError):
        read(contents)


def test_lengths_that_do_not_fit_are_refused() -> None:
    one = message("InferOutputTensor", name="a", datatype="FP32", shape=[3])
    for wrong in (
        message("ModelInferResponse", outputs=[one], raw_output_contents=[bytes(11)]),
        message("ModelInferResponse", outputs=[one]),
        message("ModelInferResponse", outputs=[one, one], raw_output_contents=[bytes(12)]),
        message(
            "ModelInferResponse",
            outputs=[message("InferOutputTensor", name="a", datatype="FP32", shape=[-1])],
            raw_output_contents=[bytes(4)],
        ),
        message(
            "ModelInferResponse",
            outputs=[message("InferOutputTensor", name="a", datatype="BF16", shape=[2])],
            raw_output_contents=[bytes(4)],
        ),
    ):
        with pytest.raises(ServerAnswerError):
            read_infer(wrong.SerializeToString(), {"a": TensorSpec((3,), "float32")})
