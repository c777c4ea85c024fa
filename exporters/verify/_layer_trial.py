"""Compare the graphs of inner layers with the module under autograd in float64, with hooks on its layers.

For each layer and probe image there are three queries: the activation at the centre as a direction there, one channel
where it is largest, and a random direction on average. Each graph runs in both layouts, image by image and as a batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bcos_sdk.bundle import GoldenLayer, LayerParity
from bcos_sdk.contract import (
    DIRECTIONS,
    IMAGE,
    LARGEST_POSITION,
    POSITIONS,
    TARGETS,
    explain_grid_by_rows,
    layer_certificate_scale,
    mean_position,
    mean_target,
)
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters.capture import explanation_mode, run_module
from bcos_sdk.exporters.layer_compiler import CompiledLayers, channels_and_positions
from bcos_sdk.exporters.verify._distances import largest, rounded
from bcos_sdk.exporters.verify._oracle import PROBES, in_precision
from bcos_sdk.exporters.verify._scales import not_vanishing
from bcos_sdk.exporters.verify._sessions import Session, open_session

__all__ = ["LayerFiles", "judge_layers"]

_TIE = 1e-5  # values closer than this to the largest, relative to it, may be found instead
_Run = Callable[..., dict[str, Tensor]]


class LayerFiles(NamedTuple):
    """The graphs of the layers: the explain graphs as one pair (GRID, ROWS) per layer."""

    features: Path
    relay: Path
    relay_rows: Path
    explain: tuple[tuple[Path, Path], ...]


def judge_layers(
    module: nn.Module,
    images: Tensor,
    compiled: CompiledLayers,
    files: LayerFiles,
    limits: dict[str, float],
    target: int,
    output: str | None = None,
) -> list[tuple[LayerParity, GoldenLayer]]:
    """The figures and the golden record of each layer. A figure over its limit is a `ParityError`."""
    module = copy.deepcopy(module).double().requires_grad_(False)
    truths = []
    with explanation_mode(module), in_precision(torch.float64):
        truths = [_Truth(module, image, [layer.path for layer in compiled.layers], target, output) for image in images]
    features = _both(files.features, None, (IMAGE.name,))
    relays = _both(files.relay, files.relay_rows, (IMAGE.name, TARGETS.name))
    results = []
    for index, layer in enumerate(compiled.layers):
        runs = _both(*files.explain[index], (IMAGE.name, POSITIONS.name, DIRECTIONS.name))
        channels, places = channels_and_positions(layer.shape)
        queries = _queries([truth.matrix(index) for truth in truths], channels, prod(places))
        figures, rows = _judge_explain(runs, images, truths, index, *queries)
        activations = torch.stack([truth.activations[index] for truth in truths])
        (got,) = (run(images)[f"activations_{index}"] for run in features)
        figures["activations"] = _distance(got, activations, 1)
        figures |= _judge_relay(relays, images, truths, index, target, layer.complete)
        for name, value in figures.items():
            limit = limits[_LIMIT_OF[name]]
            if not value <= limit:
                raise ParityError(
                    f"the graphs of layer {layer.path!r} differ from the module: error of {name} {value:.1e}, limit "
                    f"{limit:.1e}",
                    source=layer.path,
                    hint=f"No bundle was written. The probe images were: {', '.join(PROBES)}. If the network has ReLUs "
                    "or maxima, W jumps where two values are nearly equal: name a layer above them.",
                )
        parity: dict[str, Any] = {"residual_above": None} | {key: rounded(value) for key, value in figures.items()}
        photograph = PROBES.index("photograph")
        golden = GoldenLayer(
            queries[1][photograph, 0].float().numpy(),
            int(queries[0][photograph, 0]),
            rows[photograph].float().numpy(),
            truths[photograph].features[index][0].float().numpy(),
        )
        results.append((LayerParity(**parity), golden))
    return results


_LIMIT_OF = {
    "activations": "logits",
    "weights": "weights",
    "contributions": "contributions",
    "residual": "residual",
    "features": "contributions",
    "residual_above": "residual",
}


class _Truth:
    """What autograd gives for one image: the activations of each layer, and a ⊙ ∂logit/∂a for a class and the mean."""

    def __init__(self, module: nn.Module, image: Tensor, paths: Sequence[str], target: int, output: str | None) -> None:
        self._x = image[None].double().requires_grad_()
        kept: dict[str, Tensor] = {}

        def hook(path: str) -> Any:
            def keep(_module: nn.Module, _inputs: Any, result: Tensor) -> Tensor:
                kept[path] = result * 1.0
                return kept[path].clone()  # a later operator may change it in place

            return keep

        handles = [module.get_submodule(path).register_forward_hook(hook(path)) for path in paths]
        try:
            (self.logits,) = run_module(module, self._x, output)
        finally:
            for handle in handles:
                handle.remove()
        self._outputs = [kept[path] for path in paths]
        self.activations = [one[0].detach() for one in self._outputs]
        aims = (self.logits[target], self.logits.mean())
        self.features = [torch.stack([self._share(aim, one) for aim in aims]) for one in self._outputs]

    def _share(self, aim: Tensor, output: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(aim, output, retain_graph=True)
        return (gradient * output)[0].detach()

    def matrix(self, index: int) -> Tensor:
        """The activations of a layer as [channels, positions]."""
        output = self._outputs[index][0]
        return output.T if output.ndim == 2 else output.reshape(len(output), -1)

    def explain(self, index: int, position: int, direction: Tensor) -> tuple[Tensor, Tensor]:
        """The value of a query, and its row of W."""
        values = direction @ self.matrix(index)
        value = values.mean() if position == len(values) else values[position]
        (row,) = torch.autograd.grad(value, self._x, retain_graph=True)
        return value.detach(), row[0]

    @property
    def image(self) -> Tensor:
        return self._x[0].detach()


def _queries(matrices: Sequence[Tensor], channels: int, count: int) -> tuple[Tensor, Tensor]:
    """Positions [N, 3] and directions [N, 3, channels]."""
    generator = torch.Generator().manual_seed(0)
    directions = []
    for matrix in matrices:
        at_centre = matrix[:, count // 2].detach()
        chosen = torch.nn.functional.one_hot(matrix.detach().abs().sum(1).argmax(), channels).double()
        anything = torch.randn(channels, generator=generator, dtype=torch.float64)
        directions.append(torch.stack([at_centre / at_centre.norm().clamp_min(1e-30), chosen, anything]))
    positions = torch.tensor([count // 2, LARGEST_POSITION, mean_position(count)]).expand(len(matrices), -1)
    return positions, torch.stack(directions).float().double()  # the graphs get float32


def _judge_explain(
    runs: Sequence[_Run], images: Tensor, truths: Sequence[_Truth], index: int, positions: Tensor, directions: Tensor
) -> tuple[dict[str, float], list[Tensor]]:
    """The largest errors of an explain graph, and the true row of the first query of each image."""
    places = runs[0](images, positions, directions)["places"].long()
    _check_places(places, positions, directions, truths, index)
    answers = [
        [truth.explain(index, int(place), direction) for place, direction in zip(*query, strict=True)]
        for truth, query in zip(truths, zip(places, directions, strict=True), strict=True)
    ]
    weights = torch.stack([torch.stack([row for _, row in answer]) for answer in answers])
    values = torch.tensor([[float(value) for value, _ in answer] for answer in answers], dtype=torch.float64)
    products = weights * images.double()[:, None]
    figures = dict.fromkeys(("weights", "contributions", "residual"), 0.0)
    for got in _answers(runs, images, places, directions):
        scale = layer_certificate_scale(*(got[name].numpy() for name in ("contributions", "bias_terms", "magnitude")))
        scales = not_vanishing(torch.from_numpy(scale))
        total = got["contributions"].sum((2, 3)) + got["bias_terms"].sum(2)
        size = products.abs().sum(2).flatten(2).norm(dim=2)
        errors = {
            "weights": _distance(got["weights"], weights, 2),
            "contributions": largest(
                (got["contributions"] - products.sum(2)).flatten(2).norm(dim=2) / not_vanishing(size)
            ),
            "residual": max(largest((one - total).abs() / scales) for one in (got["value"], values)),
        }
        figures = {name: max(figures[name], errors[name]) for name in figures}
    return figures, [row[0] for row in weights]


def _check_places(places: Tensor, positions: Tensor, directions: Tensor, truths: Sequence[_Truth], index: int) -> None:
    """Check that the graph has found the position of the largest value, up to ties."""
    for truth, found, asked, queries in zip(truths, places, positions, directions, strict=True):
        for place, position, direction in zip(found, asked, queries, strict=True):
            values = (direction @ truth.matrix(index)).detach()
            free = position == LARGEST_POSITION
            short = float(values.max() - values[place]) if free else 0.0
            if short > _TIE * float(values.abs().max()) or not (free or place == position):
                raise ParityError(
                    f"the graph resolves position {int(position)} to {int(place)}", hint="No bundle was written."
                )


def _judge_relay(
    runs: Sequence[_Run], images: Tensor, truths: Sequence[_Truth], index: int, target: int, complete: bool
) -> dict[str, float]:
    features = torch.stack([truth.features[index] for truth in truths])
    logits = torch.stack([truth.logits.detach() for truth in truths])
    aims = torch.stack([logits[:, target], logits.mean(1)], dim=1)
    targets = torch.tensor([target, mean_target(logits.shape[1])]).expand(len(images), -1)
    figures = {"features": 0.0} | ({"residual_above": 0.0} if complete else {})
    for got in _answers(runs, images, targets):
        share, bias = got[f"features_{index}"], got[f"bias_above_{index}"]
        figures["features"] = max(figures["features"], _distance(share, features, 2))
        if complete:
            scale = share.flatten(2).abs().sum(2) + bias.abs().sum(2)
            error = (aims - share.flatten(2).sum(2) - bias.sum(2)).abs() / not_vanishing(scale)
            figures["residual_above"] = max(figures["residual_above"], largest(error))
    return figures


def _answers(runs: Sequence[_Run], images: Tensor, *queries: Tensor) -> list[dict[str, Tensor]]:
    """The outputs of each graph for all images at once, and image by image."""
    answers = []
    for run in runs:
        alone = [run(images[i : i + 1], *(one[i : i + 1] for one in queries)) for i in range(len(images))]
        answers += [run(images, *queries), {name: torch.cat([one[name] for one in alone]) for name in alone[0]}]
    return answers


def _both(grid: Path, rows: Path | None, names: Sequence[str]) -> list[_Run]:
    """Functions that run the graph in each layout, with inputs in GRID, and return float64."""

    def in_session(session: Session, *arrays: Any) -> dict[str, Any]:
        outputs = session.outputs
        feed = {
            name: np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64)
            for name, array in zip(names, arrays, strict=True)
        }
        return dict(zip(outputs, session.run(outputs, feed), strict=True))

    def in_torch(run: Callable[..., Any], *inputs: Tensor) -> dict[str, Tensor]:
        outputs = run(*(one.numpy() for one in inputs))
        return {name: torch.from_numpy(np.asarray(value)).double() for name, value in outputs.items()}

    runs: list[_Run] = [partial(in_torch, partial(in_session, open_session(grid)))]
    if rows is not None:
        runs.append(partial(in_torch, partial(explain_grid_by_rows, partial(in_session, open_session(rows)))))
    return runs


def _distance(value: Tensor, truth: Tensor, leading: int) -> float:
    """The largest ‖value − truth‖ / ‖truth‖ over the leading axes."""
    size = truth.flatten(leading).norm(dim=-1)
    return largest((value - truth).flatten(leading).norm(dim=-1) / not_vanishing(size))
