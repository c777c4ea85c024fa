"""Print the oldest supported version of each package that these extras need, and the tested version of tools.

`lowest.py cpu openvino --tools pytest hypothesis` prints a requirements file.
"""

import argparse
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("extras", nargs="+")
parser.add_argument("--tools", nargs="+", default=[])
arguments = parser.parse_args()
for requirement in map(Requirement, requires("bcos-sdk") or []):
    if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in arguments.extras):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", f"{requirement} is not a lower bound"
        print(f"{requirement.name}=={bound.version}")
for line in (Path(__file__).parents[1] / "constraints.txt").read_text("utf-8").splitlines():
    if line and line[0] != "#" and Requirement(line).name in arguments.tools:
        print(line, Requirement(line).name, sep="\n")  # the name alone, if this Python has no pinned version
