"""ONNX: emission of a program as an ONNX model, the operators it may use, and those that TensorRT refuses."""

from bcos_sdk.exporters.onnx._emitter import IR_VERSION, OPSET, Emitter, Spelling, WeightsFile, emit
from bcos_sdk.exporters.onnx._vocabulary import EMITTED, TENSORRT_REFUSES, Refusal, find_refusals

__all__ = [
    "EMITTED",
    "IR_VERSION",
    "OPSET",
    "TENSORRT_REFUSES",
    "Emitter",
    "Refusal",
    "Spelling",
    "WeightsFile",
    "emit",
    "find_refusals",
]
