"""Builds one engine in a process of its own: TensorRT may end the process that it runs in.

A job is JSON on stdin; the plan goes to the file it names, figures to stdout, and what TensorRT says to stderr.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main() -> None:
    job = json.load(sys.stdin)
    trt: Any = import_module(job["flavour"])
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    # The parser does not keep the network alive, so a name must.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(job["graph"]):
        problems = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        sys.exit("cannot be parsed: " + "; ".join(problems))
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # its 10 bits of mantissa would break the certificate
    profile = builder.create_optimization_profile()
    for name, shapes in job["profile"].items():
        profile.set_shape(name, *shapes)
    config.add_optimization_profile(profile)
    if job["capabilities"]:
        config.num_compute_capabilities = len(job["capabilities"])
        for place, capability in enumerate(job["capabilities"]):
            level = getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}")
            config.set_compute_capability(level, place)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        sys.exit("TensorRT builds no engine of it")
    Path(job["plan"]).write_bytes(plan)
    print(json.dumps({"version": trt.__version__, "layers": network.num_layers}))  # noqa: T201


if __name__ == "__main__":
    main()
