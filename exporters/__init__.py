"""From a torch module to deployable graphs: `export` writes a bundle, measured against the module."""

from bcos_sdk._extras import require

require("torch", "onnx", "onnxruntime", purpose="Exporting")

from bcos_sdk.exporters._export import export  # noqa: E402
from bcos_sdk.exporters._validate import parity_table  # noqa: E402

__all__ = ["export", "parity_table"]
