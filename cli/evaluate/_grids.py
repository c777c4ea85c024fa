"""How the grids of all models of an evaluation are explained: by a network of their size, or by sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcos_sdk.cli._terminal import print_message
from bcos_sdk.errors import BcosError

if TYPE_CHECKING:
    from torch import nn

    from bcos_sdk.evaluation import Dataset, GridMaps, Settings, Subject, WeightsChoice

__all__ = ["GridChoice", "GridModel"]


@dataclass(frozen=True)
class GridModel:
    """A model, the bundle of its size that the user has named, and where its weights may be."""

    subject: Subject
    bundle: str | None
    weights: WeightsChoice


@dataclass
class GridChoice:
    """Opens the maps of all models at once, when the first is asked for: they are explained in the same way."""

    models: Sequence[GridModel]
    dataset: Dataset
    settings: Settings
    options: dict[str, Any]
    """Of the clients."""
    stack: ExitStack
    _maps: list[GridMaps] = field(default_factory=list)

    def maps_of(self, place: int) -> Callable[[], GridMaps]:
        """A function that opens the maps of one of the models."""

        def opened() -> GridMaps:
            self._maps = self._maps or self._open()
            return self._maps[place]

        return opened

    def _open(self) -> list[GridMaps]:
        mode, any_named = self.settings.grid_mode, any(one.bundle is not None for one in self.models)
        if mode == "windows" and not any_named:
            return self._windows()
        try:
            paths = [self._bundle_of(one) for one in self.models]
        except BcosError as error:
            if mode == "network" or any_named or any(one.weights.files for one in self.models):
                raise
            print_message(
                f"grids are explained by sliding windows, since {error.message} (see --weights, --base, --grid-model)",
                label="note:",
            )
            return self._windows()
        return [self._network(one.subject, path) for one, path in zip(self.models, paths, strict=True)]

    def _bundle_of(self, model: GridModel) -> str | Path:
        """The bundle of the network at the size of a grid: the one that was named, else an export."""
        if model.bundle is not None:
            return model.bundle
        from bcos_sdk.evaluation.grid_network import check_any_size, export_at_grid_size

        manifest = model.subject.client.manifest
        check_any_size(model.weights.spec(manifest.model.name))
        network: Callable[[], nn.Module] = partial(self._own_network, model)
        return export_at_grid_size(manifest, self.settings.cells, network, progress=print_message).path

    def _own_network(self, model: GridModel) -> nn.Module:
        from bcos_sdk.evaluation import open_own_network

        return open_own_network(model.subject, self.dataset.samples, model.weights)

    def _network(self, subject: Subject, bundle: str | Path) -> GridMaps:
        from bcos_sdk import Client
        from bcos_sdk.evaluation import NetworkMaps
        from bcos_sdk.evaluation.grid_network import check_grid_bundle

        larger = self.stack.enter_context(Client(bundle, device=subject.client.device, **self.options))
        check_grid_bundle(larger.manifest, subject.client.manifest, self.settings.cells)
        return NetworkMaps(larger, self.settings.cells, mean_corrected=subject.mean_corrected)

    def _windows(self) -> list[GridMaps]:
        from bcos_sdk.evaluation import WindowMaps

        return [
            WindowMaps(one.subject.client, self.settings.cells, mean_corrected=one.subject.mean_corrected)
            for one in self.models
        ]
