"""A weights file → its contents, without running anything that the file says."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from bcos_sdk.errors import CheckpointError, UnsafeCheckpointError

__all__ = ["read_checkpoint"]

_BEGINNINGS_OF_PICKLES = (b"\x80", b"PK")  # a bare one of protocol 2 or later, and one in torch's zip file
_FIRST_SAFE_TORCH = (2, 6)
_HOW_TO_CONVERT = "convert it where it was made: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """What the file holds, as nested dicts of tensors and plain values.

    Reads `.safetensors` and torch's own formats; of the latter a pickle which asks for anything but
    tensors and plain containers is refused.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {what}", source=str(path), hint="Pass the path of a weights file.")
    try:
        contents = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    except OSError as error:
        raise _unreadable(path, f": {error}") from error
    if not isinstance(contents, dict):
        raise CheckpointError(
            f"{path} holds a {type(contents).__name__}, not a dict of weights",
            source=str(path),
            hint="Save the weights alone: torch.save(model.state_dict(), path)",
        )
    return contents


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise _unreadable(path, f" as a safetensors file: {error}") from error


def _read_torch(path: Path) -> Any:
    """torch.load, held to tensors and plain containers.

    Nothing of torch's own wording is passed on, and it is cut off from our errors: it advises to load
    a refused file without protection.
    """
    _refuse_old_torch(path)
    with path.open("rb") as file:
        looks_like_pickle = file.read(2).startswith(_BEGINNINGS_OF_PICKLES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the same advice
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if looks_like_pickle:
            raise _refused(path, str(error)) from None
    except Exception:  # noqa: S110 - torch meets damaged bytes with whatever they lead it into
        pass
    raise _unreadable(path, " as a torch checkpoint")


def _refuse_old_torch(path: Path) -> None:
    major, minor = map(int, re.findall(r"\d+", torch.__version__)[:2])
    if (major, minor) < _FIRST_SAFE_TORCH:
        raise UnsafeCheckpointError(
            f"{path} was not opened: torch {torch.__version__} can be made to run code "
            "that a weights file holds (CVE-2025-32434)",
            source=str(path),
            hint=f"Upgrade: pip install 'torch>=2.6'. Or, if you trust the file's origin, {_HOW_TO_CONVERT}",
        )


def _refused(path: Path, torchs_reason: str) -> UnsafeCheckpointError:
    asked_for = re.search(r"(?:GLOBAL|class) ([\w.]+)", torchs_reason)
    what = asked_for[1] if asked_for else "what it says"
    return UnsafeCheckpointError(
        f"{path} was refused: loading it would run {what}, which is more than reading weights",
        source=str(path),
        hint=f"If you trust its origin, {_HOW_TO_CONVERT}",
    )


def _unreadable(path: Path, details: str) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read{details}",
        source=str(path),
        hint="The file may be incomplete or of another kind; weights are .safetensors, .pth, .pt or .ckpt.",
    )
