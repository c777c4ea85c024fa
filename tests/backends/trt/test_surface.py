"""A `Surface` accepts and refuses the same calls as real bindings: those of TensorRT for RTX work without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' brings bindings that work without a GPU")

PROGRAM = """
import json, pathlib, sys
import numpy as np
import tensorrt_rtx
from support.surface import Surface

def outcome(trt, statement):
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    names = {
        "np": np, "pathlib": pathlib, "trt": trt, "logger": logger, "builder": builder, "network": network,
        "config": builder.create_builder_config(), "profile": builder.create_optimization_profile(),
        "parser": trt.OnnxParser(network, logger),
    }
    try:
        exec(statement, names)
    except (AttributeError, TypeError) as error:
        return [kind.__name__ for kind in (AttributeError, TypeError) if isinstance(error, kind)][0]
    return "taken"

stand_in = Surface(tensorrt_rtx).module
statements = json.load(sys.stdin)
outcomes = {each: [outcome(tensorrt_rtx, each), outcome(stand_in, each)] for each in statements}
print()
print(json.dumps(outcomes))
"""

OWN_LOGGER = """
class Quiet(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines = []
    def log(self, severity, message):
        self.lines.append(message)
trt.Builder(Quiet())
"""

STATEMENTS = {
    "config.num_compute_capabilities = 1": "taken",
    "config.num_optimization_profiles = 1": "AttributeError",
    "config.builder_optimization_level = 'high'": "TypeError",
    "config.made_up = 1": "AttributeError",
    "builder.made_up()": "AttributeError",
    "builder.gpu_allocator": "AttributeError",
    "builder.max_threads = 2": "taken",
    "builder.create_network(True)": "taken",
    "builder.create_network(np.int64(1))": "taken",
    "builder.create_network(flags=1)": "taken",
    "builder.create_network(flag=1)": "TypeError",
    "builder.create_network(1, 2)": "TypeError",
    "builder.create_network(1.5)": "TypeError",
    "builder.create_network(None)": "TypeError",
    "config.clear_flag(trt.BuilderFlag.TF32)": "taken",
    "config.clear_flag(trt.DataType.HALF)": "TypeError",
    "config.clear_flag(3)": "TypeError",
    "config.set_memory_pool_limit(pool=trt.MemoryPoolType.WORKSPACE, pool_size=1 << 30)": "taken",
    "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1e9)": "TypeError",
    "profile.set_shape('a', [1, 2], (1, 2), max=trt.Dims((1, 2)))": "taken",
    "profile.set_shape('a', np.array([1, 2]), [1, 2], [1, 2])": "taken",
    "profile.set_shape('a', [1.5, 2], [1, 2], [1, 2])": "TypeError",
    "profile.set_shape('a', '12', '12', '12')": "TypeError",
    "profile.set_shape(name='a', min=[1], opt=[1], max=[1])": "TypeError",
    "parser.parse_from_file('no file')": "taken",
    "parser.parse_from_file(b'no file')": "taken",
    "parser.parse_from_file(pathlib.Path('no file'))": "TypeError",
    "parser.parse_from_file()": "TypeError",
    "parser.parse(memoryview(b'no model'), path=None)": "taken",
    "parser.parse('no model')": "TypeError",
    "trt.Logger(min_severity=trt.Logger.Severity.WARNING)": "taken",
    "trt.Logger(severity=trt.Logger.WARNING)": "TypeError",
    "trt.Logger(2)": "TypeError",
    "trt.OnnxParser(logger, logger)": "TypeError",
    "trt.Builder(None)": "TypeError",
    "trt.INetworkDefinition()": "TypeError",
    "trt.Builder.made_up": "AttributeError",
    "trt.made_up": "AttributeError",
    "len(network)": "taken",
    "len(config)": "TypeError",
    OWN_LOGGER: "taken",
}


def test_it_agrees_with_real_bindings() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(list(STATEMENTS)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes == {statement: [expected, expected] for statement, expected in STATEMENTS.items()}
