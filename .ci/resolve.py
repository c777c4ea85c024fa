"""Resolve every extra for every supported Python from constraints.txt: `make test-resolve`.

Also the extras that docs/tensorrt.md and `make test-gpu` install together, and the set of docs/tensorrt.md for CUDA 12.

`uv` must be on the PATH. It evaluates markers for the wanted Python; pip evaluates them for the Python that runs it.
Packages are looked up in the package index, and nothing is installed.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOGETHER = ("gpu,export,trt", "gpu,export,trt,trt-rtx,dev")
"""Extras that are installed together: by the block of docs/tensorrt.md, and by `make test-gpu`."""
UNSUPPORTED = {("gpu", "3.10"), *((extras, "3.10") for extras in TOGETHER)}
"""onnxruntime-gpu 1.31 needs Python 3.11."""
CUDA_12 = ("cpu,export", "tensorrt-cu12>=10.16,<11", "cuda-bindings>=12.8,<13")
"""The set of docs/tensorrt.md for CUDA 12: extras, and what is installed beside them."""
NOT_IN_THE_INDEX = 'tensorrt-cu12-libs; python_version < "3"'
"""The index of Python packages has only the name of TensorRT's libraries. The marker leaves them out."""


def extras() -> list[str]:
    """The names of the extras in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return re.findall(r"^([a-z0-9-]+) = \[", section, re.MULTILINE)


def resolve(extras: str, python: str, options: Sequence[str] = (), stdin: str | None = None) -> str | None:
    """Why these extras, separated by commas, cannot be installed with this Python; None if they can."""
    command = ["uv", "pip", "compile", "--quiet", "--no-config", "--python-version", python]
    command += [option for extra in extras.split(",") for option in ("--extra", extra)]
    command += ["--python-platform", "x86_64-manylinux_2_28", *options, "pyproject.toml"]
    command += ["-"] if stdin is not None else []
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=ROOT)
    return None if done.returncode == 0 else " ".join(done.stderr.split())[:600]


def resolve_cuda_12(python: str) -> str | None:
    """The same for the set for CUDA 12. It has other versions than constraints.txt."""
    extras, *beside = CUDA_12
    overrides = ROOT / "build" / "not-in-the-index.txt"
    overrides.parent.mkdir(exist_ok=True)
    overrides.write_text(NOT_IN_THE_INDEX + "\n", "utf-8")
    return resolve(extras, python, ["--override", str(overrides)], stdin="\n".join(beside))


if __name__ == "__main__":
    surprises = 0
    for python in sys.argv[1:]:
        outcomes = {
            **{one: resolve(one, python, ["--constraints", "constraints.txt"]) for one in (*extras(), *TOGETHER)},
            "CUDA 12": resolve_cuda_12(python),
        }
        for name, problem in outcomes.items():
            expected = (name, python) in UNSUPPORTED
            surprises += (problem is not None) != expected
            outcome = "resolved" if problem is None else f"{'not supported' if expected else 'FAILED'}: {problem}"
            print(f"{python:5} {name:27} {outcome}", flush=True)
    sys.exit(f"{surprises} combinations have another outcome than expected" if surprises else 0)
