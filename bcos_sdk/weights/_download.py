"""Published weights, fetched once: resumed after a cut, checked by hash, renamed when complete."""

from __future__ import annotations

import hashlib
import http.client
import logging
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click
from filelock import FileLock

from bcos_sdk._paths import cache_dir
from bcos_sdk.errors import DownloadError, HashMismatchError, NoPublishedWeightsError
from bcos_sdk.registry import ModelSpec, WeightsSource

__all__ = ["download_weights", "weights_dir"]

_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 20
_WORTH_RETRYING = {408, 425, 429, 500, 502, 503, 504}
_RANGE_NOT_SATISFIABLE = 416

log = logging.getLogger(__name__)


def weights_dir() -> Path:
    """The folder in which downloaded weights are kept."""
    return cache_dir() / "weights"


def download_weights(spec: ModelSpec, *, folder: Path | None = None, progress: bool = True) -> Path:
    """The published weights of a model as a local file whose hash is right, downloaded if need be.

    Two processes that ask at once download once. A file that is there under its final name is whole.
    """
    source = spec.weights
    if source is None:
        raise NoPublishedWeightsError(
            f"there are no published weights for {spec.name}",
            source=spec.name,
            hint=f"Train it and pass the file: --weights FILE, or load_model({spec.name!r}, weights=FILE)",
        )
    target = (folder or weights_dir()) / source.file_name
    if target.is_file() and _matches(target, source):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(target.name + ".lock")):
            if target.is_file() and _matches(target, source):
                return target
            _download(spec.name, source, target, progress=progress)
    except OSError as error:
        raise _failure(spec.name, source, target, f"cannot write to {target.parent}: {error}") from error
    return target


def _download(name: str, source: WeightsSource, target: Path, *, progress: bool) -> None:
    part = target.with_name(target.name + ".part")
    continued = part.exists()
    _transfer(name, source, target, part, progress=progress)
    if continued and not _matches(part, source):
        log.warning("%s: the part left by an earlier run does not fit; starting again", target.name)
        part.unlink()
        _transfer(name, source, target, part, progress=progress)
    if not _matches(part, source):
        digest = _sha256(part)
        part.unlink()
        raise HashMismatchError(
            f"{source.url} did not deliver the published file: SHA-256 begins with {digest[:10]}, "
            f"published is {source.sha256_prefix}",
            source=source.url,
            hint="A proxy may have answered in its place. Nothing was kept: try again, or pass a file.",
        )
    part.replace(target)


def _transfer(name: str, source: WeightsSource, target: Path, part: Path, *, progress: bool) -> None:
    """Append to `part` until the server says it is whole; each attempt goes on where the last stopped."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _receive(source.url, part, label=f"Downloading {target.name}", progress=progress)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _RANGE_NOT_SATISFIABLE:
                return None  # nothing is left to send; the hash decides whether that is the whole file
            reason = f"the server answered {error.code} {error.reason}"
            if error.code not in _WORTH_RETRYING:
                raise _failure(name, source, target, reason, retryable=False) from error
            failure: Exception = error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            failure = error
        if attempt < _ATTEMPTS:
            log.info("%s: %s; trying again", target.name, reason)
            time.sleep(_PAUSE_SECONDS * attempt)
    raise _failure(name, source, target, reason) from failure


def _receive(url: str, part: Path, *, label: str, progress: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "bcos-sdk", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the registry allows http(s) only
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server sends the whole file, asked for it or not
        length = response.headers.get("Content-Length")
        expected = int(length) if length else None
        total = have + expected if expected is not None else None
        hidden = not (progress and sys.stderr.isatty())
        bar: Any
        with (
            part.open("ab" if have else "wb") as file,
            click.progressbar(length=total, label=label, file=sys.stderr, hidden=hidden) as bar,
        ):
            bar.update(have)
            received = 0
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                bar.update(len(chunk))
    if expected is not None and received < expected:
        raise ConnectionError(f"the connection was cut after {have + received} of {total} bytes")


def _matches(path: Path, source: WeightsSource) -> bool:
    return _sha256(path).startswith(source.sha256_prefix)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _failure(
    name: str, source: WeightsSource, target: Path, reason: str, *, retryable: bool = True
) -> DownloadError:
    return DownloadError(
        f"the weights of {name} could not be downloaded: {reason}",
        source=source.url,
        retryable=retryable,
        hint=(
            f"Get {source.url} on a machine with access, then either put it at {target} "
            f"or pass it: --weights FILE, or load_model({name!r}, weights=FILE)"
        ),
    )
