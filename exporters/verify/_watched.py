"""An explain graph that also returns its choices and the values that they are made from, in ONNX Runtime."""

from __future__ import annotations

import operator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx

from bcos_sdk.contract import Layout, explain_grid_by_rows
from bcos_sdk.exporters.onnx import WeightsFile, emit
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.program import Program, bind, is_constant
from bcos_sdk.exporters.verify._choices import Read, choices_of, decision, sources_of
from bcos_sdk.exporters.verify._sessions import open_session, run_session

__all__ = ["Watched", "WatchedGraph"]

_Array: TypeAlias = np.ndarray[Any, Any]

_STEP = 1e-5  # integers and booleans must be equal, a value with steps may be rounded


class Watched(NamedTuple):
    """The outputs of the graph, its choices in order, and their sources if these were asked for."""

    outputs: dict[str, _Array]
    choices: list[Tensor]
    sources: list[dict[fx.Node, Tensor]]


class WatchedGraph:
    """The graph of an explain program, with more outputs. Its other outputs are those of the graph without them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.choices = choices_of(program)
        self._names = {node: f"choice_{number}" for number, node in enumerate(self.choices)}
        sources = dict.fromkeys(node for choice in self.choices for node in sources_of(choice))
        self._sources = {node: f"source_{number}" for number, node in enumerate(sources) if node not in self._names}
        expose = {name: node for node, name in (*self._names.items(), *self._sources.items())}
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            with WeightsFile(Path(folder) / "weights.bin") as weights:
                model = emit(program, "watched", weights, SPELLINGS, expose=expose)
            path = Path(folder) / "watched.onnx"
            path.write_bytes(model.SerializeToString())
            self._session = open_session(path)

    def run(self, images: _Array, targets: _Array, *, with_sources: bool = False) -> Watched:
        """Explain targets [B, K] of images [B, …]."""
        inner = [*self._names.values(), *(self._sources.values() if with_sources else ())]
        runs: list[dict[str, Tensor]] = []

        def run(some: _Array, aims: _Array) -> dict[str, _Array]:
            outputs = run_session(self._session, some, aims, [*self._program.outputs, *inner])
            runs.append({name: torch.from_numpy(outputs.pop(name)) for name in inner})
            return outputs

        in_rows = self._program.layout is Layout.ROWS
        outputs = explain_grid_by_rows(run, images, targets) if in_rows else run(images, targets)
        found = {name: torch.cat([one[name] for one in runs]) for name in inner}
        choices = [found[self._names[node]] for node in self.choices]
        names = self._names | self._sources
        watched = self.choices if with_sources else []
        sources = [{node: found[names[node]] for node in sources_of(choice)} for choice in watched]
        return Watched(outputs, choices, sources)

    def disagreement(self, number: int, watched: Watched) -> int:
        """How many elements of a choice differ from the choice that torch makes for the same float32 values."""
        choice, sources = self.choices[number], watched.sources[number]

        def read(node: fx.Node) -> Any:
            return in_float32(self._program.value_of(node)) if is_constant(node) else sources[node]

        made, got = decision(choice, read), watched.choices[number]
        differ = ~torch.isclose(got.to(made.dtype), made, rtol=_STEP, atol=_STEP)
        if bool(differ.any()) and choice.target is operator.getitem:
            differ &= ~_are_ties(choice.args[0], made, got, read)
        return int(differ.sum())


def _are_ties(call: Any, made: Tensor, got: Tensor, read: Read) -> Tensor:
    """Where two indices find equal values. Of equal values any may be chosen, but each only once."""
    if call.target is not torch.ops.aten.topk.default:
        return torch.zeros_like(made, dtype=torch.bool)
    a = bind(call)
    values = read(a.self)
    once = (got.sort(a.dim).values.diff(dim=a.dim) != 0).all(a.dim, keepdim=True)
    same: Tensor = values.gather(a.dim, got) == values.gather(a.dim, made)
    return same & once


def in_float32(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value
