"""Build the package from a copy of its sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "build", "copy_sources", "run"]

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("bcos_sdk", "exporters", "cli", "LICENSES", ".ci")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.wasm")
_FILES = ("models.yaml", "pyproject.toml", "MANIFEST.in", "sbom.cdx.json", "README.md", "LICENSE")


def copy_sources(target: Path) -> Path:
    """Copy what the package is built from, without the files that an earlier build left.

    Of ONNX Runtime Web, the large binaries are left out: packing them takes most of the time of a build.
    """
    target.mkdir()
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=_IGNORED)
    for name in _FILES:
        shutil.copy(ROOT / name, target / name)
    return target


def build(source: Path, out: Path, **environment: str) -> None:
    """Build the source distribution, and from it the wheel."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source), **environment)


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
