"""Hostile names and labels in the report page, in a real browser, and in the HTML of notebooks: no script runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attacks import HELD, attack
from support.browsers import open_browser
from support.bundles import LABELS, copy_of, edit_manifest, random_pixels, small_bundle
from support.predicting import add_image
from support.terminals import EFFECTS, output_of

from bcos_sdk import Client, Failure

PAYLOADS = (
    "<img src=x onerror=pwned()>",
    "</script><script>pwned()</script>",
    "'\"><svg onload=pwned()>",
    "javascript:pwned()",
    "data:text/html,<script>pwned()</script>",
    "{{entries}}",
    "{{title}}<!--",
    "__proto__",
    "\u202egnp.exe\u2066\x1b[2J",
)
TEXT = " ".join(PAYLOADS)
WATCH = """
window.ran = [];
window.pwned = () => window.ran.push("pwned");
window.blocked = [];
document.addEventListener("securitypolicyviolation", event => window.blocked.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of hostile images by a hostile model. One image cannot be read."""
    folder = tmp_path_factory.mktemp("pages")
    model, images = copy_of(small_bundle(), folder / "model"), folder / "images"

    def change(manifest: dict[str, Any]) -> None:
        manifest["labels"] = [f"{TEXT}{label}" for label in LABELS]
        manifest["model"]["name"] = TEXT

    edit_manifest(model, change)
    for number, payload in enumerate(PAYLOADS):
        add_image(images / f"{payload.replace('/', '⁄')}{number}.png")
    (images / f"{PAYLOADS[0]}broken.png").write_text(TEXT, "utf-8")
    output_of(["predict", images, "--model", model, "--device", "cpu", "--report", "--out", folder / "out"])
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The report. `problems` has errors, messages of the console, requests and new windows."""
    page = browser.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("request", lambda request: page.problems.append(request.url) if not is_own(request.url, report) else None)
    page.on("popup", lambda popup: page.problems.append(popup.url))
    page.add_init_script(WATCH)
    page.goto(report.as_uri())
    yield page
    page.close()


def is_own(url: str, report: Path) -> bool:
    return url == report.as_uri() or url.startswith("data:image/webp;base64,")


@attack("output", "scripts in file names, labels and the model's name, in the report", before=HELD)
def test_no_script_runs_and_nothing_violates_the_policy(page: Any) -> None:
    """Everything is used once: views, search, order, details."""
    for button in page.locator("#views button, #roles button").all():
        button.click()
    for select in ("#sort", "#label"):
        for value in page.locator(f"{select} option").evaluate_all("options => options.map(option => option.value)"):
            page.select_option(select, value)
        page.select_option(select, "")
    page.fill("#search", "<img")
    page.fill("#search", "")
    for number in range(len(PAYLOADS)):
        page.locator(".picture").nth(number).click()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
    assert page.locator(".card").count() == len(PAYLOADS)
    assert page.locator("#failed li").count() == 1
    assert page.evaluate("[window.ran, window.blocked]") == [[], []]
    assert page.problems == []


@attack("output", "changes of the writing direction in labels, in the report", before="labels turned the text round")
def test_the_page_shows_no_control_character(page: Any) -> None:
    page.locator(".picture").first.click()
    shown = page.evaluate("document.documentElement.innerText + document.title")
    titles = page.locator("[title], [alt], [aria-label]").evaluate_all(
        "all => all.map(one => [one.title, one.alt, one.ariaLabel].join(' ')).join(' ')"
    )
    assert "\\u202egnp.exe\\u2066\\x1b[2J" in shown
    assert not (EFFECTS - {"\t"}) & set(shown + titles)


def element(tag: str, **properties: str) -> str:
    """The script that adds an element to the page."""
    return f"document.body.append(Object.assign(document.createElement({tag!r}), {json.dumps(properties)}))"


SERVER = "http://127.0.0.1:9/x"
INJECTIONS = {
    "an inline script": element("script", textContent="pwned()"),
    "a script of another file": element("script", src="data:,pwned()"),
    "an event handler": element("div", innerHTML="<img src=data:, onerror=pwned()>"),
    "a link with a script": element("a", href="javascript:pwned()", id="link") + "; link.click()",
    "text run as a script": "setTimeout(() => eval('pwned()'))",
    "a frame": element("iframe", src="data:text/html,<script>parent.pwned()</script>"),
    "a picture of a server": element("img", src=SERVER),
    "a request": f"fetch({SERVER!r}).catch(() => 0)",
    "a form": element("form", action=SERVER, id="form") + "; form.submit()",
    "another base": element("base", href=SERVER),
    "a style": element("style", textContent="* { display: none }"),
}


@pytest.mark.parametrize(
    "injection",
    [
        pytest.param(code, id=name, marks=attack("output", f"{name}, if it got into the report", before=HELD))
        for name, code in INJECTIONS.items()
    ],
)
def test_the_policy_blocks_what_gets_in(page: Any, injection: str) -> None:
    page.evaluate(f"() => {{ {injection} }}")
    end = time.monotonic() + 60
    while not page.evaluate("window.blocked") and time.monotonic() < end:
        page.wait_for_timeout(20)
    assert page.evaluate("window.blocked")
    assert page.evaluate("window.ran") == []


@attack("output", "the end of the data in a name, in the report", before=HELD)
def test_a_name_does_not_end_the_data(report: Path) -> None:
    text = report.read_text("utf-8")
    data = text[text.index('id="entries">') : text.rindex("<script>")]
    assert "\\u003c/script>" in data
    assert data.count("<") == data.count("</script>") == 1


@attack("output", "scripts in names and labels, in a notebook", before=HELD)
def test_notebooks(browser: Any) -> None:
    """A notebook has no policy. The HTML itself must have no script."""
    with Client(small_bundle().path, device="cpu") as client:
        (result,) = client.explain(random_pixels(1), targets=[["lynx"]], weights=True)
    target = result.explanations[0].target.model_copy(update={"label": TEXT})
    explanation = result.explanations[0].model_copy(update={"target": target, "source": TEXT, "model": TEXT})
    classes = tuple(score.model_copy(update={"label": TEXT}) for score in result.prediction.classes)
    prediction = result.prediction.model_copy(
        update={"classes": classes, "source": TEXT, "model": TEXT, "notes": (TEXT,)}
    )
    explained = result.model_copy(update={"prediction": prediction, "explanations": (explanation,), "source": TEXT})
    failure = Failure(source=TEXT, code=TEXT, message=TEXT, hint=TEXT, retryable=False)
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(WATCH)
    page.goto("about:blank")
    page.set_content("".join(one._repr_html_() for one in (explained, explanation, prediction, failure)))
    page.wait_for_load_state("load")
    assert page.evaluate("window.ran") == []
    assert page.locator("script, svg, iframe, a, [onerror], [onload]").count() == 0
    assert [url for url in requests if not url.startswith(("data:image/webp;base64,", "about:"))] == []
    assert not (EFFECTS - {"\t"}) & set(page.evaluate("document.documentElement.innerText"))
    page.close()
