"""Every fuzz target: the corpus of earlier findings, new inputs for seconds, and with --full for a minute each."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.attacks import attack, no_attack
from support.fuzz_targets import CORPUS, TARGETS, attempt, search

SECONDS = 60

EACH_TARGET = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.needs_torch] * target.needs_torch) for name, target in TARGETS.items()],
)
FINDINGS = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*"))


@attack("files", "an input that fuzzing found", before="an exception without a type of this package was raised")
@pytest.mark.parametrize(
    "finding",
    [
        pytest.param(name, marks=[pytest.mark.needs_torch] * TARGETS[Path(name).parent.name].needs_torch)
        for name in FINDINGS
    ],
)
def test_a_finding_has_a_typed_error(finding: str) -> None:
    attempt(TARGETS[Path(finding).parent.name], (CORPUS / finding).read_bytes())


@attack("files", "random hostile inputs of a reader", before="some readers raised other exceptions")
@EACH_TARGET
def test_hostile_inputs_have_typed_errors(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples, phases=[Phase.generate], database=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        attempt(target, target.make(Random(seed)))

    run()


@no_attack
@pytest.mark.full
@EACH_TARGET
def test_hostile_inputs_of_a_minute_have_typed_errors(name: str, tmp_path: Path) -> None:
    seed = SystemRandom().randrange(2**32)
    count, findings = search(name, SECONDS, seed)
    print(f"{name}: {count:,} inputs with seed {seed}")
    for number, contents in enumerate(findings.values()):
        (tmp_path / f"finding-{number}").write_bytes(contents)
    assert not findings, f"seed {seed}, inputs in {tmp_path}: {list(findings)}"


@no_attack
def test_every_folder_of_the_corpus_belongs_to_a_target() -> None:
    assert {Path(name).parent.name for name in FINDINGS} <= TARGETS.keys()
