"""An image that ends the process that reads it, as a bug in native code or the OOM killer would."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

__all__ = ["add_poison", "poisoned_environment", "use_poison"]

_END = b"POISON"
_SITE = "from support.poison import use_poison\nuse_poison()\n"


def add_poison(image: str) -> None:
    """Make an image deadly. It stays a valid image: decoders ignore what follows its end."""
    with Path(image).open("ab") as file:
        file.write(_END)


def use_poison() -> None:
    """From now on this process ends with a segmentation fault when it hashes a deadly image."""
    sha256 = hashlib.sha256

    def deadly(contents: bytes = b"", **more: Any) -> Any:
        if contents[-len(_END) :] == _END:
            os.kill(os.getpid(), signal.SIGSEGV)
        return sha256(contents, **more)

    hashlib.sha256 = deadly  # type: ignore[assignment]


def poisoned_environment(folder: Path) -> str:
    """The PYTHONPATH of processes that deadly images end, from the first line that they run."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SITE)
    root = Path(__file__).resolve().parents[2]
    return os.pathsep.join(map(str, [folder, root, root / "tests"]))
