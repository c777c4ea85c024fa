"""Is the exported graph the module? Measured on the optimised session, fail closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcos_sdk.bundle import Golden, Parity
from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters._oracle import Truth, consult
from bcos_sdk.exporters._probes import PROBES, probe_images
from bcos_sdk.images import decode

__all__ = ["LIMITS", "parity_table", "validate"]

LIMITS = {"logits": 1e-5, "weights": 1e-4, "contributions": 1e-4, "bias": 1e-5, "residual": 1e-5}
# Deep random networks lose digits in float32, torch's own result too: no graph is held to more than a few times that.
_TIMES_TORCH = 5
# And never to less than this, whatever torch's own error is.
_CAPS = LIMITS | {"logits": 1e-3, "weights": 1e-2, "contributions": 1e-2}
_TINY = torch.finfo(torch.float32).tiny
_TIE = 1e-6  # two logits this close, relative to the largest, have no rank that could be called wrong


def validate(
    module: nn.Module,
    predict: Path,
    explain: Path,
    size: tuple[int, int],
    classes: int,
    max_batch: int,
    *,
    has_jumps: bool,
) -> tuple[tuple[Parity, ...], dict[str, float], Golden]:
    """Figures at batch 1, 2, 3 and max, their limits, and the truth about the photograph.

    A figure that is over its limit, or is not a number, is a `ParityError`.
    """
    images = probe_images(size)
    ranks = [-1 - index % min(2, classes) for index in range(len(images))]
    targets = torch.tensor([[rank, classes // 2, classes] for rank in ranks])
    truth = consult(module, images, targets)
    limits = _limits(truth, consult(module, images, truth.classes, torch.float32), has_jumps=has_jumps)
    sessions = _session(predict), _session(explain)
    _check_ranks(sessions[1], images, targets, truth)
    figures = []
    for batch in sorted({1, min(2, max_batch), min(3, max_batch), max_batch}):
        # The largest batch shows that batching works; all targets at once would only show how much memory there is.
        count = targets.shape[1] if batch <= 3 else 1
        batches = _batches(len(images), batch)
        rows = [_measure(sessions, images[chosen], truth.part(chosen, count)) for chosen in batches]
        worst = {name: _rounded(max(row[name] for row in rows)) for name in LIMITS}
        figures.append(Parity(batch=batch, targets=count, **worst))
    _judge(figures, limits)
    return tuple(figures), limits, _golden(images, truth)


def _golden(images: Tensor, truth: Truth) -> Golden:
    photograph = PROBES.index("photograph")
    return Golden(
        pixels=decode(images[photograph].numpy()),
        target=int(truth.classes[photograph, 0]),
        logits=truth.logits[photograph].float().numpy(),
        weights=truth.weights[photograph, 0].float().numpy(),
    )


def _limits(truth: Truth, in_float32: Truth, *, has_jumps: bool) -> dict[str, float]:
    own = {
        "logits": _distance(in_float32.logits, truth.logits, 1),
        "weights": _distance(in_float32.weights, truth.weights, 3),
        "contributions": _distance(in_float32.contributions, truth.contributions, 2),
    }
    # Where two units of a MaxOut are equal W(x) jumps, and rounding decides on which side a pixel's path falls.
    jumping = {"weights", "contributions"} if has_jumps else set()
    limits = {}
    for name, cap in _CAPS.items():
        if not own.get(name, 0.0) <= cap:
            raise ParityError(
                f"the module itself is not accurate in float32: its {name} are off by {own[name]:.1e}",
                hint="No bundle was written. An explanation of this module would be made of rounding errors.",
            )
        wanted = cap if name in jumping else max(LIMITS[name], _rounded(_TIMES_TORCH * own.get(name, 0.0)))
        limits[name] = min(wanted, cap)
    return limits


def parity_table(figures: Sequence[Parity], limits: Mapping[str, float]) -> list[tuple[str, ...]]:
    """A header, a row per batch size, and the limits, as text."""
    header = ("BATCH", "TARGETS", "LOGITS", "W(X)", "CONTRIBUTIONS", "BIAS", "RESIDUAL")
    rows = [(str(one.batch), str(one.targets), *(f"{getattr(one, name):.1e}" for name in LIMITS)) for one in figures]
    return [header, *rows, ("limit", "", *(f"{limits[name]:.1e}" for name in LIMITS))]


def _batches(images: int, batch: int) -> Iterator[list[int]]:
    """Every image once, in batches of this size, which may repeat images to be full."""
    for start in range(0, images, batch):
        yield [index % images for index in range(start, start + batch)]


def _measure(sessions: tuple[Any, Any], images: Tensor, truth: Truth) -> dict[str, float]:
    predict, explain = sessions
    predicted = torch.from_numpy(_run(predict, images)["logits"]).double()
    got = {name: torch.from_numpy(value) for name, value in _run(explain, images, truth.classes).items()}
    if not torch.equal(got["classes"], truth.classes):
        raise ParityError("the graph explains other classes than it was asked for")
    got = {name: value.double() for name, value in got.items()}
    scale = got["contributions"].abs().sum((2, 3)) + got["bias_terms"].abs().sum(2)
    # The mean of many logits is rounded as they are, however much of it cancels.
    is_mean = truth.classes == got["logits"].shape[1]
    scale = (scale + is_mean * got["logits"].abs().mean(1, keepdim=True)).clamp_min(_TINY)
    every = torch.cat([got["logits"], got["logits"].mean(1, keepdim=True)], dim=1)
    total = got["contributions"].sum((2, 3)) + got["bias"]
    both_logits = (predicted, got["logits"])
    return {
        "logits": max(_distance(logits, truth.logits, 1) for logits in both_logits),
        "weights": _distance(got["weights"], truth.weights, 3),
        "contributions": _distance(got["contributions"], truth.contributions, 2),
        "bias": _largest((got["bias"] - truth.bias).abs() / scale),
        "residual": _largest((every.gather(1, truth.classes) - total).abs() / scale),
    }


def _distance(value: Tensor, truth: Tensor, axes: int) -> float:
    """The largest ‖value − truth‖ / ‖truth‖ over all samples; the last `axes` axes belong to one."""
    error = (value - truth).flatten(-axes).norm(dim=-1)
    return _largest(error / truth.flatten(-axes).norm(dim=-1).clamp_min(_TINY))


def _largest(values: Tensor) -> float:
    return float(values.max()) if bool(values.isfinite().all()) else float("inf")


def _rounded(value: float) -> float:
    return float(f"{value:.1e}")


def _check_ranks(explain: Any, images: Tensor, targets: Tensor, truth: Truth) -> None:
    """The class that the graph finds for a rank must have the logit of that rank."""
    found = torch.from_numpy(_run(explain, images, targets[:, :1])["classes"])
    short = truth.logits.gather(1, truth.classes[:, :1]) - truth.logits.gather(1, found)
    if bool((short.abs() > _TIE * truth.logits.abs().amax(1, keepdim=True)).any()):
        raise ParityError("the graph does not rank the classes as the module does")


def _judge(figures: Sequence[Parity], limits: Mapping[str, float]) -> None:
    for one in figures:
        for name, limit in limits.items():
            value = getattr(one, name)
            if not value <= limit:
                raise ParityError(
                    f"{name} differ from the module's by {value:.1e} at batch {one.batch}, "
                    f"over the limit of {limit:.1e}",
                    hint=f"No bundle was written. The probes were: {', '.join(PROBES)}.",
                )


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base but this
        raise ExportError(f"ONNX Runtime refuses {path.name}: {error}", source=path.name) from error


def _run(session: Any, images: Tensor, targets: Tensor | None = None) -> dict[str, np.ndarray[Any, Any]]:
    feed = {"image": images.numpy()} | ({} if targets is None else {"targets": targets.numpy()})
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))
