"""Options and reports of the test run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

_PARITY: pytest.StashKey[dict[str, tuple[float, float]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the full-size matrix")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PARITY] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "full" in item.keywords and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="full-size matrix: run `make test-full`"))
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and driver"))


@pytest.fixture
def report_parity(request: pytest.FixtureRequest) -> Callable[[str, float, float], None]:
    """Add a row to the parity table that ends the run."""

    def report(row: str, logits: float, weights: float) -> None:
        request.config.stash[_PARITY][row] = (logits, weights)

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[_PARITY]
    if rows:
        terminalreporter.section("parity with the reference package, float64, relative error")
        terminalreporter.line(f"{'model':<40} {'logits':>8} {'W(x)':>8}")
        for row, (logits, weights) in rows.items():
            terminalreporter.line(f"{row:<40} {logits:8.1e} {weights:8.1e}")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
