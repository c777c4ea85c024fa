"""The logits among the results of a module: a tensor, or one tensor of a dict, tuple or named tuple."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from bcos_sdk.errors import CaptureError

__all__ = ["logits_of", "result_of"]


def logits_of(result: Any, output: str | None, batch: int) -> Tensor:
    """The result called `output`, or the only one, as logits [batch, classes].

    One value per image is a network with one class. A map [batch, classes, height, width] has a logit for each class at
    each of its pixels, in this order.
    """
    logits = result_of(result, output)
    if logits.ndim <= 1:
        logits = logits.reshape(batch, -1)
    if logits.ndim == 4 and len(logits) == batch:
        logits = logits.flatten(1)
    if logits.ndim != 2 or len(logits) != batch:
        raise CaptureError(
            f"the module returns shape {list(logits.shape)} for a batch of {batch}, expected logits of shape "
            "[batch, classes] or a map [batch, classes, height, width]",
            hint="Return one row or one map of logits per image, for any batch size.",
        )
    return logits


def result_of(result: Any, output: str | None) -> Tensor:
    """The result called `output`, or the only one.

    Results are called as in Python: "logits" for a key or a field, "0" for an item of a tuple, "head.0" for an item of
    a field.
    """
    if is_dataclass(result):
        result = vars(result)
    leaves, _ = tree_flatten_with_path(result)
    tensors = {_name(path): leaf for path, leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()}
    if output is not None and output not in tensors:
        raise CaptureError(
            f"the module has no result called {output!r}; it returns {_listed(tensors)}",
            hint="Choose one of these names, or none if the module returns one tensor.",
        )
    if output is None and len(tensors) != 1:
        raise CaptureError(
            f"the module returns {_listed(tensors)}, expected the logits",
            hint="Choose one of them: --output-name NAME, or export(…, output='NAME')."
            if tensors
            else "Return the logits as a tensor of floating-point numbers.",
        )
    return tensors[output] if output is not None else next(iter(tensors.values()))


def _name(path: Any) -> str:
    return keystr(path).replace("']['", ".").strip("[]'.").replace("'][", ".").replace("][", ".").replace("]", "")


def _listed(tensors: dict[str, Tensor]) -> str:
    if not tensors:
        return "no tensor of floating-point numbers"
    return f"{len(tensors)} tensors ({', '.join(name or 'the result' for name in tensors)})"
