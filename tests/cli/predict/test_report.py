"""The report page in Chromium: what it shows, what its controls do, how it prints, and that it fetches nothing."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from PIL import Image
from support.browsers import open_browser
from support.bundles import LABELS, random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.cli import main
from bcos_sdk.cli.predict._report import write_report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


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


NAMES = ("image0.png", "image1.png", "image2.png", "image3.png", "<img src=x onerror=alert(1)>&amp;.png", "\u202ex.png")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven images: one has HTML in its name, one a change of the writing direction, one cannot be read."""
    folder = tmp_path_factory.mktemp("report") / "images"
    folder.mkdir()
    for name, pixels in zip(NAMES, random_pixels(len(NAMES), size=(60, 90)), strict=True):
        Image.fromarray(pixels).save(folder / name)
    (folder / "broken.jpg").write_text("text")
    return folder


def make_report(images: Path, name: str, *options: str, model: str = "sigmoid") -> Path:
    out = images.parent / name
    arguments = ["predict", str(images), "--report", "--out", str(out), "--model", str(small_bundle(model).path)]
    result = CliRunner().invoke(main, [*arguments, *options])
    assert result.exit_code == 5, result.stderr
    return out / "report.html"


@pytest.fixture(scope="module")
def report(images: Path) -> Path:
    """Without targets: the most likely class, the second, and their difference."""
    return make_report(images, "top")


TARGETS = ("fox", "lynx", "lynx vs fox")


@pytest.fixture(scope="module")
def targets_report(images: Path) -> Path:
    return make_report(images, "targets", *(part for target in TARGETS for part in ("--target", target)))


def names(page: Any) -> list[str]:
    return list(page.locator(".card .name").all_text_contents())


def shares(page: Any) -> list[float]:
    texts = page.locator(".predicted:not(.other) .figure").all_text_contents()
    return [float(text.strip("<>% ")) for text in texts]


def card_of(page: Any, name: str) -> Any:
    return page.locator(".card").filter(has=page.locator(".name", has_text=name))


def pixels_of(image: Any) -> npt.NDArray[np.float64]:
    contents = base64.b64decode(image.get_attribute("src").split(",")[1])
    return np.asarray(Image.open(io.BytesIO(contents)).convert("RGB").resize((280, 200)), float)


def press(page: Any, title: str) -> None:
    page.locator(f".group button[title='{title}']").click()


def pressed(page: Any) -> list[str]:
    return [text.rstrip("123456789 ") for text in page.locator(".group [aria-pressed=true]").all_inner_texts()]


def test_every_image_is_shown_with_class_and_completeness(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator(".card").count() == 6
    assert "<img src=x onerror=alert(1)>&amp;.png" in names(page), "names are shown as text"
    assert "\\u202ex.png" in names(page), "and changes of the writing direction as codes"
    assert page.locator(".card img").count() == 6
    complete = page.locator(".verdict:not(.bad)")
    assert complete.count() == 6
    assert complete.locator("span").all_inner_texts()[0] == "✓ explanation complete"
    assert complete.locator("span").all_inner_texts()[1].startswith("largest residual ")
    meaning = "this says nothing about whether the class is right"
    assert meaning in str(complete.first.get_attribute("title")).lower()
    guide = page.locator(".guide").inner_text()
    assert meaning in guide
    assert "Complete is not correct." in guide
    assert page.locator(".predicted .class").first.inner_text() in LABELS
    assert page.locator("#count").inner_text() == "6 of 6 images, 1 failed"
    decoded = "image => image.decode().then(() => image.naturalWidth)"
    assert page.locator(".card img").first.evaluate(decoded) >= 224


def test_failed_images_are_listed_with_their_reason(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    failed = page.locator("#failed")
    assert failed.locator("h2").inner_text() == "1 image has no result"
    text = failed.locator("li").inner_text()
    assert text.startswith("broken.jpg: ")
    assert "is not an image of an allowed format [image_unreadable]" in text
    assert "Allowed formats are" in text


@pytest.mark.parametrize("target", TARGETS)
def test_a_picture_is_of_the_class_that_is_named_as_drawn(
    page: Any, images: Path, targets_report: Path, target: str
) -> None:
    """Compare the shown picture with the overlays of all targets, and the text with what the model predicts."""
    page.goto(targets_report.as_uri())
    with Client(small_bundle().path, device="cpu") as client:
        (result,) = client.explain(images / "image1.png", targets=list(TARGETS))
    overlays = {one.target.label: np.asarray(one.overlay(), float) for one in result.explanations}
    predicted = result.prediction.classes[0]
    assert predicted.label not in TARGETS, "the drawn class is not the predicted one"
    press(page, target)
    card = card_of(page, "image1.png")
    shown = pixels_of(card.locator("img"))
    distances = {
        label: np.abs(np.asarray(Image.fromarray(drawn.astype(np.uint8)).resize((280, 200)), float) - shown).mean()
        for label, drawn in overlays.items()
    }
    assert min(distances, key=lambda label: distances[label]) == target
    assert card.locator(".drawn").inner_text().split("\n")[:2] == ["drawn", target]
    assert predicted.probability is not None
    share = f"{100 * predicted.probability:.1f} %"
    assert card.locator(".predicted").first.inner_text().split("\n") == ["predicted", predicted.label, share]
    alt = str(card.locator("img").get_attribute("alt"))
    assert alt.startswith(f"image1.png: overlay, drawn: {target}, ")
    assert alt.endswith(f"· predicted: {predicted.label}, {share}")


def test_all_targets_are_in_the_details_as_given(page: Any, targets_report: Path) -> None:
    page.goto(targets_report.as_uri())
    assert [text.split(" 1")[0] for text in page.locator("#roles button").all_inner_texts()] == [
        f"{target} {number}" for number, target in enumerate(TARGETS, 5)
    ]
    press(page, "lynx")
    page.locator(".picture").first.click()
    headings = page.locator("dialog h3").all_inner_texts()
    assert [heading.split(",")[0] for heading in headings] == ["drawn: lynx", "drawn: fox", "drawn: lynx vs fox"]
    assert all("· predicted: " in heading for heading in headings)
    captions = page.locator("dialog figcaption").all_inner_texts()
    for target in TARGETS:
        assert {f"{view}, drawn: {target}" for view in ("Overlay", "Heat map", "B-cos colours")} <= set(captions)
    first_cells = page.locator("dialog td:first-child").all_inner_texts()
    assert first_cells == list(TARGETS), "no difference of a difference"


def test_views_change_every_picture(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    first = page.locator(".card img").first
    seen = {first.get_attribute("src")}
    titles = [text.rstrip("123456789 ") for text in page.locator(".group button").all_inner_texts()]
    assert titles == [
        *("Overlay", "Image", "Heat map", "B-cos colours"),
        *("Most likely class", "Second class", "Difference"),
    ]
    assert pressed(page) == ["Overlay", "Most likely class"]
    for title in titles[1:4]:
        press(page, title)
        assert pressed(page) == [title, "Most likely class"]
        seen.add(first.get_attribute("src"))
    for key, title in (("1", "Most likely class"), ("6", "Second class"), ("7", "Difference")):
        page.keyboard.press(key)
        assert pressed(page) == ["Overlay", title]
        seen.add(first.get_attribute("src"))
    assert len(seen) == 6
    drawn = page.locator(".drawn .class").first.inner_text()
    top, second = page.locator(".card").first.locator(".predicted .class").all_inner_texts()
    assert drawn == f"{top} vs {second}"
    page.keyboard.press("2")
    assert page.locator(".drawn .class").first.inner_text() == "nothing, image only"


def test_search_filters_and_orders_say_which_class_they_mean(page: Any, targets_report: Path) -> None:
    page.goto(targets_report.as_uri())
    page.keyboard.press("/")
    page.keyboard.type("image2")
    assert names(page) == ["image2.png"]
    page.fill("#search", "")
    page.select_option("#sort", label="predicted: highest probability first")
    assert shares(page) == sorted(shares(page), reverse=True)
    page.select_option("#sort", label="predicted: lowest probability first")
    assert shares(page) == sorted(shares(page))
    assert len(shares(page)) == 6
    label = page.locator(".predicted:not(.other) .class").first.text_content()
    page.select_option("#label", label=f"predicted: {label}")
    assert set(page.locator(".predicted:not(.other) .class").all_text_contents()) == {label}
    page.select_option("#label", "")
    press(page, "lynx vs fox")
    page.select_option("#sort", label="drawn: highest logit first")
    texts = page.locator(".drawn .figure").all_text_contents()
    logits = [float(text.removeprefix("logit ").replace("−", "-")) for text in texts]
    assert logits == sorted(logits, reverse=True)


def test_details_show_all_views_and_the_certificate(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    card = page.locator(".card img").first.bounding_box()
    page.locator(".picture").first.click()
    dialog = page.locator("dialog[open]")
    assert dialog.get_attribute("aria-labelledby") == "details-title"
    assert dialog.locator("#details-title").inner_text() == names(page)[0]
    assert dialog.locator("figure").count() == 10, "the image, and three views of three classes"
    assert dialog.locator("figure img").first.bounding_box()["width"] > 1.2 * card["width"], "larger than on the card"
    crop = "The original has 90 × 60 pixels. The network received columns 19 to 71 and rows 11 to 49, as 28 × 20 pixels"
    assert crop in dialog.inner_text()
    rows = [row.split("\t") for row in dialog.locator("tr").all_inner_texts()]
    assert [cell.strip() for cell in rows[0]] == [
        *("drawn", "pixels", "head.bias", "position", "sum", "logit", "residual", "tolerance", "complete")
    ]
    assert len(rows) == 4, "the first class, the second, and their difference"
    for _, pixels, head, position, total, logit, *_, complete in rows[1:]:
        assert float(pixels) + float(head) + float(position) == pytest.approx(float(total), abs=2e-4)
        assert float(total) == pytest.approx(float(logit), abs=2e-4)
        assert complete.strip() == "✓"
    dialog.get_by_role("button", name="Close").click()
    assert page.locator("dialog[open]").count() == 0


def test_details_step_through_the_images_and_close(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    page.select_option("#sort", "sure")
    order = names(page)
    title = page.locator("#details-title")
    page.locator(".picture").first.click()
    assert page.get_by_role("button", name="Previous").is_disabled()
    page.keyboard.press("ArrowLeft")
    assert title.inner_text() == order[0]
    page.keyboard.press("ArrowRight")
    assert title.inner_text() == order[1]
    page.get_by_role("button", name="Next").click()
    assert title.inner_text() == order[2]
    page.get_by_role("button", name="Previous").click()
    assert title.inner_text() == order[1]
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    # The page moves the focus to the card when it has handled the event `close`.
    page.wait_for_function("name => document.activeElement.getAttribute('aria-label')?.includes(name)", arg=order[1])
    page.keyboard.press("Enter")
    page.mouse.click(700, 200)
    assert page.locator("dialog[open]").count() == 1, "a click inside does not close"
    page.mouse.click(5, 400)
    assert page.locator("dialog[open]").count() == 0, "a click outside does"


def test_keys_are_shown(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator("#keys kbd").all_inner_texts() == ["1–7", "←", "→", "Esc", "/"]


@pytest.mark.parametrize(("probability", "explained"), [("sigmoid", True), ("softmax", False)])
def test_sigmoids_are_explained(page: Any, images: Path, probability: str, explained: bool) -> None:
    page.goto(make_report(images, probability, model=probability).as_uri())
    assert page.get_by_text("the probabilities of an image do not add up to 100 %").is_visible() == explained


@pytest.mark.parametrize("details", [False, True])
def test_a_phone_shows_pictures_first_and_does_not_scroll_sideways(
    browser: Any, targets_report: Path, details: bool
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(targets_report.as_uri())
    wide = "[document.documentElement, document.querySelector('dialog')].some(one => one.scrollWidth > one.clientWidth)"
    assert page.locator("header").bounding_box()["height"] < 100
    if details:
        page.locator(".picture").first.click()
        assert page.locator("figure img").first.bounding_box()["width"] > 300
    else:
        page.locator("#more").click()
        assert page.locator("#search").is_visible()
        page.evaluate("window.scrollTo(0, 3000)")
        assert page.locator("#search").bounding_box()["y"] < 0, "the controls scroll away"
    assert not page.evaluate(wide)
    page.close()


def many_entries(count: int, side: int = 64) -> Iterator[dict[str, Any]]:
    """Entries with pictures that all differ."""
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC).save(file, "WEBP", quality=80)
        picture = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
        completeness = {"sum": 1.5, "logit": 1.5, "relative_residual": 1e-7, "tolerance": 1e-5, "passed": True}
        drawn = {
            "role": "Most likely class",
            "target": {"label": "cat", "logit": 1.5, "probability": 0.8},
            "bias": {"head": 0.5},
            "pixels": 1.0,
            "completeness": completeness,
            "views": dict.fromkeys(("overlay", "heatmap", "rgba"), picture),
        }
        yield {
            "name": f"{number:04}.png",
            "source": f"images/{number:04}.png",
            "probability": "softmax",
            "predicted": [{"label": f"class {number % 10}", "probability": number / count}],
            "notes": [],
            "geometry": None,
            "input": [28, 28],
            "image": picture,
            "drawn": [drawn],
        }


def test_every_picture_is_printed(page: Any, tmp_path: Path) -> None:
    """The page prints pictures that were never scrolled into view: each is an image of the PDF."""
    write_report(tmp_path / "report.html", "many", many_entries(60))
    page.goto((tmp_path / "report.html").as_uri())
    page.emulate_media(media="print")
    loaded = (
        "[...document.querySelectorAll('.card img')].filter(image => image.complete && image.naturalWidth > 1).length"
    )
    assert page.evaluate(loaded) == 60
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Subtype /Image") >= 60
    assert not page.locator("#search").is_visible()
    assert page.locator(".guide").is_visible()


def test_no_card_is_broken_across_printed_pages(page: Any, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", "many", many_entries(9))
    page.goto((tmp_path / "report.html").as_uri())
    page.emulate_media(media="print")
    style = "getComputedStyle(document.querySelector('.card'))"
    assert page.evaluate(f"[{style}.breakInside, {style}.contentVisibility]") == ["avoid", "visible"]


def test_a_thousand_images(page: Any, tmp_path: Path) -> None:
    """All images have a card, and only cards near the visible part are laid out and painted."""
    write_report(tmp_path / "report.html", "a thousand", many_entries(1000))
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".card").count() == 1000
    assert page.evaluate("getComputedStyle(document.querySelector('.card')).contentVisibility") == "auto"
    page.fill("#search", "0999")
    assert names(page) == ["0999.png"]
    page.fill("#search", "class 7")
    assert len(names(page)) == 100


def test_the_data_cannot_end_its_script_element(report: Path) -> None:
    text = report.read_text("utf-8")
    data = text.split('id="entries">')[1].split("</script>")[0]
    assert "<" not in data
    assert len(json.loads(data)) == 7
    assert "http" not in text.replace("https://", "http://").replace("http-equiv", "")


def test_the_title_cannot_change_the_page(page: Any, tmp_path: Path) -> None:
    title = "{{entries}}{{policy}}</title><script>document.title = 'changed'</script>"
    write_report(tmp_path / "report.html", title, many_entries(1))
    page.goto((tmp_path / "report.html").as_uri())
    assert page.title() == title
    assert page.locator(".card").count() == 1


def test_the_page_may_run_only_its_own_script(browser: Any, report: Path) -> None:
    """The policy of the page stops scripts, handlers, styles and pictures that are not its own."""
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    page.goto(report.as_uri())
    assert refused == []
    inserted = (
        "<img src=x onerror=\"document.title='run'\"><style>body { color: red }</style><img src=http://127.0.0.1:9/a>"
    )
    page.evaluate("html => document.body.insertAdjacentHTML('beforeend', html)", inserted)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")
    page.wait_for_timeout(50)
    assert "images" in page.title()
    assert len(refused) >= 3
    page.close()
