"""OpenVINO: the runtime "openvino", which compiles the graphs of a bundle for the CPU."""

from bcos_sdk.backends.openvino._graph import OpenvinoGraph, images_per_run
from bcos_sdk.backends.openvino._rewrite import join_norms, rewrite, transpose_in_place
from bcos_sdk.backends.openvino._runtime import OPENVINO

__all__ = ["OPENVINO", "OpenvinoGraph", "images_per_run", "join_norms", "rewrite", "transpose_in_place"]
