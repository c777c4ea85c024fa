"""From a torch module to deployable graphs: `export` writes a bundle and measures it against the module.

The rooms, from low to high; a room imports only those above it in this list:

program     the captured program: graph, constants, shapes
transpose   the reverse walk that computes rows of W(x) from a forward program
onnx        emission of a program as ONNX
operators   one entry per operator: kind, transpose, ONNX spelling, rewrite, traits
capture     torch module → program
passes      simplifications and fp16
compiler    module → the three programs of a bundle
verify      graphs against the module in float64
"""

from bcos_sdk._extras import require

require("torch", "onnx", "onnxruntime", purpose="Exporting")

from bcos_sdk.exporters._export import export, hash_of_weights  # noqa: E402
from bcos_sdk.exporters.layer_list import ListedLayer, list_layers  # noqa: E402
from bcos_sdk.exporters.verify import Agreement, Expectation, parity_table, read_expectation  # noqa: E402

__all__ = [
    "Agreement",
    "Expectation",
    "ListedLayer",
    "export",
    "hash_of_weights",
    "list_layers",
    "parity_table",
    "read_expectation",
]
