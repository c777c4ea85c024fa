"""docs/evaluation.md is made from its JSON, and the figures in README are those of the JSON."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle import BUILTIN_SHA256
from bcos_sdk.evaluation import Evaluation

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_evaluation", ROOT / "docs" / "make_evaluation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_results() -> None:
    made = script()
    files = (made.DATA, made.HALVES, made.PETS)
    result, halves, pets = (Evaluation.model_validate_json(path.read_bytes()) for path in files)
    assert made.page(result, halves, pets) == made.PAGE.read_text("utf-8"), "run `python docs/make_evaluation.py`"


def test_the_ordering_of_the_paper_holds() -> None:
    result = Evaluation.model_validate_json((ROOT / "docs" / "evaluation.json").read_bytes())
    assert result.against is not None
    score = {one["name"]: one["localisation"] for one in result.against["methods"]}
    same = {one["name"]: one["ours"] for one in result.against["methods"]}
    assert all(same[name] > score[name] for name in score if name != "ours")
    assert score["gradcam"] > score["lime"] > max(score["intgrad"], score["ixg"], score["deeplift"], score["guided"])


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for file in ("evaluation.json", "evaluation_pets.json"):
        figures = Evaluation.model_validate_json((ROOT / "docs" / file).read_bytes()).model.figures
        for value in (
            figures["accuracy"].values["top1"],
            figures["accuracy"].values["ece"],
            figures["localisation"].values["localisation"],
        ):
            assert f" {100 * value:.2f} |" in readme


def test_the_commands_of_the_readme_are_those_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    page = (ROOT / "docs" / "evaluation.md").read_text("utf-8").replace("\\\n    ", "")
    for file, folder, count in (
        ("evaluation.json", "cifar-10-batches-bin", 10_000),
        ("evaluation_pets.json", "oxford-pets --split held-out", 1223),
    ):
        result = Evaluation.model_validate_json((ROOT / "docs" / file).read_bytes())
        assert result.images == count
        measures = ",".join(name for name in result.settings.measures if name != "accuracy")
        command = f"bcos-sdk evaluate {folder} --model {result.model.name} --measure {measures} --grids 500"
        for text in (readme, page):
            assert command in text
    pets = Evaluation.model_validate_json((ROOT / "docs" / "evaluation_pets.json").read_bytes())
    assert pets.layout == "Oxford-IIIT Pet, held-out"
    assert f"--grids 500 --images {pets.settings.explained}" in readme
    assert f"species {100 * script().species_accuracy(pets):.2f})" in readme


def test_the_results_of_the_pets_are_those_of_the_built_in_model() -> None:
    result = Evaluation.model_validate_json((ROOT / "docs" / "evaluation_pets.json").read_bytes())
    assert result.model.digest == BUILTIN_SHA256[result.model.name]
    figures = result.model.figures
    assert figures["masks"].values["inside"] > 0.8
    card = (builtin_dir() / f"{result.model.name}.md").read_text("utf-8")
    for value in (figures["masks"].values["inside"], figures["localisation"].values["localisation"]):
        assert f"**{100 * value:.1f} %**" in card
