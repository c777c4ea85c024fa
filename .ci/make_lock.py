"""Write requirements/*.txt, the packages of CI with versions and hashes: `make lock`.

They follow pyproject.toml and constraints.txt, and are valid for Python 3.10 and newer on all platforms. The command
`uv` must be on the PATH.
"""

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("cpu", "openvino", "export", "serve", "sign", "trt-rtx", "dev")
WITHOUT_DEPENDENCIES = ("bcos", "torchvision")
BINDINGS = ("tensorrt-cu12-bindings", "tensorrt-cu13-bindings")
NOT_LOCKED = re.compile(r"torch|triton|cuda-toolkit|nvidia-")
"""torch and what only its CUDA build needs. The hash of torch depends on the package index: some have a CPU build."""


def lock(*sources: str, more: tuple[str, ...] = ()) -> list[str]:
    """One text for each package that the sources need: its version, its marker and its hashes."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-config", "--constraints", "constraints.txt", *more]
    source = "\n".join(sources)
    done = subprocess.run([*command, "-"], input=source, capture_output=True, text=True, check=True, cwd=ROOT)
    return re.findall(r"^\S.*(?:\n +--hash.*)+", done.stdout, re.MULTILINE)


def write(name: str, packages: list[str]) -> None:
    lines = ["# Made by `make lock` from pyproject.toml and constraints.txt.", *packages]
    text = "\n".join(lines) + "\n"
    assert "//" not in text, "the name of a package index"
    (ROOT / "requirements" / name).write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="+", help="the extras of the tests without torch")
    parser.add_argument("--tools", nargs="+", help="the tools of these tests")
    arguments = parser.parse_args()
    everything = lock(f"bcos-sdk[{','.join(EXTRAS)}] @ {ROOT.as_uri()}")
    everything = [package for package in everything if not NOT_LOCKED.match(package)]
    no_dependencies = ("--no-deps",)
    write("set-up.txt", everything + lock(*WITHOUT_DEPENDENCIES, more=no_dependencies))
    same = ("--constraints", "requirements/set-up.txt")
    package = f"bcos-sdk[{','.join(arguments.extras)}] @ {ROOT.as_uri()}"
    write("without-torch.txt", lock(package, *arguments.tools, more=same))
    for name in ("setuptools", *BINDINGS):
        write(f"{name}.txt", lock(name, more=no_dependencies))
