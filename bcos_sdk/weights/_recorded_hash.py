"""The SHA-256 of a weights file at first use, in `FILE.sha256` beside it, if only its first digits are published.

Ten hexadecimal digits do not protect from a file that was made to have them. The record makes every later use depend on
all digits. `sha256sum -c FILE.sha256` checks it too.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from bcos_sdk._files import atomic_write, read_plain
from bcos_sdk._logs import log
from bcos_sdk.errors import HashMismatchError
from bcos_sdk.registry import WeightsSource

__all__ = ["read_hash", "record_hash"]

_LARGEST = 1024


def read_hash(target: Path, source: WeightsSource) -> str | None:
    """The recorded hash of the file; None if none was recorded."""
    record = _record_of(target)
    try:
        text = read_plain(record, _LARGEST).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    found = re.match(r"[0-9a-f]{64}(?![0-9a-f])", text)
    if found is None or not found[0].startswith(source.sha256_prefix):
        raise HashMismatchError(
            f"{record} does not begin with a SHA-256 that begins with {source.sha256_prefix}: {text[:80]!r}",
            source=str(record),
            hint="Remove it. The hash is recorded again when the weights are next used.",
        )
    return found[0]


def record_hash(target: Path, digest: str, source: WeightsSource) -> None:
    """Record the hash of the file at first use, unless the registry states all its digits."""
    record = _record_of(target)
    if source.full_sha256 is not None or record.exists():
        return
    with suppress(OSError):  # a read-only folder, such as a part of a container image
        with atomic_write(record) as partial:
            partial.write_text(f"{digest}  {target.name}\n", "ascii")
        stated = len(source.sha256_prefix)
        log.info("SHA-256 of %s recorded: %s; the publisher states only its first %d digits", target, digest, stated)


def _record_of(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")
