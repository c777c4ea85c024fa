"""Compare W(x) given the same choices, so that a ReLU whose input is nearly zero does not hide other errors.

Float32 and float64 make different choices where two values are nearly equal, and W(x) jumps there. So the comparison of
a graph with autograd has two steps. Both are strict:

1. The explain program, compiled in float64, equals autograd in float64. Both make the same choices.
2. The graph in float32 equals the explain program in float64, on which the choices of the graph are imposed. Each of
   these choices must be the one that torch makes for the same float32 values, and these values must be the right ones.

Where two values are exactly equal, as on flat images, several choices are right, and rounding in float64 decides too.
Then the first step is made with a similar image.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters.compiler import Compiled, compile_module
from bcos_sdk.exporters.program import is_floating, path_of
from bcos_sdk.exporters.verify._choices import Decide, Read, Replay, decision, origin_of, recomputed, sources_of
from bcos_sdk.exporters.verify._distances import distances
from bcos_sdk.exporters.verify._oracle import PROBES, Truth, consult, in_precision, near
from bcos_sdk.exporters.verify._watched import Watched, WatchedGraph

__all__ = ["SameChoices"]

_EQUAL = 1e-8
"""Largest error of the program in float64. Networks amplify its rounding errors of 1e-16, but not by this much."""
_CLOSE = 1e-2
"""Largest error of the values that a choice is made from, relative to them. This only checks that they are right."""
_LEAST = 1e-3
"""The least scale of that error, relative to the largest of these values: some of them are differences that vanish."""
_GENERIC = ("noise", "photograph")
"""The probe images without exact ties."""
_ROUNDING = 16
"""Noise for the jump, as a multiple of the rounding errors of ONNX Runtime. It changes 16 times as many choices. Their
effects are independent, so they move W(x) about 4 times as far as the rounding errors of a similar device."""
_DRAWS = 4
"""Runs with noise. A choice that rounding can change, changes in one of them with a probability of over 90 %."""


@dataclass
class SameChoices:
    """The explain program of one module in float64, and its results on the probe images for given choices."""

    module: nn.Module
    images: Tensor
    truth: Truth
    output: str | None
    without: Collection[str]
    _given: dict[tuple[int, bytes], Truth] = field(default_factory=dict)
    _errors: dict[tuple[int, fx.Node], float] = field(default_factory=dict)
    """The root mean square error of each source of each choice, for the photograph."""

    def __post_init__(self) -> None:
        size = (self.images.shape[2], self.images.shape[3])
        double = copy.deepcopy(self.module).double()
        with in_precision(torch.float64):
            exact = compile_module(
                double, size, channels=self.images.shape[1], output=self.output, without=self.without
            )
        self._replay = Replay(exact.explain, torch.float64)

    def check_program(self) -> None:
        """Step 1: the program equals autograd. Otherwise a `ParityError`."""
        for index, image in enumerate(self.images):
            native, choices = self._run(image, self.truth.part([index], self.truth.classes.shape[1]))
            self._given[index, _digest(choices)] = native
            if _largest_error(native, self.truth.part([index], native.classes.shape[1])) <= _EQUAL:
                continue
            nearby = near(self.images, index)
            truth = consult(self.module, nearby[None], native.classes, output=self.output)
            error = _largest_error(self._run(nearby, truth)[0], truth)
            if not error <= _EQUAL:
                raise ParityError(
                    f"the transposed pass differs from autograd in float64 by {error:.1e} on the probe image "
                    f"{PROBES[index]!r}, limit {_EQUAL:.0e}",
                    hint="No bundle was written. This is a fault in the exporter. Please report it.",
                )

    def _run(self, image: Tensor, truth: Truth, decide: Decide | None = None) -> tuple[Truth, list[Tensor]]:
        """Results for one image and the targets of `truth`, in its form, and the choices."""
        outputs, choices = self._replay.run(image[None], truth.classes, decide)
        logits, weights, contributions, bias = (
            outputs[name].double() for name in ("logits", "weights", "contributions", "bias")
        )
        return Truth(logits, truth.classes, weights, contributions, bias, truth.scales), choices

    def given(self, chosen: Sequence[int], targets: int, choices: Sequence[Tensor]) -> Truth:
        """The results for these probe images and their first `targets` targets, given the choices of a graph."""
        parts = []
        for place, index in enumerate(chosen):
            own = [choice[place : place + 1] for choice in choices]
            key = index, _digest(own)
            if key not in self._given:
                everything = self.truth.part([index], self.truth.classes.shape[1])
                self._given[key], _ = self._run(self.images[index], everything, partial(_impose, own))
            parts.append(self._given[key])
        every = Truth.joined(parts)
        return every.part(list(range(len(parts))), targets)

    def check_choices(self, graph: WatchedGraph, watched: Watched, index: int) -> None:
        """Step 2, for a run on one probe image: its choices are right, and they are made from the right values."""
        self._match(graph.choices)
        for number, choice in enumerate(graph.choices):
            if wrong := graph.disagreement(number, watched):
                raise ParityError(
                    f"the graph makes {wrong} other choices than torch for the same values: operator {choice.target} "
                    f"in module '{path_of(choice)}', probe image {PROBES[index]!r}",
                    hint="No bundle was written. This is a fault in the exporter. Please report it.",
                )
        if PROBES[index] in _GENERIC:
            self._check_sources(watched, index)

    def _match(self, choices: Sequence[fx.Node]) -> None:
        """Check that a graph and the program in float64 make the same choices in the same order."""
        ours, theirs = ([(one.target, path_of(one)) for one in some] for some in (self._replay.choices, choices))
        if ours != theirs:
            raise ExportError(
                f"the program has {len(theirs)} choices in float32 and {len(ours)} in float64, expected the same",
                hint="This is a fault in the exporter. Please report it.",
            )

    def _check_sources(self, watched: Watched, index: int) -> None:
        found: dict[tuple[int, fx.Node], tuple[Tensor, Tensor]] = {}

        def decide(number: int, read: Read) -> Tensor:
            own = sources_of(self._replay.choices[number])
            for node, value in zip(own, watched.sources[number].values(), strict=True):
                if is_floating(node):
                    exact = read(node)
                    found[number, node] = _error_and_size(value.double(), exact)
            return watched.choices[number]

        self._run(self.images[index], self.truth.part([index], 1), decide)
        largest = max((size for _, size in found.values()), default=torch.zeros(()))
        for (number, node), (error, size) in found.items():
            if not error <= _CLOSE * size.maximum(_LEAST * largest):
                choice = self._replay.choices[number]
                raise ParityError(
                    f"the graph chooses by values that differ from those of torch by {float(error / size):.1e}: "
                    f"operator {choice.target} in module '{path_of(choice)}', probe image {PROBES[index]!r}",
                    hint="No bundle was written. This is a fault in the exporter. Please report it.",
                )
            if PROBES[index] == "photograph":
                self._errors[number, node] = float(error)

    def jump(self) -> float:
        """How far the golden row of W(x) moves, relative to it, if choices are made with other rounding errors."""
        photograph = PROBES.index("photograph")
        truth = self.truth.part([photograph], 1)
        generator = torch.Generator().manual_seed(0)

        def decide(number: int, read: Read) -> Tensor:
            choice = self._replay.choices[number]
            sources, moved = sources_of(choice), {}
            for source in sources:
                origin = origin_of(source, sources)
                error = self._errors.get((number, origin if origin in sources else source), 0.0)
                if error and origin not in moved:
                    noise = torch.randn(read(origin).shape, generator=generator, dtype=torch.float64)
                    moved[origin] = read(origin) + _ROUNDING * error * noise

            def value(source: fx.Node) -> Any:
                origin = origin_of(source, sources)
                return recomputed(source, origin, moved[origin], read) if origin in moved else read(source)

            made: Tensor = decision(choice, value)
            return made

        rows = [self._run(self.images[photograph], truth, decide)[0].weights for _ in range(_DRAWS)]
        size = max(float(truth.weights.norm()), torch.finfo().tiny)
        return max(float((row - truth.weights).norm()) for row in rows) / size

    def error_in_float32(self, compiled: Compiled) -> dict[str, float]:
        """The errors of the explain program in torch in float32, given its choices: those of float32 itself."""
        replay = Replay(compiled.explain, torch.float32)
        self._match(replay.choices)
        worst: dict[str, float] = {}
        for index, image in enumerate(self.images):
            outputs, choices = replay.run(image[None], self.truth.classes[index : index + 1])
            truth = self.given([index], self.truth.classes.shape[1], choices)
            for name, error in distances({name: value.double() for name, value in outputs.items()}, truth).items():
                worst[name] = max(worst.get(name, 0.0), error)
        return worst


def _impose(choices: Sequence[Tensor], number: int, _read: Read) -> Tensor:
    return choices[number]


def _digest(choices: Sequence[Tensor]) -> bytes:
    digest = hashlib.sha256()
    for choice in choices:
        small = choice.float() if choice.is_floating_point() else choice
        digest.update(small.contiguous().numpy().tobytes())
    return digest.digest()


def _largest_error(found: Truth, truth: Truth) -> float:
    return max(distances(vars(found), truth).values())


def _error_and_size(value: Tensor, exact: Tensor) -> tuple[Tensor, Tensor]:
    """Root mean squares. Equal infinities, and NaN in both, are no error."""
    same = (value == exact) | (value.isnan() & exact.isnan())
    difference = torch.where(same, 0.0, value - exact)
    return _mean_square(difference), _mean_square(torch.where(exact.isfinite(), exact, 0.0))


def _mean_square(value: Tensor) -> Tensor:
    return value.square().mean().sqrt()
