"""A weights file → its contents, without running anything that the file says."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from bcos_sdk.errors import CheckpointError, UnsafeCheckpointError

__all__ = ["read_checkpoint"]


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """What the file holds, as nested dicts of tensors and plain values.

    Reads `.safetensors` and torch's own formats; the latter with `weights_only`, so that a pickle
    which asks for anything but tensors and plain containers is refused.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {what}", source=str(path), hint="Pass the path of a weights file.")
    contents = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
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
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, "a safetensors file", error) from error


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked_for = re.search(r"(?:GLOBAL|class) (\S+)", str(error))
        if asked_for is None:
            raise _unreadable(path, "a torch checkpoint", error) from error
        raise UnsafeCheckpointError(
            f"{path} was refused: loading it would run {asked_for[1]}, which is more than reading weights",
            source=str(path),
            hint=(
                "If you trust its origin, convert it where it was made: "
                "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
            ),
        ) from error
    except Exception as error:  # torch's reader meets damaged bytes with whatever they lead it into
        raise _unreadable(path, "a torch checkpoint", error) from error


def _unreadable(path: Path, kind: str, error: Exception) -> CheckpointError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CheckpointError(
        f"{path} cannot be read as {kind}: {reason}",
        source=str(path),
        hint="The file may be incomplete or of another kind; weights are .safetensors, .pth, .pt or .ckpt.",
    )
