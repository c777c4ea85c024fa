"""The transposed pass: from cotangents of the logits to rows of W(x) and the bias terms of b(x)."""

from bcos_sdk.exporters.transpose._transposition import (
    Rule,
    Transposition,
    carries_everything,
    explained_nodes,
    live_nodes,
)

__all__ = ["Rule", "Transposition", "carries_everything", "explained_nodes", "live_nodes"]
