"""Compare the graphs of an export with the module, on probe images where rounding errors do not decide its results.

A normalisation of a flat image divides rounding errors by rounding errors, so no program in float32 has the results of
float64 there. If the comparison fails, each flat probe image is checked: if changes of it as small as rounding errors
change the results in float64 by more than the limits, a similar image that is not flat takes its place.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from bcos_sdk._logs import log
from bcos_sdk.bundle import Parity
from bcos_sdk.contract import InputSpec, mean_target, rank_target
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters.compiler import Compiled
from bcos_sdk.exporters.program import sample_shape
from bcos_sdk.exporters.verify._distances import distances
from bcos_sdk.exporters.verify._oracle import PROBES, consult, probe_images
from bcos_sdk.exporters.verify._trial import LIMITS, GraphFiles, Trial
from bcos_sdk.exporters.verify._worst_layer import with_worst_layer

__all__ = ["compare"]

_FLAT = ("black", "white", "grey")
_ROUNDING = 2.0**-22
"""The change of each pixel: a few rounding errors of float32, as the first layer makes them."""


def compare(
    module: nn.Module,
    compiled: Compiled,
    graphs: GraphFiles,
    spec: InputSpec,
    max_batch: int,
    *,
    output: str | None = None,
    without: Collection[str] = (),
) -> tuple[Trial, tuple[Parity, ...]]:
    """The trial of the module, and the figures of its graphs. A figure over its limit is a `ParityError`."""
    (classes,) = sample_shape(compiled.predict.results[0])

    def judged(nearby: Collection[int]) -> tuple[Trial, tuple[Parity, ...]]:
        trial = Trial(
            module, compiled, spec.size, classes, max_batch, output=output, without=without, spec=spec, nearby=nearby
        )
        return trial, trial.judge(graphs, compiled)

    try:
        return judged(())
    except ParityError as error:
        failed = error
    unstable = _unstable_probes(module, spec, classes, output)
    try:
        if unstable:
            names = ", ".join(PROBES[index] for index in unstable)
            log.info(
                "probe images %s: rounding errors decide the results of float64; similar images replace them", names
            )
            return judged(unstable)
    except ParityError as error:
        failed = error
    raise with_worst_layer(failed, compiled.explain, probe_images(spec.size, spec)[:2]) from failed


def _unstable_probes(module: nn.Module, spec: InputSpec, classes: int, output: str | None) -> list[int]:
    """The flat probe images where a change by rounding errors changes the results by more than the limits."""
    numbers = [PROBES.index(name) for name in _FLAT]
    # The scales of the results come from all probe images, so that they do not vanish with those of a flat one.
    images = probe_images(spec.size, spec)
    targets = torch.tensor([[rank_target(1), classes // 2, mean_target(classes)]] * len(images))
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = consult(module, images, targets, output=output)
    moved = consult(module, images.double() + _ROUNDING * noise, truth.classes, output=output)
    unstable = []
    for index in numbers:
        errors = distances(vars(moved.part([index], 3)), truth.part([index], 3))
        if any(not error <= LIMITS[name] for name, error in errors.items()):
            unstable.append(index)
    return unstable
