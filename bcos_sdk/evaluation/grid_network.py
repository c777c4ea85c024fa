"""The network of a bundle, exported once more with an input as large as a grid. Needs the extra `export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bcos_sdk._extras import is_installed
from bcos_sdk.bundle import Bundle, Manifest, open_bundle
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BundleError, InputError
from bcos_sdk.registry import model_registry

__all__ = ["can_be_exported", "check_grid_bundle", "export_at_grid_size", "grid_size"]

_ADVICE = "Export the model with this input size and pass --grid-model, or use --grid-mode windows."


def grid_size(manifest: Manifest, n: int) -> tuple[int, int]:
    height, width = manifest.input.size
    return n * height, n * width


def can_be_exported(manifest: Manifest) -> bool:
    """Whether torch is installed, and the registry has weights for a network without a fixed input size."""
    known = manifest.model.name in model_registry()
    if not known or not is_installed("torch") or not is_installed("onnx"):
        return False
    spec = model_registry().find(manifest.model.name)
    return spec.architecture.family != "vit"


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
    manifest: Manifest, n: int, folder: Path, progress: Callable[[str], None] = lambda _stage: None
) -> Bundle:
    """Export the registry's network and weights with an input of n times the size to `folder`, or open it there."""
    if folder.exists():
        bundle = open_bundle(folder)
        check_grid_bundle(bundle.manifest, manifest, n)
        return bundle
    if not can_be_exported(manifest):
        raise InputError(
            f"{manifest.model.name} cannot be exported at another input size here: it is not in the registry, is a "
            "vision transformer, or torch is not installed",
            source=manifest.model.name,
            hint=_ADVICE,
        )
    from bcos_sdk.exporters import export
    from bcos_sdk.weights import load_model

    size = grid_size(manifest, n)
    bundle = export(
        load_model(manifest.model.name),
        folder,
        input_size=size,
        labels=manifest.labels,
        max_batch=max(n * n, 2),
        name=f"{manifest.model.name}-{size[0]}x{size[1]}",
        preprocessing=InputSpec.exact(size),
        probability=manifest.probability,
        precision=manifest.precision,
        progress=progress,
    )
    check_grid_bundle(bundle.manifest, manifest, n)
    return bundle
