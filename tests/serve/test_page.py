"""The page at `/` in Chromium: photographs, classes, pictures, keyboard, phone width, token, no other network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from support.browsers import open_browser
from support.serving import Server, serving

from bcos_sdk import Client
from bcos_sdk.bundle import BUILTIN_MODEL

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    def open_client(model: str, **given: Any) -> Client:
        return Client(BUILTIN_MODEL, device="cpu", threads=1, **given)

    with serving(open_client, samples=str(SAMPLES)) as running:
        yield running


def shot(page: Any, name: str) -> None:
    """Keep a picture of the page for people, if they ask for it."""
    if folder := os.environ.get("BCOS_SDK_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def drawing(page: Any) -> str:
    found: str = page.evaluate("document.getElementById('drawing').toDataURL()")
    return found


def test_a_visit(server: Server) -> None:
    address = f"http://127.0.0.1:{server.port}"
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        asked: list[str] = []
        faults: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(address)
        page.wait_for_selector("#samples img")
        assert page.locator("#samples button").count() == len(list(SAMPLES.glob("*.jpg")))

        page.set_input_files("#file", SAMPLES / "cat-1.jpg")
        page.wait_for_selector("#result:not([hidden])")
        assert page.inner_text("#question") == "What speaks for cat?"
        assert page.locator("#classes [aria-pressed=true]").count() == 1
        assert page.inner_text("#verdict").startswith("Yes.")
        assert page.inner_text("#terms tr:last-child td:first-child") == "Score (logit) of cat"
        rows = [float(text) for text in page.locator("#terms td:last-child").all_inner_texts()]
        assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=0.003), "the shown terms add up to the shown score"
        shot(page, "wide")

        page.locator("#classes button", has_text="dog").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#question:has-text('not for dog')")
        assert page.evaluate("document.activeElement.dataset.index") == "5", "the keyboard stays where it was"
        shot(page, "contrast")

        overlay = drawing(page)
        for kind in ("rgba", "heatmap"):
            page.click(f"[data-kind={kind}]")
            assert drawing(page) != overlay
            shot(page, kind)
        page.locator("#opacity").fill("30")
        assert page.evaluate("document.getElementById('drawing').style.opacity") == "0.3"

        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        shot(page, "phone")
        page.click("#samples button[title='ship.jpg']")
        page.wait_for_selector("#question:text-is('What speaks for ship?')")
        assert not faults
        assert all(url.startswith((address, "blob:", "data:")) for url in asked)

        page.set_input_files(
            "#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n no picture"}
        )
        page.wait_for_selector("#status.bad")


def test_the_page_asks_for_a_token() -> None:
    with serving(token="abc", samples=str(SAMPLES)) as server, open_browser() as browser:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}")
        page.wait_for_selector("#token-form:not([hidden])")
        page.fill("#token", "abc")
        page.keyboard.press("Enter")
        page.wait_for_selector("#samples img")
        assert page.locator("#token-form").is_hidden()
        assert server.get("/page/info").status == 401


def test_only_files_of_the_page_are_sent(server: Server) -> None:
    for path in (
        "/page/__init__.py",
        "/page/..%2f_app.py",
        "/page/samples/..%2fLICENSES.md",
        "/page/samples/LICENSES.md",
    ):
        assert server.get(path).status == 404
    policy = server.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
