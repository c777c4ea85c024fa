"""The report page in Chromium: what it shows, what its controls do, and that it fetches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support.bundles import LABELS, random_pixels, small_bundle

from bcos_sdk.cli import main
from bcos_sdk.cli._report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no browser: on Debian, apt install chromium runs these tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test if a script fails or if something is fetched."""
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
    yield page
    page.close()
    assert problems == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images: one has HTML in its name, one cannot be read."""
    folder = tmp_path_factory.mktemp("report")
    images = folder / "images"
    images.mkdir()
    for number, pixels in enumerate(random_pixels(4, size=(60, 90))):
        Image.fromarray(pixels).save(images / f"image{number}.png")
    shutil.copy(images / "image0.png", images / "<img src=x onerror=alert(1)>&amp;.png")
    (images / "broken.jpg").write_text("text")
    arguments = ["predict", str(images), "--report", "--out", str(folder / "out"), "--model", str(small_bundle().path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 5, result.stderr
    return folder / "out" / "report.html"


def names(page: Any) -> list[str]:
    return list(page.locator(".card .name").all_text_contents())


def shares(page: Any) -> list[float]:
    texts = page.locator(".class:not(.other) span:last-child").all_text_contents()
    return [float(text.removesuffix(" %")) for text in texts]


def test_every_image_is_shown_with_class_and_completeness(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator(".card").count() == 6
    assert "<img src=x onerror=alert(1)>&amp;.png" in names(page), "names are shown as text"
    assert page.locator(".card img").count() == 5
    complete = page.locator(".verdict:not(.bad)")
    assert complete.count() == 5
    assert complete.locator("span").all_inner_texts()[0] == "✓ explanation complete"
    assert complete.locator("span").all_inner_texts()[1].startswith("residual ")
    meaning = "this says nothing about whether the class is right"
    assert meaning in str(complete.first.get_attribute("title")).lower()
    assert meaning in page.locator(".legend").inner_text()
    assert "image_unreadable" in page.locator(".card .error").inner_text()
    assert page.locator(".class >> nth=0").inner_text().split("\n")[0] in LABELS
    assert page.locator("#count").inner_text() == "6 of 6 images"
    decoded = "image => image.decode().then(() => image.naturalWidth)"
    assert page.locator(".card img").first.evaluate(decoded) >= 100


def test_views_change_every_picture(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    first = page.locator(".card img").first
    page.wait_for_function("document.querySelector('.card img').src.startsWith('data:image')")
    seen = {first.get_attribute("src")}
    titles = page.locator("#views button").all_inner_texts()
    assert titles == ["Overlay", "Image", "Explanation", "Heat map", "Second class", "Difference"]
    for title in titles[1:]:
        page.get_by_role("button", name=title, exact=True).click()
        assert page.locator("#views [aria-pressed=true]").inner_text() == title
        seen.add(first.get_attribute("src"))
    assert len(seen) == 6
    page.keyboard.press("1")
    assert page.locator("#views [aria-pressed=true]").inner_text() == "Overlay"


def test_search_filters_and_orders(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    page.fill("#search", "image2")
    assert names(page) == ["image2.png"]
    page.fill("#search", "")
    page.select_option("#verdict", "bad")
    assert names(page) == ["broken.jpg"]
    page.select_option("#verdict", "good")
    page.select_option("#sort", "sure")
    assert shares(page) == sorted(shares(page), reverse=True)
    page.select_option("#sort", "unsure")
    assert shares(page) == sorted(shares(page))
    assert len(shares(page)) == 5
    label = page.locator(".class:not(.other) span:first-child").first.text_content()
    page.select_option("#label", label)
    assert set(page.locator(".class:not(.other) span:first-child").all_text_contents()) == {label}


def test_details_show_all_views_and_the_certificate(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    page.locator(".picture").first.click()
    dialog = page.locator("dialog[open]")
    assert dialog.locator("figure").count() == 6
    rows = [row.split("\t") for row in dialog.locator("tr").all_inner_texts()]
    assert [cell.strip() for cell in rows[0]] == [
        *("target", "pixels", "head.bias", "position", "sum", "logit", "residual", "tolerance", "complete")
    ]
    assert len(rows) == 4, "the first class, the second, and their difference"
    for _, pixels, head, position, total, logit, *_, complete in rows[1:]:
        assert float(pixels) + float(head) + float(position) == pytest.approx(float(total), abs=2e-4)
        assert float(total) == pytest.approx(float(logit), abs=2e-4)
        assert complete.strip() == "✓"
    dialog.get_by_role("button", name="Close").click()
    assert page.locator("dialog[open]").count() == 0


def test_a_thousand_images(page: Any, tmp_path: Path) -> None:
    """All images have a card, but only pictures near the visible part are in memory."""
    import base64
    import io

    def picture(seed: int) -> str:
        file = io.BytesIO()
        noise = np.random.default_rng(seed).integers(0, 256, (28, 28, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((224, 224), Image.Resampling.BICUBIC).save(file, "WEBP", quality=80)
        return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"

    figures = {
        "target": {"label": "cat"},
        "bias": {"head": 0.5},
        "pixels": 1.0,
        "completeness": {
            "sum": 1.5,
            "logit": 1.5,
            "relative_residual": 1e-7,
            "tolerance": 1e-5,
            "passed": True,
        },
    }
    shared = [picture(seed) for seed in range(20)]
    entries = (
        {
            "name": f"{number:04}.png",
            "source": f"images/{number:04}.png",
            "classes": [{"label": f"class {number % 10}", "probability": number / 1000}],
            "views": {view: shared[(number + place) % 20] for place, view in enumerate(("image", "overlay", "rgba"))},
            "explanations": [figures],
        }
        for number in range(1000)
    )
    write_report(tmp_path / "report.html", "a thousand", entries)
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".card").count() == 1000
    page.wait_for_function("document.querySelector('.card img').src.startsWith('data:image')")
    held = "[...document.querySelectorAll('.card img')].filter(image => image.src.startsWith('data:image')).length"
    assert 0 < page.evaluate(held) < 100
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function("[...document.querySelectorAll('.card img')].at(-1).src.startsWith('data:image')")
    page.wait_for_function("!document.querySelector('.card img').src.startsWith('data:image')")
    assert page.evaluate(held) < 100


def test_the_data_cannot_end_its_script_element(report: Path) -> None:
    text = report.read_text("utf-8")
    data = text.split('id="entries">')[1].split("</script>")[0]
    assert "<" not in data
    assert "http" not in text.replace("https://", "http://").replace("http-equiv", "")
