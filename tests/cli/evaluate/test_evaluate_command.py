"""`bcos-sdk evaluate` on a small bundle: figures, comparison, thresholds, resuming, failures, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from support.browsers import open_browser
from support.bundles import LABELS, random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.cli import main
from bcos_sdk.cli.evaluate._limits import Demands
from bcos_sdk.evaluation import Evaluation, Run, Settings, Subject, WindowMaps, open_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file of 24 images. Their labels are what the model says, but for the first two. Each has a mask."""
    folder = tmp_path_factory.mktemp("evaluate")
    pixels = [
        np.clip(one * (0.25 + 0.25 * (at % 4)), 0, 255).astype(np.uint8)
        for at, one in enumerate(random_pixels(24, seed=3))
    ]
    for at, one in enumerate(pixels):
        Image.fromarray(one).save(folder / f"{at}.png")
        mask = np.zeros(one.shape[:2], np.uint8)
        mask[:, : one.shape[1] // 2] = 1
        Image.fromarray(mask).save(folder / f"mask{at}.png")
    with Client(small_bundle().path, device="cpu") as client:
        found = [one.classes[0].index for one in client.predict([folder / f"{at}.png" for at in range(24)])]
    labels = [(one + 1) % len(LABELS) if at < 2 else one for at, one in enumerate(found)]
    rows = [f"{at}.png,{label},mask{at}.png" for at, label in enumerate(labels)]
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    return folder / "list.csv"


def run(data: Path, out: Path, *options: str) -> Result:
    arguments = ["evaluate", str(data), "--model", str(small_bundle().path), "--device", "cpu", "--out", str(out)]
    return CliRunner().invoke(main, [*arguments, *options])


def figures(out: Path) -> Any:
    return json.loads((out / "evaluation.json").read_text("utf-8"))


MEASURES = "accuracy,masks,faithfulness,bias,stability"


def test_figures_table_json_and_page(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / "out", "--measure", MEASURES, "--images", "6")
    assert result.exit_code == 0, result.output
    assert "top-1 accuracy %" in result.stdout
    assert "91.67" in result.stdout  # 22 of 24
    found = figures(tmp_path / "out")["model"]["figures"]
    assert set(found) == set(MEASURES.split(","))
    assert found["accuracy"]["values"]["top1"] == pytest.approx(22 / 24)
    assert {name: found[name]["items"] for name in ("masks", "bias")} == {"masks": 6, "bias": 6}
    assert "<svg" in (tmp_path / "out" / "evaluation.html").read_text("utf-8")


def test_the_bias_share_is_that_of_the_logits(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "out", "--images", "24")
    with Client(small_bundle().path, device="cpu") as client:
        paths = [data.parent / f"{at}.png" for at in range(24)]
        shares = []
        for one in client.explain(paths, top_k=2):
            first, second = one.explanations
            pixels = float(first.contributions.sum(dtype=np.float64) - second.contributions.sum(dtype=np.float64))
            shares.append(1 - pixels / (first.target.logit - second.target.logit))
    assert figures(tmp_path / "out")["model"]["figures"]["bias"]["values"]["median"] == pytest.approx(
        np.median(shares), rel=1e-3
    )


def test_a_model_compared_with_itself_has_no_differences(data: Path, tmp_path: Path) -> None:
    same = str(small_bundle().path)
    result = run(data, tmp_path / "out", "--compare", same, "--measure", "bias,stability", "--images", "4")
    assert result.exit_code == 0, result.output
    found = figures(tmp_path / "out")
    assert found["differences"]
    assert all(one["difference"] == one["low"] == one["high"] == one["changed"] == 0 for one in found["differences"])
    assert found["model"]["figures"]["stability"]["values"]["other_cosine"] == pytest.approx(1)


def test_half_precision_shows_small_paired_differences(data: Path, tmp_path: Path) -> None:
    half = str(small_bundle(precision="fp16").path)
    options = ("--compare", half, "--measure", "bias,stability", "--images", "6", "--max-drop", "0")
    assert run(data, tmp_path / "out", *options).exit_code == 0
    found = figures(tmp_path / "out")
    (bias,) = [one for one in found["differences"] if one["measure"] == "bias"]
    assert bias["changed"] == 6
    assert bias["low"] < bias["high"]
    assert 0.99 < found["model"]["figures"]["stability"]["values"]["other_cosine"] < 1
    assert found["other"]["precision"] == "fp16"


@pytest.mark.parametrize(("least", "code"), [("91", 0), ("92", 3)])
def test_least_accuracy(data: Path, tmp_path: Path, least: str, code: int) -> None:
    result = run(data, tmp_path / "out", "--min-accuracy", least)
    assert result.exit_code == code
    assert ("accuracy is 91.67 %, expected at least 92 %" in result.stderr) == (code == 3)


def test_a_drop_needs_a_compared_model(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / "out", "--max-drop", "1")
    assert result.exit_code == 2
    assert "--max-drop needs --compare" in result.stderr


@pytest.mark.parametrize(("difference", "missed"), [(-0.02, True), (-0.01, False), (0.02, False)])
def test_largest_drop(data: Path, tmp_path: Path, difference: float, missed: bool) -> None:
    assert run(data, tmp_path / "out", "--compare", str(small_bundle().path)).exit_code == 0
    found = figures(tmp_path / "out")
    found["differences"][0]["difference"] = difference
    assert bool(Demands(drop=1.5).missed(Evaluation.model_validate(found))) == missed


def test_a_drop_that_cannot_be_measured_is_not_met(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out", "--compare", str(small_bundle().path)).exit_code == 0
    found = figures(tmp_path / "out") | {"differences": []}
    (sentence,) = Demands(drop=1.5).missed(Evaluation.model_validate(found))
    assert sentence == "accuracy could not be compared, expected at most 1.5 points below the compared model"


@pytest.mark.parametrize(("difference", "shown"), [(-3e-7, "0.00003"), (-0.012, "1.20")])
def test_a_drop_is_told_from_its_limit(data: Path, tmp_path: Path, difference: float, shown: str) -> None:
    assert run(data, tmp_path / "out", "--compare", str(small_bundle().path)).exit_code == 0
    found = figures(tmp_path / "out")
    found["differences"][0]["difference"] = difference
    (sentence,) = Demands(drop=0).missed(Evaluation.model_validate(found))
    assert sentence == f"accuracy is {shown} points below the compared model, expected at most 0"


@pytest.mark.parametrize("option", ["--compare-device", "--compare-grid-model"])
def test_options_of_the_compared_model_need_one(data: Path, tmp_path: Path, option: str) -> None:
    result = run(data, tmp_path / "out", option, "cpu")
    assert result.exit_code == 2
    assert f"{option} needs --compare" in result.stderr


def test_a_bad_image_is_listed_and_nothing_else_is_lost(data: Path, tmp_path: Path) -> None:
    (data.parent / "broken.png").write_text("text")
    listed = data.with_name("broken.csv")
    listed.write_text("broken.png,0\nmissing.png,1\n" + data.read_text())
    result = run(listed, tmp_path / "out")
    assert result.exit_code == 5
    assert "broken.png" in result.stderr
    found = figures(tmp_path / "out")["model"]
    assert [one["source"] for one in found["failures"]["accuracy"]] == ["broken.png", "missing.png"]
    assert found["figures"]["accuracy"]["items"] == 24


def test_resume_continues_and_gives_the_same_result(data: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(data, whole, "--images", "5").exit_code == 0
    assert run(data, cut, "--images", "5").exit_code == 0
    lines = (cut / "items.jsonl").read_text("utf-8").splitlines(keepends=True)
    assert len(lines) == 24 + 5
    (cut / "items.jsonl").write_text("".join(lines[:10]) + lines[10][:20], "utf-8")
    (cut / "evaluation.json").unlink()
    refused = run(data, cut, "--images", "5")
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    assert run(data, cut, "--images", "5", "--resume").exit_code == 0
    assert figures(cut) == figures(whole)
    after = (cut / "items.jsonl").read_text("utf-8").splitlines(keepends=True)
    assert after[:10] == lines[:10]
    assert len(after) == len(lines)


def test_another_evaluation_cannot_be_continued(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out").exit_code == 0
    before = (tmp_path / "out" / "items.jsonl").read_bytes()
    result = run(data, tmp_path / "out", "--seed", "7", "--resume")
    assert result.exit_code == 2
    assert "another settings" in result.stderr
    assert (tmp_path / "out" / "items.jsonl").read_bytes() == before
    assert run(data, tmp_path / "out", "--seed", "7", "--overwrite").exit_code == 0


def test_masks_are_demanded_before_anything_is_measured(data: Path, tmp_path: Path) -> None:
    plain = data.with_name("plain.csv")
    plain.write_text("".join(f"{at}.png,0\n" for at in range(4)))
    result = run(plain, tmp_path / "out", "--measure", "masks")
    assert result.exit_code == 1
    assert "has no masks" in result.stderr
    assert not (tmp_path / "out").exists()


def test_windows_add_up_to_the_logits_of_all_windows() -> None:
    """Σ of the map = Σ over windows of (logit − bias): completeness, on a grid of 2 × 2 inputs."""
    with Client(small_bundle().path, device="cpu") as client:
        height, width = client.manifest.input.size
        pixels = np.random.default_rng(0).integers(0, 256, (2 * height, 2 * width, 3), dtype=np.uint8)
        maps = WindowMaps(client, 2).explain(pixels, [3, 0])
        assert maps.shape == (2, 2 * height, 2 * width)
        total = np.zeros(2)
        for top in (0, height // 2, height):
            for left in (0, width // 2, width):
                window = pixels[top : top + height, left : left + width]
                scaled = window.astype(np.float32).transpose(2, 0, 1) / 255
                (one,) = client.explain(np.concatenate([scaled, 1 - scaled]), targets=[3, 0])
                total += [each.target.logit - sum(each.bias.values()) for each in one.explanations]
    np.testing.assert_allclose(maps.sum((1, 2)), total, rtol=1e-4)


def test_localisation_by_windows_on_real_classes(data: Path) -> None:
    """Labels as predicted give grids if four classes are confident. Random weights give about chance."""
    with Client(small_bundle("softmax").path, device="cpu") as client:
        settings = Settings(measures=("localisation",), cells=2, grids=2)
        loose = Run(Subject(client), open_dataset(data, client.labels), settings, WindowMaps(client, 2))
        loose.items["accuracy"] = loose._accuracy()
        confident = [
            item.model_copy(update={"scores": {**item.scores, "label": at % 5, "top1": 1.0, "probability": 0.9}})
            for at, item in enumerate(loose.items["accuracy"])
        ]
        loose.items["accuracy"] = confident
        found = loose._localisation()
    assert len(found) == 2
    assert all(0 <= item.scores["localisation"] <= 1 and len(item.curves["cells"]) == 4 for item in found)


def test_the_page_in_a_browser(data: Path, tmp_path: Path) -> None:
    """Nothing is fetched, no policy is violated, nothing is wider than a phone."""
    compare = ("--compare", str(small_bundle(precision="fp16").path))
    assert run(data, tmp_path / "out", "--measure", MEASURES, "--images", "4", *compare).exit_code == 0
    problems: list[str] = []
    with open_browser() as browser:
        for width in (1200, 390):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.on("console", lambda message: problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda one: problems.append(one.url) if one.url.startswith("http") else None)
            page.goto((tmp_path / "out" / "evaluation.html").as_uri())
            assert page.locator("h1").inner_text().startswith("Evaluation of small")
            assert page.locator("svg").count() >= 6
            assert page.locator("section", has_text="Compared").count() >= 1
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            colour = page.locator("svg .line.l0").first.evaluate("e => getComputedStyle(e).stroke")
            assert colour == "rgb(31, 111, 139)"  # the style is allowed by the policy
            page.close()
    assert problems == []
