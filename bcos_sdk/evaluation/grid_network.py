"""The network of a bundle, exported once more with an input as large as a grid. Needs the extra `export`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bcos_sdk._private_folders import private_cache
from bcos_sdk.bundle import Bundle, Manifest, open_bundle
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, BundleError, InputError
from bcos_sdk.registry import ModelSpec

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check_any_size", "check_grid_bundle", "export_at_grid_size", "grid_size"]

_CACHE = "grid-networks"
_ADVICE = "Export the model with this input size and pass --grid-model, or use --grid-mode windows."


def grid_size(manifest: Manifest, n: int) -> tuple[int, int]:
    height, width = manifest.input.size
    return n * height, n * width


def check_any_size(spec: ModelSpec) -> None:
    """Raise an `InputError` if the network has a fixed input size."""
    if spec.architecture.family == "vit":
        raise InputError(
            f"{spec.name} is a vision transformer: its input has a fixed size",
            source=spec.name,
            hint="Use --grid-mode windows.",
        )


def check_grid_bundle(bundle: Manifest, manifest: Manifest, n: int) -> None:
    """Raise a `BundleError` unless `bundle` has the weights of the model and an input as large as the grid."""
    wanted = grid_size(manifest, n)
    if bundle.input.size != wanted:
        raise BundleError(
            f"the grid model takes {bundle.input.size[0]} × {bundle.input.size[1]} pixels, a grid has {wanted[0]} × "
            f"{wanted[1]}",
            source=bundle.model.name,
            hint=_ADVICE,
        )
    if bundle.model.weights_sha256 != manifest.model.weights_sha256:
        raise BundleError("the grid model has other weights than the model", source=bundle.model.name, hint=_ADVICE)


def export_at_grid_size(
    manifest: Manifest, n: int, open_network: Callable[[], nn.Module], progress: Callable[[str], None] = lambda _: None
) -> Bundle:
    """Export the network of a bundle with an input of n times its size, once: the cache keeps the result.

    `open_network` is called only if the cache has no result. It returns the network of this manifest.
    """
    from filelock import FileLock

    folder = private_cache(_CACHE) / f"{manifest.digest[:32]}-{n}-{version('bcos-sdk')}"
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        try:
            bundle = open_bundle(folder)
        except BcosError:  # missing or damaged
            bundle = _export(manifest, n, open_network(), folder, progress)
    check_grid_bundle(bundle.manifest, manifest, n)
    return bundle


def _export(manifest: Manifest, n: int, network: nn.Module, folder: Path, progress: Callable[[str], None]) -> Bundle:
    from bcos_sdk.exporters import export

    size = grid_size(manifest, n)
    progress(f"exporting {manifest.model.name} at {n} times its input size for the grids")
    return export(
        network,
        folder,
        input_size=size,
        labels=manifest.labels,
        max_batch=max(n * n, 2),
        name=f"{manifest.model.name}-{size[0]}x{size[1]}",
        preprocessing=InputSpec.exact(size),
        probability=manifest.probability,
        precision=manifest.precision,
        force=True,
    )
