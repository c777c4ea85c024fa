"""The seal of an engine: HMAC-SHA-256 of its record, with a key that only this user can read.

A plan is native code, and anybody can write a record. Only this user can make the seal, so it proves that this user
built the plan, in whatever folder the plan is found. The record holds the hash of the plan.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TypeVar

from bcos_sdk._files import open_no_link
from bcos_sdk._logs import log
from bcos_sdk._paths import config_dir
from bcos_sdk._private_folders import private_config
from bcos_sdk.backends.tensorrt._record import CacheRecord, SealedRecord
from bcos_sdk.errors import OutputError

__all__ = ["is_sealed", "own_key", "sealed"]

_KEY = "key"
_KEY_BYTES = 32
_PURPOSE = b"bcos-sdk engine\n"
_CACHE_PURPOSE = b"bcos-sdk kernels\n"  # a record of one kind is never accepted as one of the other
Record = TypeVar("Record", bound=SealedRecord)


def own_key() -> bytes:
    """The key of this user. It is made if there is none."""
    from filelock import FileLock

    path = config_dir() / _KEY
    try:
        private_config()
        with FileLock(path.with_name("key.lock")):
            return _read(path) or _new(path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}, the key that marks engines as built by this user: {error.strerror or error}",
            source=str(path),
            hint="Set BCOS_SDK_CONFIG to a folder that you can write to, and that you keep.",
        ) from error


def sealed(record: Record, key: bytes) -> Record:
    """The record with its seal."""
    return record.model_copy(update={"seal": _seal(key, record)})


def is_sealed(record: SealedRecord) -> bool:
    """Whether this user wrote the record, and so made the file that it describes."""
    key = _read(config_dir() / _KEY)
    return key is not None and hmac.compare_digest(_seal(key, record).encode(), record.seal.encode())


def _seal(key: bytes, record: SealedRecord) -> str:
    purpose = _CACHE_PURPOSE if isinstance(record, CacheRecord) else _PURPOSE
    text = json.dumps(record.model_dump(mode="json", exclude={"seal"}), sort_keys=True)
    return hmac.new(key, purpose + text.encode(), hashlib.sha256).hexdigest()


def _new(path: Path) -> bytes:
    if path.is_symlink() or path.exists():
        log.warning(
            "%s was readable by others, or is damaged; a new key replaces it, and engines are built again", path
        )
        path.unlink()
    key = secrets.token_bytes(_KEY_BYTES)
    with os.fdopen(open_no_link(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
    return key


def _read(path: Path) -> bytes | None:
    """The key; None if there is none, or if it is not a file of this user that nobody else could read or write."""
    try:
        with os.fdopen(open_no_link(path, os.O_RDONLY), "rb") as file:
            status, key = os.fstat(file.fileno()), file.read(_KEY_BYTES + 1)
    except OSError:
        return None
    if sys.platform != "win32" and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077):
        return None
    return key if len(key) == _KEY_BYTES else None
