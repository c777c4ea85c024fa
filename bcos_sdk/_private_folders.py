"""Folders that no other user can change: cache, store, and the folder of the key.

A folder is used if it belongs to this user or to root, and if only its owner can write to it. BCOS_SDK_TRUSTED_OWNERS
names further users who may own it. Windows is not checked: there these folders are in the user's profile.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from bcos_sdk._logs import log
from bcos_sdk._paths import cache_dir, config_dir, store_dir
from bcos_sdk.errors import InputError, UntrustedFolderError

__all__ = [
    "OWNERS_VARIABLE",
    "check_store",
    "is_owner_trusted",
    "private_cache",
    "private_config",
    "private_store",
]

OWNERS_VARIABLE = "BCOS_SDK_TRUSTED_OWNERS"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE = 0o700


def private_cache(*names: str) -> Path:
    """A folder of the cache, made if it is missing. Raises an `UntrustedFolderError` if others can change it."""
    return _private(cache_dir(), names, setting="BCOS_SDK_CACHE")


def private_store() -> Path:
    """The store, made if it is missing. Raises an `UntrustedFolderError` if others can change it."""
    return _private(store_dir(), (), setting="BCOS_SDK_STORE")


def private_config() -> Path:
    """The folder of the key, made if it is missing. Raises an `UntrustedFolderError` if others can change it."""
    return _private(config_dir(), (), setting="BCOS_SDK_CONFIG")


def check_store(name: str) -> Path:
    """The folder `name` of the store, which exists. Raises an `UntrustedFolderError` if others can change either."""
    for folder in (store_dir(), store_dir() / name):
        _check(folder, setting="BCOS_SDK_STORE")
    return store_dir() / name


def is_owner_trusted(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, to root, or to a user in BCOS_SDK_TRUSTED_OWNERS."""
    return sys.platform == "win32" or status.st_uid in {0, os.geteuid(), *_further_owners()}


def _private(root: Path, names: tuple[str, ...], *, setting: str) -> Path:
    root.parent.mkdir(parents=True, exist_ok=True)
    folder = root
    for name in ("", *names):
        folder = folder / name
        folder.mkdir(_PRIVATE, exist_ok=True)
        _check(folder, setting=setting)
    return folder


def _check(folder: Path, *, setting: str) -> None:
    """Raise an error if others can change the folder. If it is ours, take the permission away from them instead."""
    if sys.platform == "win32":
        return
    status = folder.stat()
    for one in (folder.lstat(), status):  # who owns a symbolic link decides where it leads
        if not is_owner_trusted(one):
            raise UntrustedFolderError(
                f"{folder} belongs to {_user(one.st_uid)}, who can change what is in it; you are {_user(os.geteuid())}",
                source=str(folder),
                hint=f"Set {setting} to a folder of your own. Or, if you trust this user to run code as you, "
                f"set {OWNERS_VARIABLE}={one.st_uid}.",
            )
    if not status.st_mode & _WRITABLE_BY_OTHERS:
        return
    if status.st_uid == os.geteuid():
        mode = stat.S_IMODE(status.st_mode) & ~_WRITABLE_BY_OTHERS
        with suppress(OSError):  # the error below reports it
            folder.chmod(mode)
        if not folder.stat().st_mode & _WRITABLE_BY_OTHERS:
            log.warning("%s could be changed by other users; its mode is now %o", folder, mode)
            return
    raise UntrustedFolderError(
        f"{folder} can be changed by other users: its mode is {stat.S_IMODE(status.st_mode):o}",
        source=str(folder),
        hint=f"Its owner can run: chmod go-w '{folder}'. Or set {setting} to a folder of your own.",
    )


def _further_owners() -> set[int]:
    named = [part.strip() for part in os.environ.get(OWNERS_VARIABLE, "").split(",")]
    return {_user_id(name) for name in named if name}


def _user_id(name: str) -> int:
    import pwd

    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(
            f"{OWNERS_VARIABLE} names {name!r}, but there is no such user",
            source=name,
            hint="Give names or numbers of users, separated by commas.",
        ) from None


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
