"""Published weights, fetched once: resumed after a cut, checked by hash, renamed when complete."""

from __future__ import annotations

import logging
from pathlib import Path

from bcos_sdk._extras import require
from bcos_sdk._files import sha256_of
from bcos_sdk._paths import cache_dir
from bcos_sdk.errors import DownloadError, HashMismatchError, NoPublishedWeightsError
from bcos_sdk.registry import ModelSpec, WeightsSource
from bcos_sdk.weights._transfer import TransferError, transfer

__all__ = ["download_weights", "weights_dir"]

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
            f"no weights are known to the registry for {spec.name}",
            source=spec.name,
            hint=f"Train it and pass the file: --weights FILE, or load_model({spec.name!r}, weights=FILE)",
        )
    require("filelock", purpose="Downloading weights")
    from filelock import FileLock

    target = (folder or weights_dir()) / source.file_name
    try:
        if target.is_file() and _matches(target, source):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(target.name + ".lock")):
            if not (target.is_file() and _matches(target, source)):
                _download(source, target, progress=progress)
    except TransferError as error:
        raise _failure(
            spec,
            source,
            str(error),
            retryable=error.retryable,
            hint=(
                f"Get {source.url} on a machine with access, then either put it at {target} "
                f"or pass it: --weights FILE, or load_model({spec.name!r}, weights=FILE)"
            ),
        ) from error
    except OSError as error:
        raise _failure(
            spec,
            source,
            f"cannot read or write in {target.parent}: {error}",
            retryable=False,
            hint="Choose another folder: --to FOLDER, or the environment variable BCOS_SDK_CACHE",
        ) from error
    return target


def _download(source: WeightsSource, target: Path, *, progress: bool) -> None:
    part = target.with_name(target.name + ".part")
    label = f"Downloading {target.name}"
    continued = part.exists()
    transfer(source.url, part, label=label, progress=progress)
    if continued and not _matches(part, source):
        log.warning("%s: the part left by an earlier run does not fit; starting again", target.name)
        part.unlink()
        transfer(source.url, part, label=label, progress=progress)
    if not _matches(part, source):
        digest = sha256_of(part)
        part.unlink()
        raise HashMismatchError(
            f"{source.url} did not deliver the published file: SHA-256 begins with {digest[:10]}, "
            f"published is {source.sha256_prefix}",
            source=source.url,
            hint="A proxy may have answered in its place. Nothing was kept: try again, or pass a file.",
        )
    part.replace(target)


def _matches(path: Path, source: WeightsSource) -> bool:
    return sha256_of(path).startswith(source.sha256_prefix)


def _failure(spec: ModelSpec, source: WeightsSource, reason: str, *, retryable: bool, hint: str) -> DownloadError:
    return DownloadError(
        f"the weights of {spec.name} could not be downloaded: {reason}",
        source=source.url,
        retryable=retryable,
        hint=hint,
    )
