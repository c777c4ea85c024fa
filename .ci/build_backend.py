"""The build backend: setuptools, with the SBOM in the wheel (PEP 770) and the same archives from the same sources.

Times in the archives are those of SOURCE_DATE_EPOCH, or 1980-01-01. Permissions and owners are constant.
"""

import gzip
import os
import shutil
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TypeAlias

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings: TypeAlias = "dict[str, str | list[str] | None] | None"
EARLIEST = 315532800  # 1980-01-01, the earliest time of a zip archive


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    name: str = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    sboms = Path(metadata_directory, name, "sboms")
    sboms.mkdir()
    shutil.copyfile("sbom.cdx.json", sboms / "bcos-sdk.cdx.json")
    return name


def build_wheel(wheel_directory: str, config_settings: Settings = None, _metadata_directory: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder, prepare_metadata_for_build_wheel(folder, config_settings))
        name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata)
    _rewrite_zip(Path(wheel_directory, name))
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    _rewrite_tar(Path(sdist_directory, name))
    return name


def _time() -> int:
    return max(EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH") or EARLIEST))


def _rewrite_zip(path: Path) -> None:
    """Write the same files with constant times and permissions. RECORD stays valid: it has only names and contents."""
    rewritten = path.with_suffix(".rewritten")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            entry = zipfile.ZipInfo(name, time.gmtime(_time())[:6])
            entry.external_attr = 0o100644 << 16
            new.writestr(entry, old.read(name), zipfile.ZIP_DEFLATED)
    rewritten.replace(path)


def _rewrite_tar(path: Path) -> None:
    """Write the same files in the order of their names with constant times, permissions and owners."""
    rewritten = path.with_suffix(".rewritten")
    with (
        tarfile.open(path) as old,
        rewritten.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=_time()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            constant = tarfile.TarInfo(member.name)
            constant.type, constant.size, constant.mtime = member.type, member.size, _time()
            constant.mode = 0o755 if member.isdir() else 0o644
            new.addfile(constant, old.extractfile(member) if member.isfile() else None)
    rewritten.replace(path)
