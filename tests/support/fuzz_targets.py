"""The fuzz targets: for each kind of file or argument, hostile inputs and the code that must survive them.

An input is bytes, so that a finding can be kept as a file. `run` may raise nothing but a `BcosError`, must return
within `SECONDS`, and must not take more than `MOST_MEMORY` beyond what the process has taken before.

    python -m support.fuzz_targets yaml --minutes 5      search for findings and write them to tests/attacks/corpus
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

from support import fuzz_bundles, fuzz_files, fuzz_results, fuzz_weights
from support.typed_errors import only_typed_errors

__all__ = ["CORPUS", "TARGETS", "Target", "attempt", "search"]

CORPUS = Path(__file__).resolve().parents[1] / "attacks" / "corpus"
SECONDS = 60
MOST_MEMORY = 1 << 30
LARGEST = 8 << 20
"""Largest input in bytes. Changes of a document can multiply."""


@dataclass(frozen=True)
class Target:
    """`make` returns a hostile input. `run` gives it to the code under test, with an empty folder for its files."""

    make: Callable[[Random], bytes]
    run: Callable[[bytes, Path], None]
    needs_torch: bool = False
    examples: int = 60
    """How many inputs `make test` tries. The sum over all targets takes seconds."""


TARGETS: dict[str, Target] = {
    "manifest": Target(fuzz_bundles.hostile_manifest, fuzz_bundles.open_with_manifest, examples=80),
    "golden": Target(fuzz_bundles.hostile_golden, fuzz_bundles.open_with_golden),
    "graph": Target(fuzz_bundles.hostile_graph, fuzz_bundles.open_with_graph),
    "engine": Target(fuzz_bundles.hostile_engine_record, fuzz_bundles.read_engine_record),
    "inspect": Target(fuzz_bundles.hostile_onnx, fuzz_bundles.inspect_onnx, needs_torch=True, examples=40),
    "image": Target(fuzz_files.hostile_image, fuzz_files.load_picture),
    "targets": Target(fuzz_files.hostile_targets, fuzz_files.explain_targets),
    "list": Target(fuzz_files.hostile_list, fuzz_files.read_list),
    "labels": Target(fuzz_files.hostile_labels, fuzz_files.read_label_file),
    "yaml": Target(fuzz_files.hostile_yaml, fuzz_files.read_yaml, examples=80),
    "settings": Target(fuzz_files.hostile_settings, fuzz_files.apply_settings),
    "environment": Target(fuzz_files.hostile_environment, fuzz_files.read_environment, examples=30),
    "result": Target(fuzz_results.hostile_result, fuzz_results.read_result, examples=80),
    "results": Target(fuzz_results.hostile_results, fuzz_results.read_result_file),
    "npz": Target(fuzz_results.hostile_explanation, fuzz_results.read_npz),
    "journal": Target(fuzz_results.hostile_journal, fuzz_results.resume, examples=80),
    "checkpoint": Target(fuzz_weights.hostile_checkpoint, fuzz_weights.load_checkpoint, needs_torch=True, examples=40),
    "safetensors": Target(fuzz_weights.hostile_safetensors, fuzz_weights.load_safetensors, needs_torch=True),
    "expectation": Target(fuzz_weights.hostile_expectation, fuzz_weights.read_expected, needs_torch=True),
}


def attempt(target: Target, contents: bytes) -> None:
    """Run the target on one input. Raise what it must not raise, or an `AssertionError` if it exceeds its bounds."""
    before = _peak_memory()
    with (
        tempfile.TemporaryDirectory(prefix="bcos-sdk-fuzz-") as folder,
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        _alarm(),
        only_typed_errors(),
    ):
        warnings.simplefilter("ignore")
        target.run(contents, Path(folder))
    grown = _peak_memory() - before
    assert grown < MOST_MEMORY, f"it took {grown / 1e6:,.0f} MB"


def search(name: str, seconds: float, seed: int) -> tuple[int, dict[str, bytes]]:
    """Try inputs for so many seconds. Return their number, and one input for each different traceback."""
    random, target = Random(seed), TARGETS[name]
    findings: dict[str, bytes] = {}
    end = time.monotonic() + seconds
    for count in itertools.count(1):
        contents = target.make(random)
        try:
            attempt(target, contents if len(contents) <= LARGEST else contents[:LARGEST])
        except Exception as error:
            key = _place_of(error)
            if key not in findings or len(contents) < len(findings[key]):
                findings[key] = contents
        if time.monotonic() > end:
            return count, findings
    raise AssertionError("unreachable")


def _place_of(error: BaseException) -> str:
    """The type of an error, and the last line of this package in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "/bcos_sdk/" in frame.filename]
    return f"{type(error).__name__} at {own[-1] if own else 'the target'}"


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """Raise an error in the main thread if the code inside does not return in time."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(*_: object) -> None:
        raise AssertionError(f"it did not return within {SECONDS} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _peak_memory() -> int:
    """The largest memory of this process so far, in bytes; 0 where it is not known."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description="Search for inputs that break a fuzz target.")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    options = parser.parse_args()
    os.environ.setdefault("BCOS_SDK_TEST_BUNDLES", tempfile.mkdtemp(prefix="bcos-sdk-test-"))
    print(f"seed {options.seed}")
    logging.disable()
    for name in options.targets:
        count, findings = search(name, 60 * options.minutes, options.seed)
        print(f"{name}: {count:,} inputs, {len(findings)} findings", flush=True)
        for place, contents in findings.items():
            path = CORPUS / name / hashlib.sha256(contents).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
            print(f"  {path.name} ({len(contents):,} bytes) {place}", flush=True)


if __name__ == "__main__":
    main()
