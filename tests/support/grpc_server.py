"""A gRPC server of the Open Inference Protocol v2 for tests, with the messages of a real protobuf package.

The client writes and reads its messages itself. Here they are described once more, as in the public `.proto` files of
the protocol and of Triton's configuration, and protobuf's own code writes and reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from bcos_sdk.contract import EXPLAIN_SUFFIX, MANIFEST_PARAMETER, Arrays

grpc = pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402

__all__ = ["GrpcServer", "Refusal", "message", "serving_grpc"]

_TYPES = {"string": 9, "int64": 3, "int32": 5, "bytes": 12, "bool": 8}
_REPEATED = "repeated "
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ModelMetadataRequest": {"name": (1, "string"), "version": (2, "string")},
    "TensorMetadata": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "repeated int64")},
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "repeated string"),
        "platform": (3, "string"),
        "inputs": (4, "repeated TensorMetadata"),
        "outputs": (5, "repeated TensorMetadata"),
    },
    "ModelConfigRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelParameter": {"string_value": (1, "string")},
    "ParametersEntry": {"key": (1, "string"), "value": (2, "ModelParameter")},
    "ModelConfig": {
        "name": (1, "string"),
        "platform": (2, "string"),
        "max_batch_size": (4, "int32"),
        "parameters": (14, "repeated ParametersEntry"),
    },
    "ModelConfigResponse": {"config": (1, "ModelConfig")},
    "InferInputTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "repeated int64")},
    "InferRequestedOutputTensor": {"name": (1, "string")},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "inputs": (5, "repeated InferInputTensor"),
        "outputs": (6, "repeated InferRequestedOutputTensor"),
        "raw_input_contents": (7, "repeated bytes"),
    },
    "InferOutputTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "repeated int64")},
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "outputs": (5, "repeated InferOutputTensor"),
        "raw_output_contents": (6, "repeated bytes"),
    },
}
_DATATYPES = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}
Run = Callable[[str, Arrays, list[str]], Arrays]
Ports = Mapping[str, tuple[str, tuple[int, ...]]]


class Refusal(Exception):  # noqa: N818 - a status, not a mistake of the test
    """A call that the server refuses with this gRPC code."""

    def __init__(self, code: str, text: str = "as the test wants") -> None:
        super().__init__(text)
        self.code = code


class GrpcServer(NamedTuple):
    """A running server and what its callers sent."""

    port: int
    calls: list[tuple[str, dict[str, str]]]
    """The name of each call with its metadata."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="test_inference.proto", package="inference", syntax="proto3")
    for name, parts in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for part, (number, kind) in parts.items():
            single = kind.removeprefix(_REPEATED)
            field = described.field.add(name=part, number=number, label=3 if kind.startswith(_REPEATED) else 1)
            if single in _TYPES:
                field.type = _TYPES[single]
            else:
                field.type, field.type_name = 11, f".inference.{single}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


def message(kind: str, /, **values: Any) -> Any:
    """A message of protobuf's own classes."""
    return _CLASSES[kind](**values)


@contextmanager
def serving_grpc(
    name: str, run: Run, inputs: Ports, outputs: Mapping[str, Ports], manifest: str | None, max_batch: int
) -> Iterator[GrpcServer]:
    """Serve NAME and NAME_explain. `outputs` has those of both. `inputs` are those of NAME_explain, first the image."""
    names = {name: dict(list(inputs.items())[:1]), name + EXPLAIN_SUFFIX: dict(inputs)}

    def known(model: str) -> str:
        if model not in names:
            raise Refusal("NOT_FOUND", f"Request for unknown model: '{model}' is not found")
        return model

    def metadata(request: Any) -> Any:
        model = known(request.name)

        def listed(ports: Ports) -> list[Any]:
            return [
                message("TensorMetadata", name=one, datatype=kind, shape=shape) for one, (kind, shape) in ports.items()
            ]

        return message(
            "ModelMetadataResponse",
            name=model,
            versions=["1"],
            platform="test",
            inputs=listed(names[model]),
            outputs=listed(outputs[model]),
        )

    def config(request: Any) -> Any:
        stated = {} if manifest is None else {MANIFEST_PARAMETER: manifest, "other": "value"}
        entries = [
            message("ParametersEntry", key=key, value=message("ModelParameter", string_value=text))
            for key, text in stated.items()
        ]
        found = message("ModelConfig", name=known(request.name), max_batch_size=max_batch, parameters=entries)
        return message("ModelConfigResponse", config=found)

    def infer(request: Any) -> Any:
        kinds = {protocol: kind for kind, protocol in _DATATYPES.items()}
        arrays = {
            one.name: np.frombuffer(raw, kinds[one.datatype]).reshape(tuple(one.shape))
            for one, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        found = run(known(request.model_name), arrays, [one.name for one in request.outputs])
        return message(
            "ModelInferResponse",
            model_name=request.model_name,
            model_version="1",
            outputs=[
                message("InferOutputTensor", name=one, datatype=_DATATYPES[str(array.dtype)], shape=array.shape)
                for one, array in found.items()
            ],
            raw_output_contents=[array.tobytes() for array in found.values()],
        )

    calls: list[tuple[str, dict[str, str]]] = []
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            _answering(method, answer, calls),
            request_deserializer=_CLASSES[f"{method}Request"].FromString,
            response_serializer=lambda answered: answered.SerializeToString(),
        )
        for method, answer in (("ModelMetadata", metadata), ("ModelConfig", config), ("ModelInfer", infer))
    }
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield GrpcServer(port, calls)
    finally:
        server.stop(0).wait()


def _answering(method: str, answer: Callable[[Any], Any], calls: list[tuple[str, dict[str, str]]]) -> Any:
    def answered(request: Any, context: Any) -> Any:
        calls.append((method, dict(context.invocation_metadata())))
        try:
            return answer(request)
        except Refusal as refusal:
            return context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))

    return answered
