"""Chromium, in which tests open pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextmanager
def open_browser(*arguments: str) -> Iterator[Any]:
    """A browser of playwright, with these arguments of Chromium. The test is skipped if there is none."""
    if CHROMIUM is None:
        pytest.skip("no browser: on Debian, apt install chromium runs these tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, *arguments])
        yield browser
        browser.close()
