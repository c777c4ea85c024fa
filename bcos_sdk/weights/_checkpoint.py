"""Read a weights file without running code from it."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from bcos_sdk.errors import CheckpointError, UnsafeCheckpointError
from bcos_sdk.weights._stand_ins import replaceable, unsafe_names

__all__ = ["METADATA", "read_checkpoint"]

METADATA = "__metadata__"
"""The key of the texts in the header of a safetensors file; the format reserves it."""

_PICKLE_MAGIC = (b"\x80", b"PK")  # a plain pickle of protocol 2 or later; torch's zip file with a pickle
_FIRST_SAFE_TORCH = (2, 6)
_LOCK = threading.Lock()
_HOW_TO_CONVERT = "convert it where it was made: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """Return the contents of the file: nested dicts of tensors and plain values.

    Reads `.safetensors` and the formats of torch. Objects of known training frameworks become a `StandIn`. A pickle
    that needs anything else than tensors and plain containers is refused. The metadata of a `.safetensors` file is at
    "__metadata__"; its texts are parsed if they are JSON.
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
            hint="Save only the weights: torch.save(model.state_dict(), path).",
        )
    return contents


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        contents: dict[str, Any] = dict(load_file(path))
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
    except SafetensorError as error:
        raise _unreadable(path, f" as a safetensors file: {error}") from error
    return contents | ({METADATA: {key: _parsed(text) for key, text in metadata.items()}} if metadata else {})


def _parsed(text: str) -> Any:
    """The value of a JSON text; another text stays as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_torch(path: Path) -> Any:
    """Call torch.load, restricted to tensors, plain containers and stand-ins.

    The messages of torch are not shown and not chained to our errors: they advise to load a refused file with the
    restriction switched off.
    """
    _refuse_old_torch(path)
    with path.open("rb") as file:
        looks_like_pickle = file.read(2).startswith(_PICKLE_MAGIC)
    try:
        return _load(path)
    except pickle.UnpicklingError as error:
        message = str(error)
    except Exception:  # for damaged files torch raises many types
        raise _unreadable(path, " as a torch checkpoint") from None
    if not looks_like_pickle:
        raise _unreadable(path, " as a torch checkpoint")
    names = unsafe_names(path)
    stand_ins = replaceable(names)
    replaced = {name for _, name in stand_ins}
    if refused := [name for name in names if name not in replaced]:
        raise _refused(path, next((name for name in refused if name in message), refused[0]))
    if stand_ins:
        # The list of safe names belongs to the process. Another thread must not clear it during this load.
        with contextlib.suppress(Exception), _LOCK, torch.serialization.safe_globals(stand_ins):
            return _load(path)
    raise _refused(path, _name_in(message))


def _load(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it contains the advice of torch
        return torch.load(path, map_location="cpu", weights_only=True)


def _refuse_old_torch(path: Path) -> None:
    major, minor = map(int, re.findall(r"\d+", torch.__version__)[:2])
    if (major, minor) < _FIRST_SAFE_TORCH:
        raise UnsafeCheckpointError(
            f"{path} was not opened: torch {torch.__version__} can run code that is "
            "hidden in a weights file (CVE-2025-32434)",
            source=str(path),
            hint=f"Upgrade: pip install 'torch>=2.6'. Or, if you trust the file, {_HOW_TO_CONVERT}.",
        )


def _name_in(torch_message: str) -> str:
    name = re.search(r"(?:GLOBAL|class) ([\w.]+)", torch_message)
    return name[1] if name else "code"


def _refused(path: Path, code: str) -> UnsafeCheckpointError:
    return UnsafeCheckpointError(
        f"{path} was refused: it is a pickle that would run {code} when it is loaded",
        source=str(path),
        hint=f"If you trust the file, {_HOW_TO_CONVERT}.",
    )


def _unreadable(path: Path, details: str) -> CheckpointError:
    return CheckpointError(
        f"cannot read {path}{details}",
        source=str(path),
        hint="The file may be incomplete or of another type. Weights files are .safetensors, .pth, .pt or .ckpt.",
    )
