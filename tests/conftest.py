"""Options and reports of the test run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# One thread per worker process. It must be set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
from PIL import Image
from support import gpu_machine, one_thread
from support.bundles import BUNDLES, random_pixels, small_bundle
from support.export_extra import HAVE_TORCH, torch
from support.gpu_machine import GpuMachine
from support.places import PLACES, small_client
from support.slow import SlowBackend
from support.soak import Soak

import bcos_sdk
from bcos_sdk import Client
from bcos_sdk.backends import Driver, _open, probe_driver
from bcos_sdk.bundle import Bundle

hypothesis.settings.register_profile("full", derandomize=True, deadline=None)
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("full"), max_examples=30)
one_thread.install()

_PARITY = "parity with the reference package, float64, relative error"
_EXPORTS = "exports against float64 autograd, worst over batches, probes and targets"
_ENGINES = "engines built ahead of time"
_SOAK = "what the process holds after 30 % and after 100 % of a long run"
_COLUMNS = {
    _PARITY: f"{'logits':>8} {'W(x)':>8}",
    _EXPORTS: f"{'logits':>9} {'W(x)':>9} {'bias':>9} {'residual':>9} {'seconds':>8} {'MB':>8}",
    _ENGINES: f"{'MB':>8} {'seconds':>8} {'peak MB':>8}",
    _SOAK: f"{'MB':>17} {'descriptors':>12} {'threads':>12} {'processes':>12}",
}
_TABLES: pytest.StashKey[dict[str, dict[str, str]]] = pytest.StashKey()
_FOLDER_TO_REMOVE: pytest.StashKey[str] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the full-size matrix")
    parser.addoption("--soak", action="store_true", help="also run the long runs of `make soak`")
    parser.addoption(
        "--installed",
        type=int,
        metavar="N",
        help="test the installed package without torch; fail unless N tests pass, and at least one per path argument",
    )


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "fast")
    tables: dict[str, dict[str, str]] = {title: {} for title in _COLUMNS}
    config.stash[_TABLES] = tables
    if BUNDLES not in os.environ:  # otherwise this is a worker process, or a folder of bundles was prepared
        os.environ[BUNDLES] = tempfile.mkdtemp(prefix="bcos-sdk-test-")
        config.stash[_FOLDER_TO_REMOVE] = os.environ[BUNDLES]
    if config.getoption("--installed") is not None:
        if HAVE_TORCH:
            raise pytest.UsageError("--installed is for an environment without torch")
        if "site-packages" not in Path(bcos_sdk.__file__).parts:
            raise pytest.UsageError(f"--installed, but bcos_sdk is imported from {bcos_sdk.__file__}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER_TO_REMOVE, None):
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[BUNDLES]


def pytest_report_header() -> str:
    return (
        f"bcos_sdk from {Path(bcos_sdk.__file__).parent}, {f'torch {torch.__version__}' if HAVE_TORCH else 'no torch'}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "full" in item.keywords and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="full-size matrix: run `make test-full`"))
        if "soak" in item.keywords and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="minutes of calls: run `make soak`"))
        if "needs_torch" in item.keywords and not HAVE_TORCH:
            item.add_marker(pytest.mark.skip(reason="needs torch: pip install 'bcos-sdk[export]'"))
        if "gpu" in item.keywords and (problem := probe_driver().problem):
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU, but {problem}: run `make test-gpu` on one"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):  # a worker process of pytest-xdist: its tables go to the main process
        config.workeroutput["tables"] = config.stash[_TABLES]
        return
    if session.exitstatus == pytest.ExitCode.OK and _shortfall(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the tables of a worker process that has ended; called by pytest-xdist."""
    for title, rows in getattr(node, "workeroutput", {}).get("tables", {}).items():
        node.config.stash[_TABLES][title].update(rows)


@pytest.fixture(autouse=True)
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `auto` open devices without a child process first, except in tests of it."""
    monkeypatch.setattr(_open, "crash_of", lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def one_process() -> Iterator[None]:
    """One child process for all exports: each export alone would start one."""
    if not HAVE_TORCH:
        yield
        return
    from bcos_sdk.exporters.verify import sessions_end

    with sessions_end():
        yield


@pytest.fixture
def report_parity(request: pytest.FixtureRequest) -> Callable[[str, float, float], None]:
    """Add a row to the parity table that is printed after the run."""

    def report(row: str, logits: float, weights: float) -> None:
        request.config.stash[_TABLES][_PARITY][row] = f"{logits:8.1e} {weights:8.1e}"

    return report


@pytest.fixture
def report_export(request: pytest.FixtureRequest) -> Callable[[str, Bundle, float], None]:
    """Add a row to the table of exports that is printed after the run."""

    def report(name: str, bundle: Bundle, seconds: float) -> None:
        worst = {
            figure: max(getattr(row, figure) for row in bundle.manifest.parity)
            for figure in ("logits", "weights", "bias", "residual")
        }
        size = sum(record.size for record in bundle.manifest.files.values()) / 1e6
        figures = " ".join(f"{value:9.1e}" for value in worst.values())
        request.config.stash[_TABLES][_EXPORTS][name] = f"{figures} {seconds:8.1f} {size:8.1f}"

    return report


@pytest.fixture
def report_engine(request: pytest.FixtureRequest) -> Callable[[str, int, float, int | None], None]:
    """Add a row to the table of engines that is printed after the run."""

    def report(name: str, size: int, seconds: float, peak_memory: int | None) -> None:
        figures = f"{size / 1e6:8.1f} {seconds:8.1f} {(peak_memory or 0) / 1e6:8.0f}"
        request.config.stash[_TABLES][_ENGINES][name] = figures

    return report


@pytest.fixture
def report_soak(request: pytest.FixtureRequest) -> Callable[[str, Soak], None]:
    """Add two rows to the table of long runs that is printed after the run."""

    def report(name: str, soak: Soak) -> None:
        for kind, usage in (("calls", soak.calls), ("clients", soak.cycles)):
            early, late = usage[2], usage[-1]
            memory = f"{early.memory / 1e6:8.1f} {late.memory / 1e6:8.1f}"
            counts = " ".join(
                f"{getattr(early, one):6} {getattr(late, one):5}" for one in ("descriptors", "threads", "children")
            )
            request.config.stash[_TABLES][_SOAK][f"{name}, {kind}"] = f"{memory} {counts}"

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, rows in config.stash[_TABLES].items():
        if rows:
            width = max(map(len, rows))
            terminalreporter.section(title)
            terminalreporter.line(f"{'':<{width}} {_COLUMNS[title]}")
            for name, figures in sorted(rows.items()):
                terminalreporter.line(f"{name:<{width}} {figures}")
    for problem in _shortfall(config):
        terminalreporter.line(f"FAILED: {problem}", red=True)


def _shortfall(config: pytest.Config) -> list[str]:
    """The reasons why a run with --installed tested too little, for example because most tests were skipped."""
    wanted = config.getoption("--installed")
    if wanted is None:
        return []
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    passed = [report.nodeid for report in reporter.stats.get("passed", [])]
    problems = [f"no test of {path} passed" for path in config.args if not any(one.startswith(path) for one in passed)]
    if len(passed) < wanted:
        problems.append(f"{len(passed)} tests passed, expected at least {wanted}")
    return problems


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = getattr(request, "param", PLACES[0])
    with small_client(place, tmp_path_factory.mktemp("server") / "models") as made:
        yield made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test the promises of a client, those in tests/client, wherever its model can be."""
    in_folder = metafunc.definition.path.parent.name == "client"
    if in_folder and "client" in metafunc.fixturenames and not hasattr(metafunc.module, "client"):
        metafunc.parametrize("client", PLACES, indirect=True, scope="module")


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
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two images for `bcos-sdk predict`, one in a subfolder. BCOS_SDK_MODEL names the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BCOS_SDK_MODEL", str(small_bundle().path))
    folder = tmp_path / "images"
    (folder / "below").mkdir(parents=True)
    for name, pixels in zip(("a.png", "below/b.jpg"), random_pixels(2, size=(50, 70)), strict=True):
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    backend = SlowBackend()
    yield backend
    backend.go.set()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    if HAVE_TORCH:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _separate_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a store and a key of the test run, so that no test reads or changes those of the user, or registries."""
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path_factory.getbasetemp() / "store"))
    monkeypatch.setenv("BCOS_SDK_CONFIG", str(tmp_path_factory.getbasetemp() / "config"))
    monkeypatch.delenv("BCOS_SDK_REGISTRY", raising=False)
    monkeypatch.delenv("BCOS_SDK_TRUSTED_OWNERS", raising=False)
