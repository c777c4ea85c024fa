"""Where a parsed network holds halves: in products, and on the way to and from them."""

from __future__ import annotations

from typing import Any

from support.walking import Parsed, inputs_of, outputs_of

PRODUCTS = {"Convolution", "Deconvolution", "MatrixMultiply"}
MOVES = {"Cast", "Concatenation", "Constant", "Gather", "Shape", "Shuffle", "Slice", "Squeeze", "Unsqueeze"}


def layers_with_halves(parsed: Parsed) -> list[tuple[str, str]]:
    """Kind and name of each layer that reads or gives a half."""
    return [(kind, layer.name) for kind, layer in parsed.layers if any(map(_is_half, _tensors(layer)))]


def misplaced_halves(parsed: Parsed) -> list[str]:
    """What breaks the promise that only products lose digits; nothing, in a right export.

    A layer other than a product must not compute in half. Nor may a float that depends on the image pass through a
    half without a product in between: whatever reads it, a norm first of all, would have lost its digits.
    """
    wrong: list[str] = []
    depends = {tensor.name for tensor in parsed.inputs}
    rounded: set[str] = set()
    for kind, layer in parsed.layers:
        reads = [tensor for tensor in inputs_of(layer) if tensor is not None]
        gives = outputs_of(layer)
        if any(tensor.name in depends for tensor in reads):
            depends |= {tensor.name for tensor in gives}
        if not any(map(_is_half, _tensors(layer))):
            continue
        if kind not in PRODUCTS | MOVES:
            wrong.append(f"{kind} '{layer.name}' computes in half")
        elif kind == "Cast" and not _is_half(reads[0]):
            rounded |= {tensor.name for tensor in gives if tensor.name in depends}
        elif kind == "Cast" and reads[0].name in rounded:
            wrong.append(f"Cast '{layer.name}' gives back a float that was rounded for no product")
        elif kind in MOVES and any(tensor.name in rounded for tensor in reads):
            rounded |= {tensor.name for tensor in gives if _is_half(tensor)}
    return wrong


def _tensors(layer: Any) -> list[Any]:
    return [tensor for tensor in (*inputs_of(layer), *outputs_of(layer)) if tensor is not None]


def _is_half(tensor: Any) -> bool:
    return bool(tensor.dtype.name == "HALF")
