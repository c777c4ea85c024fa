"""The pointing game for post-hoc methods on the grids of a run, beside the model's own explanation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bcos_sdk._extras import require
from bcos_sdk.evaluation._items import Item, spread
from bcos_sdk.evaluation._run import Run
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.evaluation.grids import Grid, assemble
from bcos_sdk.evaluation.localisation import score_grid
from bcos_sdk.evaluation.own_network import WeightsChoice, open_own_network
from bcos_sdk.images import encode

if TYPE_CHECKING:
    from bcos_sdk.evaluation.posthoc import PostHoc

__all__ = ["METHOD_NAMES", "compare_methods", "open_network"]

METHOD_NAMES = ("intgrad", "ixg", "gradcam", "deeplift", "guided", "lime", "occlusion")
_TIMED = 5


def open_network(subject: Subject, samples: Sequence[Sample], choice: WeightsChoice | None = None) -> PostHoc:
    """The network of the bundle in torch. An `InputError` if weights or logits are not those of the bundle."""
    require("torch", "captum", purpose="Comparing with post-hoc methods")
    from bcos_sdk.evaluation.posthoc import PostHoc

    client = subject.client
    network = open_own_network(subject, samples, choice)
    return PostHoc(network, side=min(client.manifest.input.size), classes=len(client.labels))


def compare_methods(
    run: Run, network: PostHoc, methods: Sequence[str], *, grids: int, slow_grids: int
) -> dict[str, Any]:
    """Scores and times of our explanation and of each method, best first.

    Methods are run on the first `grids` grids, and those that take hundreds of passes on the first `slow_grids`. `ours`
    is the score of our explanation on the grids of the method.
    """
    from bcos_sdk.evaluation.posthoc import METHODS

    own = {item.name: item for item in run.items["localisation"] if item.failure is None}
    rows = [_row("ours", "the model's own explanation", None, list(own.values()), _own_milliseconds(run), own)]
    for name in methods:
        method = METHODS[name]
        chosen = run.grids[: min(grids, slow_grids) if method.slow else grids]

        def explain(rest: Sequence[Grid], name: str = name, smoothed: bool = method.smoothed) -> Iterator[Item]:
            return _explained(run, network, name, rest, smoothed)

        items = run.each(f"against {name}", chosen, explain)
        milliseconds = float(np.median([item.scores["milliseconds"] for item in items]))
        rows.append(_row(name, method.title, method.alias, items, milliseconds, own))
    return {"methods": sorted(rows, key=lambda row: -row["localisation"])}


def _explained(run: Run, network: PostHoc, name: str, grids: Sequence[Grid], smoothed: bool) -> Iterator[Item]:
    n, samples = run.settings.cells, run.dataset.samples
    for grid in grids:
        image = encode(assemble([run.subject.pixels(samples[cell]) for cell in grid.cells], n))
        maps, seconds = network.explain(name, image, grid.classes)
        item = score_grid(grid.name, maps, n, smooth=run.smooth if smoothed else 1, top=run.settings.quantile)
        yield item.model_copy(update={"scores": {**item.scores, "milliseconds": 1000 * seconds}})


def _own_milliseconds(run: Run) -> float:
    """The median time of one of our explanations on a whole grid, all its classes in one call."""
    times = []
    for grid in run.grids[: _TIMED + 1]:
        pixels = assemble([run.subject.pixels(run.dataset.samples[cell]) for cell in grid.cells], run.settings.cells)
        began = time.perf_counter()
        run.maps.explain(pixels, grid.classes)
        times.append((time.perf_counter() - began) / len(grid.classes))
    return float(1000 * np.median(times[1:] or times))


def _row(
    name: str, title: str, alias: str | None, items: Sequence[Item], milliseconds: float, own: dict[str, Item]
) -> dict[str, Any]:
    means = {key: float(np.mean([item.scores[key] for item in items])) for key in ("localisation", "raw", "quantile")}
    same = [own[item.name].scores["localisation"] for item in items if item.name in own]
    cells = [value for item in items for value in item.curves["cells"]]
    return {
        "name": name,
        "title": title,
        "equals": alias,
        "grids": len(items),
        **means,
        "ours": float(np.mean(same)) if same else None,
        "milliseconds": milliseconds,
        "spread": spread(cells).model_dump(),
    }
