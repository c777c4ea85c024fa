"""ONNX: emission of a program as an ONNX model, the operators it may use, and those that TensorRT refuses."""

from bcos_sdk.exporters.onnx._emitter import IR_VERSION, OPSET, Emitter, Spelling, Spellings, WeightsFile, emit
from bcos_sdk.exporters.onnx._tensorrt_refusals import TENSORRT_REFUSES, Refusal, find_refusals

__all__ = [
    "IR_VERSION",
    "OPSET",
    "TENSORRT_REFUSES",
    "Emitter",
    "Refusal",
    "Spelling",
    "Spellings",
    "WeightsFile",
    "emit",
    "find_refusals",
]
