"""The layers of B-cos networks: in eval mode each layer is y = W(x)·x + b, with weights W(x) that depend on its input.

In eval mode everything in W(x) that depends on the input (|cos|^(B−1), variances, attention matrices) is detached, so
that ∂y/∂x = W(x). In train mode nothing is detached: the gradients are the ordinary ones.
"""

from bcos_sdk.models.layers._attention import Attention, PositionalEmbedding
from bcos_sdk.models.layers._bcos import BcosConv2d, BcosLinear, LogitLayer
from bcos_sdk.models.layers._norms import TokenNorm, make_norm

__all__ = [
    "Attention",
    "BcosConv2d",
    "BcosLinear",
    "LogitLayer",
    "PositionalEmbedding",
    "TokenNorm",
    "make_norm",
]
