"""Compare the graphs of an export with the module on the probe images. A figure over its limit stops the export.

The graphs run on ONNX Runtime with its default optimisations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bcos_sdk._telemetry import import_onnxruntime
from bcos_sdk.bundle import Golden, Parity
from bcos_sdk.contract import (
    IMAGE,
    TARGETS,
    GraphPrecision,
    certificate_scale,
    explain_grid_by_rows,
    mean_target,
    rank_target,
)
from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters.verify._oracle import PROBES, Truth, consult, probe_images
from bcos_sdk.exporters.verify._scales import not_vanishing
from bcos_sdk.images import decode

__all__ = ["LIMITS", "GraphFiles", "Trial", "parity_table", "run_graph"]

_Array: TypeAlias = np.ndarray[Any, Any]
_Predict: TypeAlias = Callable[[_Array], dict[str, _Array]]
_Explain: TypeAlias = Callable[[_Array, _Array], dict[str, _Array]]

LIMITS = {"logits": 1e-5, "weights": 1e-4, "contributions": 1e-4, "bias": 1e-5, "residual": 1e-5}
# Deep networks lose digits in float32, in torch too. A graph may differ by this multiple of torch's own float32 error.
_TIMES_TORCH = 5
# Limits that hold however large torch's own error is.
# A bias that is added before other layers, such as the mean of a normalisation, is multiplied by weights as pixels are.
_CAPS = LIMITS | {"logits": 1e-3, "weights": 1e-2, "contributions": 1e-2, "bias": 1e-3}
# The rounding error of fp16 is 4.9e-4, 2^13 times that of float32, and a network amplifies both by the same factor.
# Correct graphs differ by up to 1e-3 (logits), 3e-2 (W(x), on flat images) and 3e-4 (residual) in ONNX Runtime on the
# CPU. It does not round the results of products, but GPUs do; the limits allow for that.
_TIMES_HALF = 2**13
_HALF_LIMITS = {"logits": 2e-3, "weights": 4e-2, "contributions": 4e-2, "bias": 5e-4, "residual": 5e-4}
_HALF_CAPS = _HALF_LIMITS | {"logits": 2e-2, "weights": 1e-1, "contributions": 1e-1}
# W(x) jumps where two units of a MaxOut are equal, and rounding decides which of them is the larger.
_JUMPING = ("weights", "contributions")
_TINY = torch.finfo(torch.float32).tiny
_TIE = 1e-6  # logits closer than this, relative to the largest, may be ranked either way


class GraphFiles(NamedTuple):
    """The three graphs of a bundle."""

    predict: Path
    explain: Path
    explain_rows: Path


class Trial:
    """The results of the module on the probe images, computed once, and the limits for graphs of each precision.

    `golden` has the result for the photograph: the golden record of the bundle. `bias_share` is known after `judge`:
    Σ|bias term| / (Σ|contribution| + Σ|bias term|) for a class of high rank, the mean over the probe images.
    """

    def __init__(
        self,
        module: nn.Module,
        size: tuple[int, int],
        classes: int,
        max_batch: int,
        *,
        has_choices: bool,
        output: str | None = None,
    ) -> None:
        self.images = probe_images(size)
        ranks = [rank_target(1 + index % min(2, classes)) for index in range(len(self.images))]
        self._targets = torch.tensor([[rank, classes // 2, mean_target(classes)] for rank in ranks])
        self._truth = consult(module, self.images, self._targets, output=output)
        in_float32 = consult(module, self.images, self._truth.classes, torch.float32, output=output)
        own = _error_of_torch(self._truth, in_float32)
        self.limits: dict[GraphPrecision, dict[str, float]] = {
            "fp32": _limits(own, LIMITS, _CAPS, _TIMES_TORCH, has_choices=has_choices),
            "fp16": _limits(own, _HALF_LIMITS, _HALF_CAPS, _TIMES_HALF, has_choices=has_choices),
        }
        self.golden = _golden(self.images, self._truth)
        self.bias_share = float("nan")
        self._batches = sorted({1, min(2, max_batch), min(3, max_batch), max_batch})

    def judge(self, graphs: GraphFiles, precision: GraphPrecision = "fp32") -> tuple[Parity, ...]:
        """The figures at batch 1, 2, 3 and the largest batch. A figure over its limit, or NaN, is a `ParityError`.

        At the first and the last batch size both explain graphs run, and each figure is the worse of the two.
        """
        limits = self.limits[precision]
        predict = partial(run_session, _session(graphs.predict))
        grid = partial(run_session, _session(graphs.explain))
        rows = partial(explain_grid_by_rows, partial(run_session, _session(graphs.explain_rows)))
        for explain in (grid, rows):
            self._check_ranks(explain, _TIE if precision == "fp32" else 2 * limits["logits"])
        figures = []
        for batch in self._batches:
            # One target for the largest batch: more would need much memory and test nothing new.
            count = self._targets.shape[1] if batch <= 3 else 1
            trials: list[tuple[_Explain, int]] = [(grid, count)]
            # At other sizes the graph in ROWS would run image by image, as at batch 1.
            if batch in (1, self._batches[-1]):
                trials.append((rows, count if batch == 1 else 1))
            measured = [
                _measure(predict, explain, self.images[chosen], self._truth.part(chosen, targets))
                for explain, targets in trials
                for chosen in _batches(len(self.images), batch)
            ]
            if batch == 1:
                self.bias_share = sum(one["bias_share"] for one in measured) / len(measured)
            worst = {name: _rounded(max(one[name] for one in measured)) for name in LIMITS}
            figures.append(Parity(batch=batch, targets=count, **worst))
            _judge(figures[-1], limits)
        return tuple(figures)

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


def _golden(images: Tensor, truth: Truth) -> Golden:
    photograph = PROBES.index("photograph")
    return Golden(
        pixels=decode(images[photograph].numpy()),
        target=int(truth.classes[photograph, 0]),
        logits=truth.logits[photograph].float().numpy(),
        weights=truth.weights[photograph, 0].float().numpy(),
    )


def _error_of_torch(truth: Truth, in_float32: Truth) -> dict[str, float]:
    """The error of the module itself in float32, relative to float64. An error over its cap is a `ParityError`."""
    own = {
        "logits": _distance(in_float32.logits, truth.logits, truth.scales.logits),
        "weights": _distance(in_float32.weights, truth.weights, truth.scales.weights),
        "contributions": _distance(in_float32.contributions, truth.contributions, truth.scales.contributions),
        "bias": _largest((in_float32.bias - truth.bias).abs() / truth.scales.bias),
    }
    for name, error in own.items():
        if not error <= _CAPS[name]:
            raise ParityError(
                f"the module is not accurate in float32: its {name} differ from float64 by {error:.1e} (relative L2), "
                f"limit {_CAPS[name]:.1e}",
                hint="No bundle was written. Change the module: its rounding errors would dominate the explanations.",
            )
    return own


def _limits(
    own: Mapping[str, float], least: Mapping[str, float], most: Mapping[str, float], times: float, *, has_choices: bool
) -> dict[str, float]:
    """`times` torch's own error, clamped to [`least`, `most`]. With choices W(x) has jumps, so its limit is `most`."""
    limits = {name: min(max(least[name], _rounded(times * own.get(name, 0.0))), most[name]) for name in least}
    return limits | ({name: most[name] for name in _JUMPING} if has_choices else {})


def parity_table(figures: Sequence[Parity], limits: Mapping[str, float]) -> list[tuple[str, ...]]:
    """The figures as text: a header, one row per batch size, and the limits."""
    header = ("BATCH", "TARGETS", "LOGITS", "W(X)", "CONTRIBUTIONS", "BIAS", "RESIDUAL")
    rows = [(str(one.batch), str(one.targets), *(f"{getattr(one, name):.1e}" for name in LIMITS)) for one in figures]
    return [header, *rows, ("limit", "", *(f"{limits[name]:.1e}" for name in LIMITS))]


def _batches(images: int, batch: int) -> Iterator[list[int]]:
    """Indices of all images in batches of this size; the last batch repeats images until it is full."""
    for start in range(0, images, batch):
        yield [index % images for index in range(start, start + batch)]


def _measure(predict: _Predict, explain: _Explain, images: Tensor, truth: Truth) -> dict[str, float]:
    """The distances of both graphs from the truth, by the names in LIMITS, and the bias share of the first target."""
    predicted = torch.from_numpy(predict(images.numpy())["logits"]).double()
    outputs = explain(images.numpy(), truth.classes.numpy())
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
    both_logits = (predicted, got["logits"])
    pixels, terms = truth.contributions[:, 0].abs().sum((1, 2)), got["bias_terms"][:, 0].abs().sum(1)
    return {
        "bias_share": float((terms / (pixels + terms).clamp_min(_TINY)).mean()),
        "logits": max(_distance(logits, truth.logits, truth.scales.logits) for logits in both_logits),
        "weights": _distance(got["weights"], truth.weights, truth.scales.weights),
        "contributions": _distance(got["contributions"], truth.contributions, truth.scales.contributions),
        "bias": _largest((got["bias"] - truth.bias).abs() / scales),
        "residual": _largest((every.gather(1, truth.classes) - total).abs() / scales),
    }


def _distance(value: Tensor, truth: Tensor, scale: Tensor) -> float:
    """The largest ‖value − truth‖ / scale over all samples. The scale has one number per sample."""
    return _largest((value - truth).flatten(scale.ndim).norm(dim=-1) / scale)


def _largest(values: Tensor) -> float:
    return float(values.max()) if bool(values.isfinite().all()) else float("inf")


def _rounded(value: float) -> float:
    return float(f"{value:.1e}")


def _judge(figures: Parity, limits: Mapping[str, float]) -> None:
    for name, limit in limits.items():
        value = getattr(figures, name)
        if not value <= limit:
            raise ParityError(
                f"the graphs differ from the module: error of {name} {value:.1e} at batch {figures.batch}, "
                f"limit {limit:.1e}",
                hint=f"No bundle was written. The probe images were: {', '.join(PROBES)}.",
            )


def _session(path: Path) -> Any:
    onnxruntime = import_onnxruntime()

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no narrower common base
        raise ExportError(
            f"ONNX Runtime cannot load {path.name}: {error}",
            source=path.name,
            hint="This is a fault in the exporter, or ONNX Runtime is too old. Please report it.",
        ) from error


def run_graph(path: Path, images: _Array) -> dict[str, _Array]:
    """All outputs of a predict graph by name."""
    return run_session(_session(path), images)


def run_session(session: Any, images: _Array, targets: _Array | None = None) -> dict[str, _Array]:
    """All outputs of a graph by name; without targets, of the predict graph."""
    feed = {IMAGE.name: images} | ({} if targets is None else {TARGETS.name: targets})
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))
