"""Compare the graphs of an export with the module on the probe images. A figure over its limit stops the export.

If the network has choices, such as ReLUs, results are compared given the choices of the graph: `_same_choices`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bcos_sdk.bundle import Golden, Parity
from bcos_sdk.contract import (
    GraphPrecision,
    InputSpec,
    Layout,
    certificate_scale,
    explain_grid_by_rows,
    mean_target,
    rank_target,
)
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters.compiler import Compiled
from bcos_sdk.exporters.program import Program
from bcos_sdk.exporters.verify._choices import choices_of
from bcos_sdk.exporters.verify._distances import distance, distances, largest, rounded
from bcos_sdk.exporters.verify._oracle import PROBES, Truth, check_finite, consult, near, probe_images
from bcos_sdk.exporters.verify._same_choices import SameChoices
from bcos_sdk.exporters.verify._scales import not_vanishing
from bcos_sdk.exporters.verify._sessions import open_session, run_session
from bcos_sdk.exporters.verify._watched import WatchedGraph
from bcos_sdk.images import decode

__all__ = ["LIMITS", "GraphFiles", "Trial", "parity_table"]

_Array: TypeAlias = np.ndarray[Any, Any]
_Predict: TypeAlias = Callable[[_Array], dict[str, _Array]]
_Explain: TypeAlias = Callable[[_Array, _Array], dict[str, _Array]]

LIMITS = {"logits": 1e-5, "weights": 1e-4, "contributions": 1e-4, "bias": 1e-5, "residual": 1e-5}
# Deep networks lose digits in float32, in torch too. A graph may differ by this multiple of torch's own float32 error.
_TIMES_TORCH = 5
# Limits that hold however large torch's own error is.
# A bias that is added before other layers, such as the mean of a normalisation, is multiplied by weights as pixels are.
# b(x) is one sum per target as a logit is, so both have the same cap. W(x) has many numbers and loses more digits.
_CAPS = LIMITS | {"logits": 1e-3, "weights": 1e-2, "contributions": 1e-2, "bias": 1e-3}
# The rounding error of fp16 is 4.9e-4, 2^13 times that of float32, and a network amplifies both by the same factor.
# Correct graphs differ by up to 1e-3 (logits), 3e-2 (W(x), on flat images) and 3e-4 (residual) in ONNX Runtime on the
# CPU. It does not round the results of products, but GPUs do; the limits allow for that.
_TIMES_HALF = 2**13
_HALF_LIMITS = {"logits": 2e-3, "weights": 4e-2, "contributions": 4e-2, "bias": 5e-4, "residual": 5e-4}
_HALF_CAPS = _HALF_LIMITS | {"logits": 2e-2, "weights": 1e-1, "contributions": 1e-1}
_WIDENED: dict[GraphPrecision, tuple[float, dict[str, float], dict[str, float]]] = {
    "fp32": (_TIMES_TORCH, LIMITS, _CAPS),
    "fp16": (_TIMES_HALF, _HALF_LIMITS, _HALF_CAPS),
}
_JUMPING = ("weights", "contributions", "bias")  # if a choice changes
_TINY = torch.finfo(torch.float32).tiny
_TIE = 1e-6  # logits closer than this, relative to the largest, may be ranked either way


class GraphFiles(NamedTuple):
    """The three graphs of a bundle."""

    predict: Path
    explain: Path
    explain_rows: Path


class Trial:
    """The results of the module on the probe images, computed once, and the limits for graphs of each precision.

    The probe images with the numbers in `nearby` are replaced by similar ones.

    `bias_share` is known after `judge`:
    Σ|bias term| / (Σ|contribution| + Σ|bias term|) for a class of high rank, the mean over the probe images. A term
    that is the same for every class, as the constant of a logit layer, speaks for none and does not count.
    """

    def __init__(
        self,
        module: nn.Module,
        compiled: Compiled,
        size: tuple[int, int],
        classes: int,
        max_batch: int,
        *,
        output: str | None = None,
        without: Collection[str] = (),
        spec: InputSpec | None = None,
        nearby: Collection[int] = (),
    ) -> None:
        probes = probe_images(size, spec)
        self.images = torch.stack([near(probes, i) if i in nearby else probe for i, probe in enumerate(probes)])
        ranks = [rank_target(1 + index % min(2, classes)) for index in range(len(self.images))]
        self._targets = torch.tensor([[rank, classes // 2, mean_target(classes)] for rank in ranks])
        self._module, self._compiled, self._output = module, compiled, output
        self._truth = consult(module, self.images, self._targets, output=output)
        check_finite(self._truth)
        takes_arrays = spec is not None and spec.channels == "none"
        self._pictures = probe_images(size) if takes_arrays else self.images
        self._same: SameChoices | None = None
        if choices_of(compiled.explain):
            self._same = SameChoices(module, self.images, self._truth, output, without)
            self._same.check_program()
        self.limits: dict[GraphPrecision, dict[str, float]] = {"fp32": dict(LIMITS), "fp16": dict(_HALF_LIMITS)}
        self.bias_share = float("nan")
        self._batches = sorted({1, min(2, max_batch), min(3, max_batch), max_batch})

    @property
    def limits_of_layers(self) -> dict[str, float]:
        """The limits for graphs of inner layers. They are not compared given the same choices, so W may jump."""
        if self._same is None:
            self._widen_limits()
        return self.limits["fp32"] | ({} if self._same is None else {name: _CAPS[name] for name in _JUMPING})

    @property
    def target(self) -> int:
        """The class of the golden record."""
        return int(self._truth.classes[PROBES.index("photograph"), 0])

    @property
    def golden(self) -> Golden:
        """The result for the photograph. Its `jump` is that of the graphs that `judge` has seen last."""
        photograph = PROBES.index("photograph")
        return Golden(
            pixels=decode(self._pictures[photograph].numpy()),
            target=self.target,
            logits=self._truth.logits[photograph].float().numpy(),
            weights=self._truth.weights[photograph, 0].float().numpy(),
            jump=None if self._same is None else self._same.jump(),
        )

    @cached_property
    def _own_error(self) -> dict[str, float]:
        """The error of float32 itself, in torch. An error over its cap is a `ParityError`."""
        in_float32 = consult(self._module, self.images, self._truth.classes, torch.float32, output=self._output)
        own = distances(vars(in_float32), self._truth)
        if self._same is not None:
            own |= self._same.error_in_float32(self._compiled) | {"logits": own["logits"]}
        for name, error in own.items():
            if not error <= _CAPS[name]:
                raise ParityError(
                    f"the module is not accurate in float32: its {name} differ from float64 by {error:.1e} (relative "
                    f"L2), limit {_CAPS[name]:.1e}",
                    hint="No bundle was written. Change the module: its rounding errors would dominate the "
                    "explanations.",
                )
        return own

    def _widen_limits(self) -> None:
        """Let each limit be a multiple of torch's own error, clamped to the least and the largest limit."""
        for precision, (times, least, most) in _WIDENED.items():
            for name in least:
                widened = rounded(times * self._own_error.get(name, 0.0))
                self.limits[precision][name] = min(max(least[name], widened), most[name])

    def judge(self, graphs: GraphFiles, compiled: Compiled, precision: GraphPrecision = "fp32") -> tuple[Parity, ...]:
        """The figures at batch 1, 2, 3 and the largest batch. A figure over its limit, or NaN, is a `ParityError`.

        `compiled` has the programs of the graphs. At the first and the last batch size both explain graphs run, and
        each figure is the worse of the two.
        """
        predict = partial(run_session, open_session(graphs.predict))
        grid = _Explainer.of(graphs.explain, compiled.explain, watch=self._same is not None)
        rows = _Explainer.of(graphs.explain_rows, compiled.explain_rows, watch=self._same is not None)
        for explainer in (grid, rows):
            self._check_ranks(explainer.explain, _TIE if precision == "fp32" else 2 * self.limits[precision]["logits"])
        figures = []
        for batch in self._batches:
            # One target for the largest batch: more would need much memory and test nothing new.
            count = self._targets.shape[1] if batch <= 3 else 1
            trials = [(grid, count)]
            # At other sizes the graph in ROWS would run image by image, as at batch 1.
            if batch in (1, self._batches[-1]):
                trials.append((rows, count if batch == 1 else 1))
            measured = [
                self._measure(predict, explainer, chosen, targets, precision)
                for explainer, targets in trials
                for chosen in _batches(len(self.images), batch)
            ]
            if batch == 1:
                self.bias_share = sum(one["bias_share"] for one in measured) / len(measured)
            worst = {name: rounded(max(one[name] for one in measured)) for name in LIMITS}
            self._judge(batch, worst, precision)
            figures.append(Parity(batch=batch, targets=count, **worst))
        return tuple(figures)

    def _judge(self, batch: int, figures: Mapping[str, float], precision: GraphPrecision) -> None:
        limits = self.limits[precision]
        # Torch's own error takes a fifth of the time of an export, and most graphs keep the least limits. Those of fp16
        # are also the limits of self-tests on other devices.
        exceeded = any(not figures[name] <= limit for name, limit in limits.items())
        if exceeded or (precision == "fp16" and self._same is None):
            self._widen_limits()
        for name, limit in limits.items():
            if not figures[name] <= limit:
                raise ParityError(
                    f"the graphs differ from the module: error of {name} {figures[name]:.1e} at batch {batch}, "
                    f"limit {limit:.1e}",
                    hint=f"No bundle was written. The probe images were: {', '.join(PROBES)}.",
                )

    def _measure(
        self, predict: _Predict, explainer: _Explainer, chosen: list[int], targets: int, precision: GraphPrecision
    ) -> dict[str, float]:
        """The errors of the predict graph and an explain graph on these images; if W(x) jumps, given their choices."""
        images, truth = self.images[chosen], self._truth.part(chosen, targets)
        predicted = torch.from_numpy(predict(images.numpy())["logits"]).double()
        outputs = explainer.explain(images.numpy(), truth.classes.numpy())
        if self._same is None:
            return _errors(predicted, outputs, truth)
        assert explainer.watched is not None
        watched = explainer.watched.run(images.numpy(), truth.classes.numpy(), with_sources=len(chosen) == 1)
        if len(chosen) == 1:
            self._same.check_choices(explainer.watched, watched, chosen[0])
        given = self._same.given(chosen, targets, watched.choices)
        errors = _errors(predicted, watched.outputs, given)
        if all(np.array_equal(outputs[name], watched.outputs[name]) for name in outputs):
            return errors
        # The graph of the bundle was optimised in another way, so its choices are not known exactly.
        unwatched, (_, _, most) = _errors(predicted, outputs, given), _WIDENED[precision]
        return unwatched | {name: errors[name] for name in _JUMPING if unwatched[name] <= most[name]}

    def _check_ranks(self, explain: _Explain, tie: float) -> None:
        """Check that the class which the graph finds for a rank has the logit of that rank."""
        found = torch.from_numpy(explain(self.images.numpy(), self._targets[:, :1].numpy())["classes"])
        logits = self._truth.logits
        short = logits.gather(1, self._truth.classes[:, :1]) - logits.gather(1, found)
        wrong = (short.abs() > tie * not_vanishing(logits.abs().amax(1))[:, None]).flatten()
        if bool(wrong.any()):
            image = int(wrong.nonzero()[0])
            raise ParityError(
                f"the graph resolves target {int(self._targets[image, 0])} of the probe image {PROBES[image]!r} "
                f"to class {int(found[image, 0])}, expected class {int(self._truth.classes[image, 0])}",
                hint="No bundle was written.",
            )


class _Explainer(NamedTuple):
    """An explain graph of the bundle, and the same graph with its choices as outputs if W(x) has jumps."""

    explain: _Explain
    watched: WatchedGraph | None

    @classmethod
    def of(cls, path: Path, program: Program, *, watch: bool) -> _Explainer:
        run: _Explain = partial(run_session, open_session(path))
        explain = partial(explain_grid_by_rows, run) if program.layout is Layout.ROWS else run
        return cls(explain, WatchedGraph(program) if watch else None)


def parity_table(figures: Sequence[Parity], limits: Mapping[str, float]) -> list[tuple[str, ...]]:
    """The figures as text: a header, one row per batch size, and the limits."""
    header = ("BATCH", "TARGETS", "LOGITS", "W(X)", "CONTRIBUTIONS", "BIAS", "RESIDUAL")
    rows = [(str(one.batch), str(one.targets), *(f"{getattr(one, name):.1e}" for name in LIMITS)) for one in figures]
    return [header, *rows, ("limit", "", *(f"{limits[name]:.1e}" for name in LIMITS))]


def _batches(images: int, batch: int) -> Iterator[list[int]]:
    """Indices of all images in batches of this size; the last batch repeats images until it is full."""
    for start in range(0, images, batch):
        yield [index % images for index in range(start, start + batch)]


def _errors(predicted: Tensor, outputs: dict[str, _Array], truth: Truth) -> dict[str, float]:
    """The distances of both graphs from the truth, by the names in LIMITS, and the bias share of the first target."""
    got = {name: torch.from_numpy(value) for name, value in outputs.items()}
    if not torch.equal(got["classes"], truth.classes):
        raise ParityError(
            f"the graph explains the classes {got['classes'].tolist()}, expected {truth.classes.tolist()}",
            hint="No bundle was written.",
        )
    is_mean = outputs["classes"] == mean_target(outputs["logits"].shape[1])
    scale = certificate_scale(outputs["contributions"], outputs["bias_terms"], outputs["logits"][:, None], is_mean)
    scales = torch.from_numpy(scale).maximum(truth.scales.least_residual)
    got = {name: value.double() for name, value in got.items()}
    every = torch.cat([got["logits"], got["logits"].mean(1, keepdim=True)], dim=1)
    total = got["contributions"].sum((2, 3)) + got["bias"]
    pixels, terms = truth.contributions[:, 0].abs().sum((1, 2)), _terms_of_the_class(got["bias_terms"], every)
    errors = distances(got, truth)
    return errors | {
        "bias_share": float((terms / (pixels + terms).clamp_min(_TINY)).mean()),
        "logits": max(errors["logits"], distance(predicted, truth.logits, truth.scales.logits)),
        "bias": largest((got["bias"] - truth.bias).abs() / scales),
        "residual": largest((every.gather(1, truth.classes) - total).abs() / scales),
    }


def _terms_of_the_class(terms: Tensor, logits_and_mean: Tensor) -> Tensor:
    """Σ|bias term| of the first target of each image, without terms that are the same for the mean of all classes."""
    own, of_mean = terms[:, 0], terms[:, -1]
    one_class = logits_and_mean.shape[1] == 2
    return torch.where(torch.isclose(own, of_mean) & (not one_class), 0.0, own.abs()).sum(1)
