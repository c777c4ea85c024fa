"""The page at `/` in Chromium: photographs, classes, pictures, keyboard, phone width, token, no other network."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from support.browsers import open_browser
from support.serving import Server, fake, serving

from bcos_sdk import Client
from bcos_sdk.bundle import BUILTIN_MODEL

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SHOWN = "#result:not([hidden], [aria-busy])"
WAIT = 120_000
"""Milliseconds: far above what a busy machine needs."""


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


ODD = ("1", "0", "cat vs dog", "cat", "dog", "5 vs 4", "wolf", "2")
"""Labels that look like indices, or like comparisons of others."""


def test_every_class_can_be_chosen_and_the_chosen_one_is_explained() -> None:
    with serving(fake(labels=ODD, probability="sigmoid")) as server, open_browser() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.set_default_timeout(WAIT)
        page.goto(f"http://127.0.0.1:{server.port}")
        page.wait_for_selector("#samples img")

        def explained(name: str) -> str:
            page.wait_for_selector(f"#question:text-is('{name}')")
            return str(page.inner_text("#terms tr:last-child td:first-child")).removeprefix("Score (logit) of ")

        page.click("#samples button")
        page.wait_for_selector(SHOWN)
        listed = page.locator("#classes button").count()
        first = page.inner_text("#classes [aria-pressed=true] span:first-child")
        assert listed == 5
        assert explained(f"What speaks for {first}?") == first
        for name in ODD:
            if name == first:
                continue
            page.fill("#wanted", name)
            page.keyboard.press("Enter")
            assert explained(f"What speaks for {first} and not for {name}?") == f"{first} vs {name}"
            against = page.locator("#classes [data-role=against]")
            assert against.inner_text().split("\n")[0] == f"against {name}"
            assert "%" in against.inner_text(), "its probability is shown, also if it is not among the likeliest"
            assert page.inner_text("#classes [data-role=for] .role") == "for"
            page.click("#classes [data-role=for]")
            assert explained(f"What speaks for {name}?") == name
            first = name
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert "do not add up to 100 %" in page.inner_text("#independent")
        shot(page, "search-phone")

        before = page.inner_text("#question")
        for wanted, message in (("unicorn", "There is no class “unicorn”"), ("o", "Several classes contain “o”")):
            page.fill("#wanted", wanted)
            page.click("#search button")
            page.wait_for_selector(f"#status.bad:has-text('{message}')")
        refusal = {"error": "broken", "code": "internal_error", "retryable": False}
        page.route("**/explain?*", lambda route: route.fulfill(status=500, json=refusal))
        page.fill("#wanted", "wolf")
        page.keyboard.press("Enter")
        page.wait_for_selector("#status.bad:text-is('broken')")
        assert page.inner_text("#question") == before, "a failed call leaves the page as it was"
        page.unroute("**/explain?*")
        page.locator("#classes [aria-pressed=false]").first.click()
        page.wait_for_selector("#question:has-text('and not for')")
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b""})
        page.wait_for_selector("#status.bad:has-text('This file is empty')")
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"text"})
        page.wait_for_selector("#status.bad:has-text('cannot be read as a picture')")


def test_the_page_waits_until_the_model_is_ready() -> None:
    may_open = threading.Event()

    def slowly(model: str, **given: Any) -> Client:
        may_open.wait()
        return fake()(model, **given)

    with open_browser() as browser, serving(slowly, wait=False) as server:  # without a browser, it is not started
        try:
            page = browser.new_page()
            page.set_default_timeout(WAIT)
            page.goto(f"http://127.0.0.1:{server.port}")
            page.wait_for_selector("#status:has-text('The model is starting')")
        finally:
            may_open.set()
        page.wait_for_selector("#samples img")
        assert page.inner_text("#status") == ""


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
