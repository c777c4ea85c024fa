"""A stream needs constant memory, also if it has large files that cannot be read."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.bundles import small_bundle

PROGRAM = """
import io, resource, sys
import numpy as np
from PIL import Image
from bcos_sdk import Client, Explained

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def thumbnails(count):
    generator = np.random.default_rng(0)
    for number in range(count):
        height, width = generator.integers(30, 90, 2)
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, "PNG")
        yield file.getvalue() if number % 100 else b"damaged" + bytes(8_000_000)

with Client(sys.argv[1], device="cpu") as client:
    early = None
    for number, result in enumerate(client.explain_stream(thumbnails(10_000), top_k=2, weights=True)):
        assert isinstance(result, Explained) == (number % 100 > 0)
        if number == 500:
            early = peak()
print(number + 1, early, peak())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
def test_a_stream_of_ten_thousand_images_needs_constant_memory() -> None:
    command = [sys.executable, "-c", PROGRAM, str(small_bundle().path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, early, late = map(int, done.stdout.split())
    assert count == 10_000
    assert late <= 1.05 * early, f"peak memory went from {early} to {late} kB"
