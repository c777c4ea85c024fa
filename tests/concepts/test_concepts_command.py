"""`bcos-sdk concepts`: its files, its page in Chromium, what it does with an output folder, errors and interrupts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image
from support.browsers import open_browser
from support.bundles import copy_of, small_bundle

from bcos_sdk.bundle import BUILTIN_MODEL, builtin_bundle
from bcos_sdk.cli import main
from bcos_sdk.concepts import Concepts

SAMPLES = Path(__file__).parents[2] / "samples"


def run(out: Path, *options: str, images: Path = SAMPLES, label: str = "automobile", layer: str = "layer3") -> Result:
    arguments = ["concepts", str(images), "--model", str(builtin_bundle()), "--layer", layer, "--class", label]
    arguments += ["--directions", "2", "--images", "3", "--device", "cpu", "--threads", "1", "-o", str(out), *options]
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sheet of two layers. One file of the folder is no image, and its name contains HTML."""
    folder = tmp_path_factory.mktemp("concepts")
    images = folder / "images"
    images.mkdir()
    for path in SAMPLES.glob("*.jpg"):
        (images / path.name).write_bytes(path.read_bytes())
    (images / "<b>bad.png").write_text("no image")
    result = run(folder / "sheet", images=images, layer="layer3,layer4")
    assert result.exit_code == 5, result.output
    assert "image_unreadable" in result.output
    return folder / "sheet"


def test_files(sheet: Path) -> None:
    names = {path.name for path in sheet.iterdir() if path.name != ".bcos-sdk.lock"}
    assert names == {"sheet.png", "sheet.html", "sheet.json"}
    concepts = Concepts.from_json((sheet / "sheet.json").read_bytes())
    assert [layer.layer for layer in concepts.layers] == ["layer3", "layer4"]
    assert [Path(one.source).name for one in concepts.failures] == ["<b>bad.png"]
    for layer in concepts.layers:
        for concept in layer.concepts:
            assert len(concept.examples) == 3
            for one in concept.examples:
                assert one.completeness is not None
                assert one.completeness.passed
    with Image.open(sheet / "sheet.png") as picture:
        assert picture.width > 500
        assert picture.height > 900


def test_the_page_shows_sections_and_full_explanations(sheet: Path) -> None:
    problems: list[str] = []
    with open_browser() as browser:
        page: Any = browser.new_page(viewport={"width": 1200, "height": 800})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto((sheet / "sheet.html").as_uri())
        titles = page.locator(".feature h2").all_text_contents()
        assert titles == [f"{layer} · direction {number}" for layer in ("layer3", "layer4") for number in (1, 2)]
        assert page.locator(".card").count() == 12
        assert page.locator(".card").first.locator("img").count() == 2
        assert "1 image has no result" in page.locator("#failed").inner_text()
        assert page.locator("#failed b").inner_text() == "<b>bad.png"
        assert not page.locator(".guide").get_by_text("Complete is not correct").is_visible()
        page.locator(".card .picture").nth(4).click()
        text = page.locator("dialog").inner_text()
        assert "Class automobile" in text
        assert "value +" in text
        assert page.locator("dialog td").get_by_text("✓", exact=True).count() == 2
        page.set_viewport_size({"width": 390, "height": 800})
        page.keyboard.press("Escape")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert problems == []


def test_a_finished_sheet_is_not_replaced_unless_asked_for(sheet: Path) -> None:
    before = (sheet / "sheet.json").read_bytes()
    assert run(sheet).exit_code == 2
    assert (sheet / "sheet.json").read_bytes() == before
    assert run(sheet, "--overwrite", label="nothing").exit_code == 1  # not even by a run that fails
    assert (sheet / "sheet.json").read_bytes() == before


@pytest.mark.parametrize(("option", "error"), [({"label": "unicorn"}, "label"), ({"layer": "layer9"}, "no layer")])
def test_wrong_arguments_leave_no_folder(tmp_path: Path, option: dict[str, str], error: str) -> None:
    result = run(tmp_path / "out", **option)  # type: ignore[arg-type]
    assert result.exit_code != 0
    assert error in result.output
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bcos_sdk.cli.concepts import _concepts_command

    calls = iter([None] * 15 + [KeyboardInterrupt("stop")])
    monkeypatch.setattr(_concepts_command, "received_interrupt", lambda: next(calls, None))
    out = tmp_path / "out"
    first = run(out)
    assert "continue with --resume" in first.output
    assert not (out / "sheet.json").exists()
    assert run(out).exit_code == 2  # what to do with the unfinished search was not said
    assert run(out, "--resume").exit_code == 0
    whole = tmp_path / "whole"
    assert run(whole).exit_code == 0
    assert (out / "sheet.json").read_bytes() == (whole / "sheet.json").read_bytes()
    assert (out / "sheet.png").read_bytes() == (whole / "sheet.png").read_bytes()
    assert not list(out.glob(".concepts*"))


def without_model(out: Path, *options: str) -> Result:
    arguments = ["concepts", str(SAMPLES / "automobile-1.jpg"), "--layer", "layer3", "--class", "automobile"]
    return CliRunner().invoke(main, [*arguments, "--device", "cpu", "--threads", "1", "-o", str(out), *options])


def test_the_default_model_has_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("BCOS_SDK_STORE", str(store))
    first = without_model(tmp_path / "first")
    assert first.exit_code == 0, first.output
    assert f"{BUILTIN_MODEL} (built in)" in first.output
    assert "layer3: 1 of 6 asked for: the images gave 1 candidate" in first.output
    copy_of(small_bundle(), store / "plain")
    second = without_model(tmp_path / "second")
    assert second.exit_code == 0, second.output
    assert f"{BUILTIN_MODEL} (built in; the last export, plain, has no inner layers)" in second.output
    shutil.copytree(builtin_bundle(), store / "mine")
    (store / "mine" / "manifest.json").touch()
    assert f"{BUILTIN_MODEL} (the last export)" in without_model(tmp_path / "third").output


def test_a_chosen_model_without_layers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_MODEL", str(small_bundle().path))
    result = without_model(tmp_path / "out")
    assert result.exit_code == 1
    assert "small (BCOS_SDK_MODEL) on" in result.output
    assert "error [unknown_layer]: small has no graphs of inner layers" in result.output
    assert f"--model {BUILTIN_MODEL}" in result.output
    assert not (tmp_path / "out").exists()


def test_failed_images_are_named_if_nothing_is_found(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    result = run(out, images=tmp_path / "nofolder")
    assert result.exit_code == 5
    assert "error [image_unreadable]" in result.output
    assert "nofolder" in result.output
    assert "error [images_failed]: the only image failed" in result.output
    assert not out.parent.exists(), "a run without a result leaves no folder"
    (tmp_path / "bad.png").write_text("no image")
    result = run(out, str(SAMPLES / "automobile-1.jpg"), images=tmp_path / "bad.png", label="horse")
    assert result.exit_code == 1
    assert "bad.png is not an image" in result.output
    assert "takes none of the images for 'horse', so no direction can be found: 1 searched, 1 failed" in result.output


def test_wrong_arguments_say_what_is_known(tmp_path: Path) -> None:
    assert "Did you mean horse?" in run(tmp_path / "out", label="horce").output
    assert "The first labels are airplane" in run(tmp_path / "out", label="1024").output
    nameless = run(tmp_path / "out", layer=" ,")
    assert nameless.exit_code == 2
    assert "names no layer: write for example --layer layer3" in nameless.output
