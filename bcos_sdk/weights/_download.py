"""Get weights as local files with a checked SHA-256: downloaded once, part of this package, or the user's own."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._files import sha256_of
from bcos_sdk._logs import log
from bcos_sdk._paths import builtin_dir, cache_dir
from bcos_sdk._private_folders import is_owner_trusted, private_cache
from bcos_sdk.errors import DownloadError, HashMismatchError, NoPublishedWeightsError
from bcos_sdk.limits import LARGEST_DOWNLOAD
from bcos_sdk.registry import LocalWeights, ModelSpec, PackagedWeights, WeightsSource
from bcos_sdk.weights._recorded_hash import read_hash, record_hash
from bcos_sdk.weights._transfer import TransferError, transfer

__all__ = ["download_weights", "known_sha256", "weights_dir", "weights_file"]


def weights_dir() -> Path:
    """The folder of downloaded weights."""
    return cache_dir() / "weights"


def download_weights(spec: ModelSpec, *, folder: Path | None = None, progress: bool = True) -> Path:
    """Return the path of a model's published weights, and download them if the file is missing or damaged.

    The hash is checked on every call. If the publisher states only its first digits, the whole hash is recorded beside
    the file at first use, and must be the same from then on. An interrupted download is resumed. If several processes
    call this at once, one of them downloads. The file gets its final name when it is complete.
    """
    source = spec.published_weights
    if source is None:
        raise NoPublishedWeightsError(
            f"the registry has no weights for {spec.name}",
            source=spec.name,
            hint=f"Train the model and pass the file: --weights FILE, or load_model({spec.name!r}, weights=FILE).",
        )
    from filelock import FileLock

    target = (folder or weights_dir()) / source.file_name
    try:
        if folder is None:
            private_cache(weights_dir().name)
        else:
            folder.mkdir(parents=True, exist_ok=True)
        if not _is_there(target, source):
            with FileLock(target.with_name(target.name + ".lock")):
                if not _is_there(target, source):
                    _download(source, target, progress=progress)
    except TransferError as error:
        raise _failure(
            spec,
            source,
            str(error),
            retryable=error.retryable,
            hint=(
                f"Download {source.url} on a machine with access. Then copy it to {target}, "
                f"or pass it: --weights FILE, or load_model({spec.name!r}, weights=FILE)."
            ),
        ) from error
    except OSError as error:
        raise _failure(
            spec,
            source,
            f"cannot read or write in {target.parent}: {error}",
            retryable=False,
            hint="Choose another folder with --to FOLDER or the environment variable BCOS_SDK_CACHE.",
        ) from error
    return target


def weights_file(spec: ModelSpec) -> Path:
    """Return the path of the weights that the entry names: a file of its own, the built-in or the published one."""
    if spec.local_weights is not None:
        return _local_weights(spec.local_weights)
    return download_weights(spec) if spec.packaged is None else _packaged_weights(spec.packaged)


def _local_weights(source: LocalWeights) -> Path:
    """Return the path of the file. Whoever reads it reports a missing file."""
    if source.sha256 is not None and source.file.is_file() and (digest := sha256_of(source.file)) != source.sha256:
        raise HashMismatchError(
            f"{source.file} is not the file that the registry names: its SHA-256 is {digest}, expected {source.sha256}",
            source=str(source.file),
            hint="Use the file with that hash, or change `sha256` of the entry.",
        )
    return source.file


def _packaged_weights(source: PackagedWeights) -> Path:
    """Return the path of weights that are part of this package, after a check of their SHA-256."""
    path = builtin_dir() / source.file
    if not path.is_file() or sha256_of(path) != source.sha256:
        raise HashMismatchError(
            f"{path} is missing, or is not the released file", source=str(path), hint="Install bcos-sdk again."
        )
    return path


def known_sha256(source: WeightsSource) -> str | None:
    """The whole SHA-256 of published weights: that of the registry, or the one recorded at first use."""
    return source.full_sha256 or read_hash(weights_dir() / source.file_name, source)


def _is_there(target: Path, source: WeightsSource) -> bool:
    """Whether the file is complete and right. The file of another user, who could change it later, does not count."""
    if not target.is_file() or not is_owner_trusted(target.lstat()):
        return False
    digest = sha256_of(target)
    if not digest.startswith(_expected(target, source)):
        return False
    record_hash(target, digest, source)
    return True


def _download(source: WeightsSource, target: Path, *, progress: bool) -> None:
    part = target.with_name(target.name + ".part")
    continued = part.exists()
    digest = _transferred(source, part, progress=progress)
    expected = _expected(target, source)
    if continued and not digest.startswith(expected):
        log.warning("%s: the partial file of an earlier run does not match; downloading from the start", target.name)
        part.unlink()
        digest = _transferred(source, part, progress=progress)
    if not digest.startswith(expected):
        part.unlink()
        raise _wrong_file(source, target, digest, expected)
    record_hash(target, digest, source)
    part.replace(target)


def _transferred(source: WeightsSource, part: Path, *, progress: bool) -> str:
    """Download the rest of the file and return the SHA-256 of the whole."""
    label = f"Downloading {part.stem}"
    transfer(source.url, part, largest=source.size or LARGEST_DOWNLOAD, label=label, progress=progress)
    return sha256_of(part)


def _expected(target: Path, source: WeightsSource) -> str:
    """All known digits of the SHA-256."""
    return source.full_sha256 or read_hash(target, source) or source.sha256_prefix


def _wrong_file(source: WeightsSource, target: Path, digest: str, expected: str) -> HashMismatchError:
    if digest.startswith(source.sha256_prefix):
        return HashMismatchError(
            f"{source.url} is not the file that was used before: its SHA-256 is {digest}, expected {expected}",
            source=source.url,
            hint=f"The file was deleted. If the publisher has replaced it, remove {target}.sha256 and try again.",
        )
    return HashMismatchError(
        f"{source.url} is not the published file: its SHA-256 begins with {digest[:10]}, "
        f"expected {source.sha256_prefix}",
        source=source.url,
        hint="A proxy may have sent another page. The file was deleted. Try again, or pass a file with --weights.",
    )


def _failure(spec: ModelSpec, source: WeightsSource, reason: str, *, retryable: bool, hint: str) -> DownloadError:
    return DownloadError(
        f"cannot download the weights of {spec.name}: {reason}",
        source=source.url,
        retryable=retryable,
        hint=hint,
    )
