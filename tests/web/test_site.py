"""The page of `bcos-sdk web` in Chromium: a visit, results beside those of the client, no network, damaged files."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.browsers import open_browser
from support.bundles import copy_of, edit_manifest, sign_again, small_bundle
from support.sites import SAMPLES, serving_files, site_of

from bcos_sdk import Client
from bcos_sdk.bundle import BUILTIN_MODEL, builtin_bundle, open_bundle
from bcos_sdk.web import _site

CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
VIOLATIONS = "addEventListener('securitypolicyviolation', one => console.error('policy:', one.violatedDirective))"
READY = "#samples img, #status.bad"
STORED = "#about:has-text('without a network')"
SHOWN = "#result:not([hidden], [aria-busy])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser(*CAMERA) as opened:
        yield opened


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder whose subfolder `deep/er` is the site of the built-in model."""
    root = tmp_path_factory.mktemp("site")
    site_of(open_bundle(builtin_bundle()), root / "deep" / "er", samples=SAMPLES)
    return root


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site of the built-in model with its weights in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_site, "PART", 300_000)
        yield site_of(open_bundle(builtin_bundle()), tmp_path_factory.mktemp("parts") / "site")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page in a profile of its own. `page.faults` lists what went wrong in it."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.add_init_script(VIOLATIONS)
    opened.faults = faults = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()


def shot(page: Any, name: str) -> None:
    """Keep a picture of the page for people, if they ask for it."""
    if folder := os.environ.get("BCOS_SDK_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def drawing(page: Any) -> str:
    found: str = page.evaluate("document.getElementById('drawing').toDataURL()")
    return found


TRANSPARENT = """(() => {
  const canvas = document.getElementById("drawing");
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((value, place) => place % 4 === 3 && value < 255).length;
})()"""


def test_a_visit_and_a_second_one_without_a_network(site: Path, page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with serving_files(site) as address:
        home = f"{address}deep/er/"
        page.goto(home)
        page.wait_for_selector(READY)
        assert "one thread" in page.inner_text("#about")
        page.click("#samples button[title='cat-1.jpg']")
        page.wait_for_selector(SHOWN)
        assert page.inner_text("#question") == "What speaks for cat?"
        assert page.inner_text("#verdict").startswith("Yes.")
        rows = [float(text) for text in page.locator("#terms td:last-child").all_inner_texts()]
        assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=0.003)
        shot(page, "browser-wide")

        page.locator("#classes button", has_text="dog").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#question:has-text('not for dog')")
        pictures = {drawing(page)}
        for kind in ("rgba", "heatmap"):
            page.click(f"[data-kind={kind}]")
            pictures.add(drawing(page))
            assert page.evaluate(TRANSPARENT) == 0, "the photograph must not shine through"
        assert len(pictures) == 3
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shot(page, "browser-phone")
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n none"})
        page.wait_for_selector("#status.bad")
        assert page.locator("#result").is_hidden(), "the picture of another image must not stay"
        page.wait_for_selector(STORED)

    page.reload()
    page.wait_for_selector(READY)
    assert page.evaluate("crossOriginIsolated"), "the service worker adds the headers for threads"
    threads = page.evaluate("Math.min(8, navigator.hardwareConcurrency)")
    assert ("one thread" if threads == 1 else f"{threads} threads") in page.inner_text("#about")
    page.click("#samples button[title='ship.jpg']")
    page.wait_for_selector(SHOWN)
    assert page.inner_text("#question") == "What speaks for ship?"
    assert not page.faults
    assert all(url.startswith((home, "blob:")) for url in asked)


EXPLAIN = """async encoded => {
  const {load} = await import("./bcos/bcos.js");
  globalThis.client ??= load("model/");
  const client = await globalThis.client;
  const blob = new Blob([Uint8Array.from(atob(encoded), letter => letter.charCodeAt(0))]);
  const text = data => btoa(Array.from(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), byte => String.fromCharCode(byte)).join(""));
  const {prediction, explanations: [one]} = await client.explain(blob);
  const {classes} = await client.predict(blob, {topK: client.manifest.classes});
  return {classes, explained: prediction.classes, image: text(one.image.data), contributions: text(one.contributions),
    target: one.target, completeness: one.completeness, geometry: one.geometry, bias: one.bias,
    difference: (await client.explain(blob, "cat vs dog")).explanations[0].completeness};
}"""  # noqa: E501


def turned(orientation: int, **options: Any) -> bytes:
    """The photograph of a cat as a file with this orientation in EXIF."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    with Image.open(SAMPLES / "cat-1.jpg") as photograph:
        photograph.crop((0, 0, 151, 97)).save(file, exif=exif, **options)
    return file.getvalue()


def converted(mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    with Image.open(SAMPLES / "bird-1.jpg") as photograph:
        changed = photograph.resize((83, 61)).convert(mode)
    if mode in ("RGBA", "LA"):
        changed.putalpha(Image.linear_gradient("L").resize((83, 61)))
    changed.save(file, **options)
    return file.getvalue()


def images() -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted(SAMPLES.glob("*.jpg"))}
    for orientation in range(1, 9):
        found[f"JPEG {orientation}"] = turned(orientation, format="JPEG", quality=90)
    found["PNG turned"] = turned(6, format="PNG")
    for mode in ("L", "RGBA", "LA", "P", "1"):
        found[f"PNG {mode}"] = converted(mode, format="PNG")
    found["grey JPEG"] = converted("L", format="JPEG", quality=90)
    found["WebP"] = converted("RGB", format="WEBP", lossless=True)
    found["GIF"] = converted("P", format="GIF")
    found["BMP"] = converted("RGB", format="BMP")
    return found


def test_results_are_those_of_the_client(site: Path, page: Any) -> None:
    """Chromium and Pillow decode these files to the same pixels, so that all of the rest can be compared."""
    with serving_files(site) as address, Client(BUILTIN_MODEL, device="cpu") as client:
        page.goto(f"{address}deep/er/site.json")
        for name, contents in images().items():
            found = page.evaluate(EXPLAIN, base64.b64encode(contents).decode())
            (expected,) = client.explain(contents, weights=True)
            one = expected.explanations[0]
            (prediction,) = client.predict(contents, top_k=len(client.labels))
            assert base64.b64decode(found["image"]) == one.image.tobytes(), name
            for score, other in zip(found["classes"], prediction.classes, strict=True):
                assert (score["index"], score["label"]) == (other.index, other.label), name
                assert score["logit"] == pytest.approx(other.logit, abs=1e-4), name
                assert score["probability"] == pytest.approx(other.probability, abs=1e-4), name
            contributions = np.frombuffer(base64.b64decode(found["contributions"]), np.float32)
            scale = float(np.abs(one.contributions).max())
            assert contributions == pytest.approx(one.contributions.reshape(-1), abs=1e-3 * scale), name
            assert found["target"]["label"] == one.target.label
            assert found["completeness"]["passed"]
            assert found["difference"]["passed"]
            for key in ("logit", "sum", "scale", "tolerance"):
                assert found["completeness"][key] == pytest.approx(getattr(one.completeness, key), rel=1e-4), name
            assert found["bias"] == pytest.approx(one.bias, rel=1e-5)
            assert one.geometry is not None
            assert found["geometry"]["box"] == pytest.approx([*one.geometry.box])


def flipped(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def changed_labels(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace('"cat"', '"dog"'), "utf-8")


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        ("weights.bin.part005", flipped, "weights.bin is not the file that was exported"),
        ("weights.bin.part009", shortened, "weights.bin has 2808187 bytes, expected 2808192"),
        ("weights.bin.part000", Path.unlink, "the server answers 404"),
        ("explain.onnx", flipped, "explain.onnx is not the file that was exported"),
        ("golden.npz", flipped, "golden.npz is not the file that was exported"),
        ("manifest.json", changed_labels, "manifest.json has the hash"),
    ],
)
def test_damaged_files_are_refused(
    file: str, damage: Callable[[Path], None], reason: str, parts: Path, page: Any
) -> None:
    path = parts / "model" / file
    original = path.read_bytes()
    damage(path)
    try:
        with serving_files(parts) as address:
            page.goto(address)
            page.wait_for_selector("#status.bad")
    finally:
        path.write_bytes(original)
    assert reason in page.inner_text("#status")
    assert page.locator("#samples button").count() == 0
    page.set_input_files("#file", SAMPLES / "cat-1.jpg")
    page.wait_for_selector("#status:has-text('Computing'), #status.bad")
    page.wait_for_selector("#status.bad")
    assert reason in page.inner_text("#status"), "no image is explained either"
    assert page.locator("#result").is_hidden()
    shot(page, f"browser-refused-{file}")


def test_large_files_arrive_in_parts(parts: Path, page: Any) -> None:
    assert len(list((parts / "model").glob("weights.bin.part*"))) == 10
    page.add_init_script("""addEventListener("DOMContentLoaded", () => {
      globalThis.seen = [];
      new MutationObserver(() => seen.push(document.getElementById("status").textContent))
        .observe(document.getElementById("status"), {childList: true});
    })""")
    with serving_files(parts) as address:
        page.goto(address)
        page.wait_for_selector(READY)
        page.click("#samples button")
        page.wait_for_selector(SHOWN)
    assert any("of 2.9 MB" in text for text in page.evaluate("seen"))
    assert page.locator("#loading").is_hidden()


@pytest.mark.full
def test_a_stored_file_that_is_damaged_is_fetched_again(parts: Path, page: Any) -> None:
    with serving_files(parts) as address:
        page.goto(address)
        page.wait_for_selector(STORED)
        page.evaluate("""async () => {
          const [name] = await caches.keys();
          await (await caches.open(name)).put("model/explain.onnx", new Response(new Uint8Array(50587)));
        }""")
        page.reload()
        page.wait_for_selector("#status.bad")
        assert "explain.onnx is not the file that was exported" in page.inner_text("#status")
        page.reload()
        page.wait_for_selector("#samples img")


@pytest.mark.full
def test_a_changed_site_replaces_the_stored_one(tmp_path: Path, page: Any) -> None:
    folder = site_of(open_bundle(builtin_bundle()), tmp_path / "site")
    with serving_files(folder) as address:
        page.goto(address)
        page.wait_for_selector(STORED)
        assert page.title().startswith("cifar10")
        site_of(small_bundle(), folder, force=True)
        for _visit in range(10):
            page.reload()
            page.wait_for_selector(READY)
            if page.title().startswith("small"):
                break
            page.wait_for_timeout(500)  # the new files are stored in the background
        page.wait_for_selector("#title:has-text('small')")
        page.click("#samples button")
        page.wait_for_selector(SHOWN)
        while len(page.evaluate("caches.keys()")) > 1:  # else what was stored before stays for ever
            page.wait_for_timeout(50)


def other_weights(folder: Path) -> None:
    """Weights of the same size that compute something else, with hashes that fit, as an attacker would."""
    path = folder / "weights.bin"
    values = np.frombuffer(path.read_bytes(), np.float32)
    path.write_bytes((values * np.where(np.arange(values.size) % 7, 1, -1)).astype(np.float32).tobytes())
    sign_again(folder)


def test_a_model_that_fails_the_self_test_is_refused(tmp_path: Path, page: Any) -> None:
    bundle = copy_of(open_bundle(builtin_bundle()), tmp_path / "bundle")
    other_weights(bundle)
    folder = site_of(open_bundle(bundle), tmp_path / "site")
    with serving_files(folder) as address:
        page.goto(address)
        page.wait_for_selector("#status.bad")
    assert "differ from the golden record" in page.inner_text("#status")


def test_an_explanation_that_does_not_add_up_is_not_drawn(tmp_path: Path, page: Any) -> None:
    bundle = copy_of(open_bundle(builtin_bundle()), tmp_path / "bundle")
    edit_manifest(bundle, lambda document: document.update(tolerance=1e-12))
    folder = site_of(open_bundle(bundle), tmp_path / "site", samples=SAMPLES)
    with serving_files(folder) as address:
        page.goto(address)
        page.wait_for_selector(READY)
        page.click("#samples button[title='cat-1.jpg']")
        page.wait_for_selector("#status.bad")
    assert "does not add up" in page.inner_text("#status")
    assert page.locator("#result").is_hidden()


def test_the_chosen_class_is_explained_whatever_its_label(tmp_path: Path, page: Any) -> None:
    labels = ["5", "4", "3", "5 vs 0", "1", "0", "2", "0 vs 5", "9", "8"]
    bundle = copy_of(open_bundle(builtin_bundle()), tmp_path / "bundle")
    edit_manifest(bundle, lambda document: document.update(labels=labels))
    folder = site_of(open_bundle(bundle), tmp_path / "site", samples=SAMPLES)
    with serving_files(folder) as address:
        page.goto(address)
        page.wait_for_selector(READY)
        page.click("#samples button[title='cat-1.jpg']")
        first = "5 vs 0"
        page.wait_for_selector(f"#question:text-is('What speaks for {first}?')")
        for name in ("0", "9", "0 vs 5"):
            page.fill("#wanted", name)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#question:text-is('What speaks for {first} and not for {name}?')")
            assert page.inner_text("#terms tr:last-child td:first-child") == f"Score (logit) of {first} vs {name}"
            page.click("#classes [data-role=for]")
            page.wait_for_selector(f"#question:text-is('What speaks for {name}?')")
            first = name
        shot(page, "browser-search")


def test_a_site_without_its_record_says_so(site: Path, page: Any) -> None:
    record = site / "deep" / "er" / "site.json"
    contents = record.read_bytes()
    with serving_files(site) as address:
        for damaged, message in (
            (None, "site.json cannot be fetched"),
            (b"<!doctype html>", "site.json is not the file"),
        ):
            try:
                record.unlink() if damaged is None else record.write_bytes(damaged)
                page.goto(f"{address}deep/er/")
                page.wait_for_selector(f"#status.bad:has-text('{message}')")
                page.evaluate("document.getElementById('status').textContent = ''")
                page.set_input_files("#file", SAMPLES / "cat-1.jpg")
                page.wait_for_selector(f"#status.bad:has-text('{message}')")
            finally:
                record.write_bytes(contents)


def test_frames_of_a_camera_are_explained_live(site: Path, page: Any) -> None:
    with serving_files(site) as address:
        page.goto(f"{address}deep/er/")
        page.wait_for_selector(READY)
        page.click("#samples button[title='cat-1.jpg']")
        page.wait_for_selector(SHOWN)
        page.locator("#classes button", has_text="dog").click()
        page.wait_for_selector("#question:has-text('not for dog')")
        page.click("#camera")
        page.wait_for_selector("#live:focus")
        page.keyboard.press("Enter")
        page.wait_for_selector("#status:has-text('frames per second')")
        first = page.inner_text("#terms")
        while page.inner_text("#terms") == first:
            page.wait_for_timeout(50)
        assert "ms per explanation" in page.inner_text("#status")
        assert "not for" not in page.inner_text("#question"), "the classes were chosen for another photograph"
        shot(page, "browser-live")
        page.click("#live")
        page.wait_for_selector("#status:has-text('is the most likely class')")
        page.click("[data-kind=rgba]")
        page.click("#stop")
        assert page.locator("#shooting").is_hidden()
    assert not page.faults
