"""B-cos networks in torch, one file per family.

`build_model` returns a network with fresh weights, `random_network` one with calibrated random weights.
"""

from bcos_sdk._extras import require

require("torch", purpose="Building a network")

from bcos_sdk.models._networks import FAMILIES, build_model, calibrate, random_network  # noqa: E402

__all__ = ["FAMILIES", "build_model", "calibrate", "random_network"]
