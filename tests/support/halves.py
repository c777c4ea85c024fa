"""Find the fp16 values of a parsed network. Only products, and moves to and from them, may have any."""

from __future__ import annotations

from typing import Any

from support.walking import Parsed, inputs_of, outputs_of

PRODUCTS = {"Convolution", "Deconvolution", "MatrixMultiply"}
MOVES = {"Cast", "Concatenation", "Constant", "Gather", "Shape", "Shuffle", "Slice", "Squeeze", "Unsqueeze"}


def layers_with_halves(parsed: Parsed) -> list[tuple[str, str]]:
    """Kind and name of each layer with an input or output in fp16."""
    return [(kind, layer.name) for kind, layer in parsed.layers if any(map(_is_half, _tensors(layer)))]


def misplaced_halves(parsed: Parsed) -> list[str]:
    """Each layer that breaks the rule that only products are computed in fp16; empty for a correct export.

    No layer but a product may compute in fp16. No float32 value that depends on the image may be rounded to fp16 and
    back without a product in between, because its consumers, such as a norm, would read rounded values.
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
            wrong.append(f"{kind} '{layer.name}' computes in fp16")
        elif kind == "Cast" and not _is_half(reads[0]):
            rounded |= {tensor.name for tensor in gives if tensor.name in depends}
        elif kind == "Cast" and reads[0].name in rounded:
            wrong.append(f"Cast '{layer.name}' returns a float32 that was rounded to fp16 for no product")
        elif kind in MOVES and any(tensor.name in rounded for tensor in reads):
            rounded |= {tensor.name for tensor in gives if _is_half(tensor)}
    return wrong


def _tensors(layer: Any) -> list[Any]:
    return [tensor for tensor in (*inputs_of(layer), *outputs_of(layer)) if tensor is not None]


def _is_half(tensor: Any) -> bool:
    return bool(tensor.dtype.name == "HALF")
