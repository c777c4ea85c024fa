"""The layers of B-cos networks: in eval mode each is a linear map whose weights depend on its input.

What depends on the input (|cos|^(B−1), variances, attention matrices) is detached in eval mode, so
∂ output / ∂ input *is* W(x). In train mode nothing is detached: there gradients are for learning.
"""

from bcos_sdk.models.layers._attention import Attention, PositionalEmbedding
from bcos_sdk.models.layers._bcos import BcosConv2d, BcosLinear
from bcos_sdk.models.layers._logits import LogitLayer
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
