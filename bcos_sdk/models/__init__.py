"""B-cos networks in torch: `build_model` makes one, with random weights."""

from bcos_sdk._extras import require

require("torch", purpose="Building a network")

from bcos_sdk.models._build import FAMILIES, build_model  # noqa: E402

__all__ = ["FAMILIES", "build_model"]
