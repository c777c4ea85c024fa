"""Put complete model folders into a model repository: all of them, or none and the earlier ones stay.

They are written into a hidden folder beside the repository and then renamed. Triton takes every folder inside it for a
model, also hidden ones, and does not start if one is not complete. A repository that does not exist yet appears with
one rename.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bcos_sdk._processes import is_running
from bcos_sdk.errors import OutputError, OutputExistsError

__all__ = ["model_folders", "refuse_conflicts"]

_REPLACED = "replaced"


@contextmanager
def model_folders(
    repository: Path, names: Sequence[str], *, overwrite: bool, is_own: Callable[[Path], bool]
) -> Iterator[Path]:
    """Yield a folder in which the caller makes one folder for each name. They are moved into the repository at the end.

    With `overwrite` they replace existing ones for which `is_own` is true. Others are never replaced.
    """
    refuse_conflicts(repository, names, overwrite=overwrite, is_own=is_own)
    try:
        repository.parent.mkdir(parents=True, exist_ok=True)
        _refuse_mount_point(repository)
        _recover(repository)
        staging = repository.with_name(f".{repository.name}.partial-{os.getpid()}")
        staging.mkdir()
    except OSError as error:
        raise _unwritable(repository, error) from error
    try:
        yield staging
        if not repository.exists():
            staging.rename(repository)
        else:
            refuse_conflicts(repository, names, overwrite=overwrite, is_own=is_own)
            _exchange(staging, repository, names)
    except OSError as error:
        raise _unwritable(repository, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _exchange(staging: Path, repository: Path, names: Sequence[str]) -> None:
    """Move the new folders in and the old ones out. On any failure everything is moved back."""
    replaced = staging / _REPLACED
    replaced.mkdir()
    moved: list[str] = []
    try:
        for name in names:
            if (repository / name).exists():
                (repository / name).rename(replaced / name)
            (staging / name).rename(repository / name)
            moved.append(name)
    except BaseException:
        for name in moved:
            (repository / name).rename(staging / name)
        _move_back(replaced, repository)
        raise


def _move_back(replaced: Path, repository: Path) -> None:
    """Restore the folders that were moved out and that nothing has replaced."""
    for folder in replaced.iterdir() if replaced.is_dir() else ():
        if not (repository / folder.name).exists():
            folder.rename(repository / folder.name)


def _recover(repository: Path) -> None:
    """Clean up after killed processes: restore models that were being replaced, and remove hidden folders."""
    pattern = re.compile(rf"\.{re.escape(repository.name)}\.partial-(\d+)")
    for path in list(repository.parent.iterdir()):
        found = pattern.fullmatch(path.name)
        if found is None or path.is_symlink() or (int(found[1]) != os.getpid() and is_running(int(found[1]))):
            continue
        _move_back(path / _REPLACED, repository)
        shutil.rmtree(path, ignore_errors=True)


def _refuse_mount_point(repository: Path) -> None:
    """Raise an error if folders beside the repository cannot be renamed into it."""
    if repository.is_dir() and repository.stat().st_dev != repository.parent.stat().st_dev:
        raise OutputError(
            f"{repository} is a mount point, so that models cannot be moved into it in one step",
            source=str(repository),
            hint="Choose a folder inside it as the model repository.",
        )


def refuse_conflicts(
    repository: Path, names: Sequence[str], *, overwrite: bool, is_own: Callable[[Path], bool]
) -> None:
    """Raise an error if the repository is no folder, or if a model would be replaced that may not be."""
    if repository.exists() and not repository.is_dir():
        raise OutputError(
            f"{repository} is a file, expected a folder: a model repository of Triton",
            source=str(repository),
            hint="Choose another folder.",
        )
    for name in names:
        folder = repository / name
        if not (folder.exists() or folder.is_symlink()):
            continue
        if not is_own(folder):
            raise OutputExistsError(
                f"{folder} exists and was not written by bcos-sdk",
                source=str(folder),
                hint="Choose another --name or another repository.",
            )
        if not overwrite:
            raise OutputExistsError(
                f"{folder} exists already",
                source=str(folder),
                hint="Pass --overwrite (overwrite=True) to replace the model, or choose another --name.",
            )


def _unwritable(repository: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write the model repository {repository}: {error.strerror or error}",
        source=str(repository),
        hint=f"No model was written or replaced. Check the permissions and the free space of {repository.parent}, "
        "where models are written first, or choose another folder.",
    )
