"""torch module → the programs of a bundle: predict and, in two layouts of its targets, explain; simplified."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from torch import nn

from bcos_sdk.errors import ExportError
from bcos_sdk.exporters._capture import capture
from bcos_sdk.exporters._explain import explain_program
from bcos_sdk.exporters._program import Program
from bcos_sdk.exporters.simplify import EXPLAIN_PASSES, FORWARD_PASSES

__all__ = ["Compiled", "compile_module"]


@dataclass(frozen=True)
class Compiled:
    """image → logits; (image, targets) → explanation; the names of b(x)'s terms; rewrites per pass.

    `explain` takes a grid of images and targets, `explain_rows` one target per image or targets of one image: with no
    axis that convolutions do not know, it is for runtimes where a reshape costs a copy.
    """

    predict: Program
    explain: Program
    explain_rows: Program
    bias_terms: tuple[str, ...]
    rewrites: dict[str, int] = field(default_factory=dict)


def compile_module(
    module: nn.Module, size: tuple[int, int], *, channels: int = 6, without: Collection[str] = ()
) -> Compiled:
    """Capture, simplify, transpose, simplify; `without` names passes to leave out, to find out about one."""
    known = {simplification.__name__ for simplification in (*FORWARD_PASSES, *EXPLAIN_PASSES)}
    if unknown := set(without) - known:
        raise ExportError(
            f"no simplification is called {', '.join(sorted(unknown))}", hint=f"There are: {', '.join(sorted(known))}."
        )
    rewrites: dict[str, int] = {}
    predict = capture(module, size, channels=channels)
    _simplify(predict, FORWARD_PASSES, without, rewrites)
    explain, bias_terms = explain_program(predict)
    _simplify(explain, EXPLAIN_PASSES, without, rewrites)
    explain_rows, _ = explain_program(predict, by_rows=True)
    _simplify(explain_rows, EXPLAIN_PASSES, without, rewrites)
    predict.remove_marks()
    return Compiled(predict, explain, explain_rows, bias_terms, rewrites)


def _simplify(
    program: Program,
    passes: Collection[Callable[[Program], int]],
    without: Collection[str],
    rewrites: dict[str, int],
) -> None:
    for simplification in passes:
        name = simplification.__name__
        if name not in without:
            rewrites[name] = rewrites.get(name, 0) + simplification(program)
            program.clean()
