"""Print the lower bound of every required package and of the named extras, as requirements: `lowest.py cpu openvino`."""

import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

for requirement in map(Requirement, requires("bcos-sdk") or []):
    if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in sys.argv[1:]):
        (bound,) = requirement.specifier  # one `>=` each; anything else needs a decision here
        assert bound.operator == ">=", f"{requirement} has no lower bound"
        print(f"{requirement.name}=={bound.version}")  # noqa: T201
