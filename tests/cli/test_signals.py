"""Ctrl-C, SIGTERM and full disks end every command with a message, an exit code, and no partial files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other signals")

SWALLOWING = """
import os, signal, time
try:
    os.kill(os.getpid(), {signal})
    time.sleep(0.3)
except BaseException:
    pass
"""
MAIN = "import sys; from bcos_sdk.cli import main; main(sys.argv[1:], prog_name='bcos-sdk')"


def python(program: str, *arguments: str, folder: Path) -> subprocess.Popen[str]:
    # A job in the background ignores SIGINT, and its child processes inherit that.
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_import_that_swallows_exceptions_does_not_swallow_a_signal(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Some packages catch every exception while they import their libraries."""
    (tmp_path / "swallowing.py").write_text(SWALLOWING.format(signal=int(number)))
    program = """
import time
from bcos_sdk.cli import main
@main.command()
def slow():
    import swallowing
    time.sleep(5)
    print("went on")
main(["slow"])
"""
    process = python(program, folder=tmp_path)
    output, errors = process.communicate()
    assert (process.returncode, output) == (code, ""), errors
    assert "Traceback" not in errors


@posix
def test_a_second_signal_ends_an_import_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    program = """
from bcos_sdk.cli import main
@main.command()
def slow():
    import endless
main(["slow"])
"""
    process = python(program, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


@posix
@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full)]
)
def test_a_signal_during_an_export_leaves_no_files(number: signal.Signals, code: int, tmp_path: Path) -> None:
    process = python(MAIN, "export", "cifar10_resnet18_w16", "-o", str(tmp_path / "out" / "bundle"), folder=tmp_path)
    assert process.stderr is not None
    while "checking against torch" not in (line := process.stderr.readline()):
        assert line, "the export ended too early"
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, errors.splitlines()[-1]) == (
        code,
        "interrupted" if number == signal.SIGINT else "terminated",
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["models"], ["--help"], ["models", "show", "resnet50", "--json"]])
def test_a_full_disk_behind_stdout_is_an_error(arguments: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error [output_failed]: cannot write to stdout: No space left on device\n")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@posix
@pytest.mark.needs_torch
def test_a_full_disk_during_an_export_is_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    program = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + MAIN
    process = python(program, "export", "cifar10_resnet18_w16", "-o", str(tmp_path / "out" / "bundle"), folder=tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert f"error [output_failed]: cannot write the bundle {tmp_path / 'out' / 'bundle'}: File too large" in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    assert list((tmp_path / "out").iterdir()) == []
