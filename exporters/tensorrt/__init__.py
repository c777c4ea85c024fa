"""TensorRT engines beside the graphs of a bundle: built on the GPU at hand, or ahead of time for named ones."""

from bcos_sdk.exporters.tensorrt._build import EngineRecord, build_engines
from bcos_sdk.exporters.tensorrt._flavours import choose_flavour

__all__ = ["EngineRecord", "build_engines", "choose_flavour"]
