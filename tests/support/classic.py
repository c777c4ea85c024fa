"""Run programs against the API of classic TensorRT (a `Surface` of its bindings), without its libraries.

The package index has the bindings, but not the libraries. The bindings load with empty libraries of the same names.
TensorRT itself does not work then, so each program runs in a child process and calls only the `Surface`.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["VERSIONS", "Bindings", "open_bindings"]

VERSIONS = {"10.16": "tensorrt-cu12-bindings", "11.4": "tensorrt-cu13-bindings"}
"""The distribution of each version. The Makefile installs it into a folder of this name."""

_PRELUDE = """
import json, sys
import tensorrt_bindings
from support.surface import Surface
assert tensorrt_bindings.__version__.startswith({version!r}), tensorrt_bindings.__version__

def stand_in(**answers):
    surface = Surface(tensorrt_bindings, {{name.replace("__", "."): answer for name, answer in answers.items()}})
    sys.modules["tensorrt"] = surface.module
    return surface

surface = stand_in()
trt = surface.module
"""


@dataclass(frozen=True)
class Bindings:
    """The bindings of one version, and the folder of the empty libraries."""

    version: str
    folder: Path
    libraries: Path

    def start(self, program: str, *, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program in which `tensorrt` is the surface of these bindings.

        The program has the variables `surface` and `trt`, its module. `stand_in(Class__member=answer)` makes a new one.
        """
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.libraries),
            "PYTHONPATH": os.pathsep.join([str(self.folder), *filter(None, sys.path)]),
        }
        return subprocess.run(
            # Deprecated members of TensorRT are errors as well.
            [sys.executable, "-W", "error::DeprecationWarning", "-c", _PRELUDE.format(version=self.version) + program],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run(self, program: str, *, stdin: str = "") -> str:
        """Run a program that must succeed; return its stdout."""
        done = self.start(program, stdin=stdin)
        assert done.returncode == 0, f"against TensorRT {self.version}: {done.stderr or done.returncode}"
        return done.stdout


def open_bindings(version: str, workplace: Path) -> Bindings:
    """Return the bindings of this version, or skip the test and say what is missing. Libraries go to `workplace`."""
    distribution = VERSIONS[version]
    folder = Path(sys.prefix) / distribution
    extension = folder / "tensorrt_bindings" / "tensorrt.so"
    if not extension.is_file():
        pytest.skip(f"needs a wheel for Linux: pip install --no-deps --target {folder} {distribution}=={version}.*")
    compiler, nm = shutil.which("cc") or shutil.which("gcc"), shutil.which("nm")
    if compiler is None or nm is None:
        pytest.skip("needs a C compiler and nm: on Debian, apt install gcc")
    libraries = workplace / distribution
    libraries.mkdir(parents=True)
    _write_libraries(extension, libraries, compiler, nm)
    return Bindings(version, folder, libraries)


def _write_libraries(extension: Path, folder: Path, compiler: str, nm: str) -> None:
    """Write each library that the extension needs, with every function that it imports; each returns 0."""
    listed = subprocess.run([nm, "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    undefined = re.findall(r"^ +U (\w+)$", listed.stdout, re.MULTILINE)
    here = ctypes.CDLL(None)  # the functions of Python and of the C library
    missing = [name for name in undefined if not hasattr(here, name)]
    source, library = folder / "functions.c", folder / "functions.so"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in missing), "utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    needed = set(re.findall(rb"\0(libnv\w+\.so\.\d+)(?=\0)", extension.read_bytes()))
    assert needed, f"{extension} needs no library of TensorRT"
    for name in needed:
        shutil.copy(library, folder / name.decode())
