"""Write the two models of a bundle, NAME and NAME_explain, into a model repository of Triton.

A model is a folder: config.pbtxt, and the version 1 with the graph and the weights. Both models need the weights. The
second gets a hard link to those of the first, and a copy where the file system has no links. The bundle is copied, not
linked, so that no change of the repository reaches it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from bcos_sdk._files import read_plain
from bcos_sdk._open_inference import check_model_name
from bcos_sdk.bundle import Bundle, has_manifest
from bcos_sdk.contract import EXPLAIN_SUFFIX, MANIFEST_PARAMETER
from bcos_sdk.errors import InputError, OutputError
from bcos_sdk.triton._config import (
    CONFIG,
    PLAN_FILE,
    PYTHON_FILE,
    VERSION,
    config_of,
    largest_batch,
    largest_targets,
)
from bcos_sdk.triton._folders import model_folders, refuse_conflicts
from bcos_sdk.triton._graphs import MODEL_FILE, served_graph
from bcos_sdk.triton._plans import build_plan, check_plans, profiles_of
from bcos_sdk.triton._settings import RepositorySettings
from bcos_sdk.triton._tensors import Tensor, input_tensors, output_tensors

__all__ = ["ServedModel", "check_repository", "write_repository"]

_LARGEST_CONFIG = 64 << 20


@dataclass(frozen=True)
class ServedModel:
    """A model that was written."""

    name: str
    path: Path
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tensorrt: str | None
    """The version of TensorRT that built its plan: the server must have the same. None: it has no plan."""


def write_repository(
    bundle: Bundle,
    repository: Path | str,
    settings: RepositorySettings | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _stage: None,
) -> tuple[ServedModel, ServedModel]:
    """Write the models that predict and explain. The repository may have other models, and need not exist.

    Either both models are written or none. With `overwrite`, they replace models that this function has written.
    """
    settings = settings or RepositorySettings()
    if settings.input_size not in (None, bundle.manifest.input.size):
        bundle = _of_one_size(bundle, settings.input_size)
    name = settings.name or bundle.manifest.model.name
    _check(bundle, settings)
    check_repository(repository, name, overwrite=overwrite)
    tensorrt = check_plans(bundle.manifest.precision) if settings.flavour == "tensorrt" else None
    target = Path(os.path.abspath(repository))  # noqa: PTH100 - resolve() would follow links
    names = _names(name)
    with model_folders(target, names, overwrite=overwrite, is_own=_is_own) as staging:
        for one in names:
            progress(f"writing {one}")
            _write_model(staging / one, staging / name, bundle, settings, explains=one != name)
    predict, explain = (
        ServedModel(
            one,
            target / one,
            tuple(input_tensors(bundle.manifest, explains=explains, pixels=settings.pixels)),
            tuple(output_tensors(bundle.manifest, explains=explains, weights=settings.weights)),
            tensorrt,
        )
        for one, explains in zip(names, (False, True), strict=True)
    )
    return predict, explain


def _of_one_size(bundle: Bundle, size: tuple[int, int]) -> Bundle:
    """The bundle for one of its sizes. Its manifest, which clients of the server read, knows no other size."""
    chosen = bundle.at_size(size)
    return replace(chosen, manifest=chosen.manifest.model_copy(update={"more_sizes": ()}))


def check_repository(repository: Path | str, name: str, *, overwrite: bool = False) -> None:
    """Raise the error that `write_repository` would raise for this name and what is in the repository now."""
    check_model_name(name, server="Triton", reserved=EXPLAIN_SUFFIX)
    target = Path(repository)
    if has_manifest(target):
        raise OutputError(
            f"{target} is a bundle, expected a model repository of Triton or a new folder",
            source=str(target),
            hint="Choose another folder.",
        )
    refuse_conflicts(target, _names(name), overwrite=overwrite, is_own=_is_own)


def _names(name: str) -> tuple[str, str]:
    """The names of the models that predict and explain."""
    return name, name + EXPLAIN_SUFFIX


def _check(bundle: Bundle, settings: RepositorySettings) -> None:
    """Raise an error for settings that contradict the bundle or each other, before anything is written."""
    most = bundle.manifest.max_batch
    if settings.max_batch is not None and settings.max_batch > most:
        raise InputError(
            f"the largest batch is {settings.max_batch}, but the export was checked up to {most}",
            source="max_batch",
            hint=f"Export the model again with --max-batch {settings.max_batch}.",
        )
    if settings.flavour == "python" and settings.device == "gpu":
        raise InputError(
            "the flavour python runs on the CPU only", source="device", hint="Use the flavour onnxruntime."
        )
    if settings.flavour == "tensorrt" and settings.device == "cpu":
        raise InputError("TensorRT does not run on the CPU", source="device", hint="Use the flavour onnxruntime.")
    input_tensors(bundle.manifest, explains=False, pixels=settings.pixels)


def _write_model(folder: Path, first: Path, bundle: Bundle, settings: RepositorySettings, *, explains: bool) -> None:
    """Write the folder of a model. `first` is the folder of the model whose weights it can link to."""
    manifest = bundle.manifest
    version = folder / VERSION
    version.mkdir(parents=True)
    targets = None if settings.flavour == "tensorrt" else largest_targets(manifest, settings)
    graph = served_graph(
        bundle, explains=explains, pixels=settings.pixels, weights=settings.weights, max_targets=targets
    )
    (version / MODEL_FILE).write_bytes(graph)
    _write_weights(version / manifest.weights, first / VERSION / manifest.weights, bundle)
    if settings.flavour == "tensorrt":
        inputs = input_tensors(manifest, explains=explains, pixels=settings.pixels)
        profiles = profiles_of(inputs, largest_batch(manifest, settings), largest_targets(manifest, settings))
        build_plan(version / MODEL_FILE, version / PLAN_FILE, profiles, tf32=settings.tf32)
        (version / MODEL_FILE).unlink()
        (version / manifest.weights).unlink()
    if settings.flavour == "python":
        source = files("bcos_sdk.triton").joinpath("_python_model.py").read_bytes()
        (version / PYTHON_FILE).write_bytes(source)
    name = first.name
    (folder / CONFIG).write_text(config_of(name, manifest, settings, explains=explains), "ascii")


def _write_weights(path: Path, written: Path, bundle: Bundle) -> None:
    """Link to the weights that are written already, or write the verified ones of the bundle."""
    if written.exists():
        try:
            os.link(written, path)
        except OSError:  # a file system without hard links
            shutil.copyfile(written, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bundle.weights)


def _is_own(folder: Path) -> bool:
    """Whether the folder is a model that this package has written."""
    if folder.is_symlink():
        return False
    try:
        config = read_plain(folder / CONFIG, _LARGEST_CONFIG)
    except OSError:
        return False
    return f'key: "{MANIFEST_PARAMETER}"'.encode() in config
