"""Options and reports of the test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from PIL import Image
from support import gpu_machine
from support.bundles import random_pixels, small_bundle
from support.gpu_machine import GpuMachine
from support.slow import SlowBackend

from bcos_sdk import Client
from bcos_sdk.backends import Driver, probe_driver
from bcos_sdk.bundle import Bundle

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

_PARITY: pytest.StashKey[dict[str, tuple[float, float]]] = pytest.StashKey()
_EXPORTS: pytest.StashKey[dict[str, str]] = pytest.StashKey()
_ENGINES: pytest.StashKey[dict[str, str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the full-size matrix")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PARITY] = {}
    config.stash[_EXPORTS] = {}
    config.stash[_ENGINES] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "full" in item.keywords and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="full-size matrix: run `make test-full`"))
        if "gpu" in item.keywords and (problem := probe_driver().problem):
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU, but {problem}: run `make test-gpu` on one"))


@pytest.fixture
def report_parity(request: pytest.FixtureRequest) -> Callable[[str, float, float], None]:
    """Add a row to the parity table that ends the run."""

    def report(row: str, logits: float, weights: float) -> None:
        request.config.stash[_PARITY][row] = (logits, weights)

    return report


@pytest.fixture
def report_export(request: pytest.FixtureRequest) -> Callable[[str, Bundle, float], None]:
    """Add a row to the table of exports that ends the run."""

    def report(name: str, bundle: Bundle, seconds: float) -> None:
        worst = {
            figure: max(getattr(row, figure) for row in bundle.manifest.parity)
            for figure in ("logits", "weights", "bias", "residual")
        }
        size = sum(record.size for record in bundle.manifest.files.values()) / 1e6
        figures = " ".join(f"{value:9.1e}" for value in worst.values())
        request.config.stash[_EXPORTS][name] = f"{figures} {seconds:8.1f} {size:8.1f}"

    return report


@pytest.fixture
def report_engine(request: pytest.FixtureRequest) -> Callable[[str, int, float, int | None], None]:
    """Add a row to the table of engines that ends the run."""

    def report(name: str, size: int, seconds: float, peak_memory: int | None) -> None:
        request.config.stash[_ENGINES][name] = f"{size / 1e6:8.1f} {seconds:8.1f} {(peak_memory or 0) / 1e6:8.0f}"

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[_PARITY]
    if rows:
        terminalreporter.section("parity with the reference package, float64, relative error")
        terminalreporter.line(f"{'model':<40} {'logits':>8} {'W(x)':>8}")
        for row, (logits, weights) in rows.items():
            terminalreporter.line(f"{row:<40} {logits:8.1e} {weights:8.1e}")
    exports = config.stash[_EXPORTS]
    if exports:
        terminalreporter.section("exports against float64 autograd, worst over batches, probes and targets")
        columns = ("logits", "W(x)", "bias", "residual")
        heading = " ".join(f"{column:>9}" for column in columns)
        terminalreporter.line(f"{'model':<28} {heading} {'seconds':>8} {'MB':>8}")
        for name, figures in exports.items():
            terminalreporter.line(f"{name:<28} {figures}")
    engines = config.stash[_ENGINES]
    if engines:
        terminalreporter.section("engines built ahead of time")
        terminalreporter.line(f"{'engine':<44} {'MB':>8} {'seconds':>8} {'peak MB':>8}")
        for name, figures in engines.items():
            terminalreporter.line(f"{name:<44} {figures}")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(small_bundle().path, device="cpu") as made:
        yield made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GpuMachine]:
    """A simulated machine with GPUs and TensorRT."""
    yield gpu_machine.install(monkeypatch, tmp_path / "cache")
    gpu_machine.forget()


@pytest.fixture
def use_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Driver], None]]:
    """A function that replaces the driver of this machine until the test ends."""
    yield lambda driver: gpu_machine.use_driver(monkeypatch, lambda: driver)
    gpu_machine.forget()


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(random_pixels(1, size=(90, 120))[0]).save(path)
    return path


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    backend = SlowBackend()
    yield backend
    backend.go.set()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _store_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees, or adds to, the models and engines of whoever runs it."""
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path_factory.getbasetemp() / "store"))
