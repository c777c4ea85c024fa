"""`bcos-sdk benchmark` on the command line. No test depends on measured times."""

from __future__ import annotations

from pathlib import Path

import pytest
import support.needs_torch  # noqa: F401
from click.testing import CliRunner, Result
from support.bundles import MAX_BATCH, small_bundle

from bcos_sdk import _extras
from bcos_sdk.bundle import builtin_bundle
from bcos_sdk.cli import main
from bcos_sdk.cli.benchmark import Report
from bcos_sdk.exporters import export
from bcos_sdk.models import random_network
from bcos_sdk.registry import InputSpec, builtin_registry

SMALL = "cifar10_resnet20_bnu-linear-nomaxout"
QUICK = ("--rounds", 1, "--batch", "1,2", "--threads", 2, "--device", "cpu", "--callers", 0)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["benchmark", *map(str, arguments)])


def test_a_bundle_without_comparison(tmp_path: Path) -> None:
    result = run(
        builtin_bundle(), *QUICK, "--against", "none", "--folder-images", 4,
        "--json", tmp_path / "b.json", "--plot", tmp_path / "b.svg",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "MS/IMAGE" in result.stdout
    assert "client, explain with picture, cpu" in result.stdout
    assert "a folder of 4 JPEGs on cpu" in result.stderr
    report = Report.from_json((tmp_path / "b.json").read_bytes())
    assert (report.threads, report.rounds, report.batches, report.against) == (2, 1, (1, 2), ())
    (model,) = report.models
    assert (model.name, model.input_size, model.export_seconds) == ("cifar10_resnet18_w16", (32, 32), None)
    assert [(one.what, one.batch) for one in model.timings] == [
        ("forward", 1),
        ("explain", 1),
        ("client explain", 1),
        ("explain with picture", 1),
        ("explain top 5", 1),
        ("forward", 2),
        ("explain", 2),
        ("client explain", 2),
    ]
    folder = model.devices["cpu"].folder
    assert folder is not None
    assert (folder.images, folder.batch) == (4, 2)
    assert model.devices["cpu"].calls is None, "--callers 0"
    assert "STREAM IMAGES/S" not in result.stdout
    assert str(tmp_path) not in report.to_json()
    assert b"<svg" in (tmp_path / "b.svg").read_bytes()


def test_a_registry_model_is_exported_and_missing_comparisons_are_noted(tmp_path: Path) -> None:
    result = run(SMALL, *QUICK, "--folder-images", 0, "--json", tmp_path / "b.json")
    assert result.exit_code == 0, result.stderr
    (model,) = Report.from_json((tmp_path / "b.json").read_bytes()).models
    assert model.export_seconds is not None
    assert model.devices["cpu"].folder is None
    assert len(model.notes) == 2
    assert all(note in result.stdout for note in model.notes)
    assert {timing.side for timing in model.timings} == {"ours"}


def test_a_busy_machine_gives_a_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (64.0, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    result = run(small_bundle().path, *QUICK, "--against", "none", "--folder-images", 0)
    assert result.exit_code == 0, result.stderr
    assert "the machine is busy (load 64.0)" in caplog.text
    assert "64.0: the machine was busy" in result.stdout


@pytest.mark.full
def test_a_bundle_of_a_known_network_is_compared_with_both(tmp_path: Path) -> None:
    spec = builtin_registry()["resnet18"].model_copy(
        update={"input": InputSpec(size=(64, 64), resize=72, crop=(64, 64))}
    )
    export(random_network(spec), tmp_path / "b", name="resnet18", preprocessing=spec.input, max_batch=2)
    result = run(tmp_path / "b", *QUICK, "--folder-images", 2, "--json", tmp_path / "b.json")
    assert result.exit_code == 0, result.stderr
    (model,) = Report.from_json((tmp_path / "b.json").read_bytes()).models
    assert {timing.side for timing in model.timings} == {"ours", "conventional", "reference"}
    assert model.reference_peak_memory_mb is not None
    assert model.notes == ()
    explain = model.find("ours", "explain", "cpu", 2)
    assert explain is not None
    assert model.to_conventional(explain) is not None
    assert model.reference_to(explain) is not None


@pytest.mark.parametrize(
    ("missing", "options", "message"),
    [
        ("bcos", [], "Comparing with the reference package needs bcos, which is not installed"),
        ("torchvision", ["--against", "conventional"], "Comparing with conventional networks needs torchvision"),
        ("matplotlib", ["--against", "none", "--plot", "p.png"], "Drawing the plot needs matplotlib"),
    ],
)
def test_a_missing_package_is_an_error_before_the_run_starts(
    missing: str, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = _extras.is_installed
    monkeypatch.setattr(_extras, "is_installed", lambda module: module != missing and there(module))
    result = run(SMALL, *QUICK, *options)
    assert result.exit_code == 1
    assert f"error [missing_extra]: {message}" in result.stderr
    assert "pip install 'bcos-sdk[bench]'" in result.stderr
    assert "import bcos_sdk" not in result.stderr, "the run must not start"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["resnet5O"], 2, "Did you mean resnet50"),
        ([SMALL, "nowhere/bundle"], 1, "error [bundle_invalid]"),
        ([SMALL, "--device", "abacus"], 1, "error [device_unavailable]"),
        ([SMALL, "--device", "auto"], 1, "error [device_unavailable]: a benchmark needs a specific device, got 'auto'"),
        ([SMALL, "--device", ","], 2, "name at least one device"),
        ([SMALL, "--batch", "1,x"], 2, "is not a list of batch sizes"),
        ([SMALL, "--batch", "0"], 2, "is not a list of batch sizes"),
        ([SMALL, "--against", "tensorflow"], 2, "choose from reference, conventional, torch, compiled, or none"),
        ([SMALL, "--plot", "speed.pdf"], 2, "must end with .png or .svg"),
        ([SMALL, "--json", "nowhere/b.json"], 1, "error [output_failed]"),
    ],
)
def test_invalid_arguments_are_errors_before_the_run_starts(arguments: list[str], code: int, message: str) -> None:
    result = run(*QUICK, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "import bcos_sdk" not in result.stderr, "the run must not start"


def test_a_batch_larger_than_that_of_the_export_is_refused() -> None:
    result = run(small_bundle().path, *QUICK, "--batch", MAX_BATCH + 1)
    assert result.exit_code == 1
    assert f"batches of at most {MAX_BATCH}, got a batch of {MAX_BATCH + 1}" in result.stderr
