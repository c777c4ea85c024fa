"""ONNX Runtime: the runtimes "cpu" and "cuda"."""

from bcos_sdk.backends.onnxruntime._graph import BoundGraph, HostGraph
from bcos_sdk.backends.onnxruntime._runtime import CPU, CUDA, RECORD_ASSIGNMENT

__all__ = ["CPU", "CUDA", "RECORD_ASSIGNMENT", "BoundGraph", "HostGraph"]
