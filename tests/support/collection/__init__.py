"""A collection of small networks by kind. Each is exported and compared with autograd, or refused with its reason."""

from support.collection._frozen import FROZEN
from support.collection._live import BATCH, CONSTANTS, LINEAR, MOVES, PIECEWISE, RESAMPLING, SELECTIONS
from support.collection._parts import SIZE, Make
from support.collection._structures import (
    ATTENTION,
    CONVENTIONAL,
    FIRST_RELEASE,
    NORMS,
    PUBLIC_LAYERS,
    PUBLISHED,
    SIZES,
)

__all__ = ["COLLECTION", "REFUSED", "SIZE", "SIZES", "Make"]

COLLECTION: dict[str, dict[str, Make]] = {
    "frozen": FROZEN,
    "moves": MOVES,
    "piecewise": PIECEWISE,
    "selections": SELECTIONS,
    "resampling": RESAMPLING,
    "linear": LINEAR,
    "batch": BATCH,
    "constants": CONSTANTS,
    "attention": ATTENTION,
    "norms": NORMS,
    "public layers": PUBLIC_LAYERS,
    "first release": FIRST_RELEASE,
    "published": PUBLISHED,
    "conventional": CONVENTIONAL,
}
"""Kind → name → the function that makes the network."""

_NOT_IN_ONNX = "torch's ONNX library cannot write it either"

REFUSED: dict[tuple[str, str], str] = {
    **{
        ("frozen", name): _NOT_IN_ONNX
        for name in ("lgamma", "digamma", "i0", "erfinv", "cumprod", "cummax", "searchsorted", "inverse")
    },
    ("frozen", "determinant"): "in ONNX it needs Det, SequenceAt",
    ("frozen", "grid sample"): "moves elements by an index that depends on the image",
    ("frozen", "max unpool"): "returns indices that are used",
    ("selections", "cummax"): "is not supported for a live value",
    ("linear", "conv_transpose3d"): "is a transposed convolution in 3-D",
    ("linear", "fft"): "it returns complex numbers",
}
"""The networks that are refused, and a pattern of the message."""
