"""The built-in models: their files belong together, they run without setup, and they classify the samples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.export_extra import load_model, torch

from bcos_sdk import Client
from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle import BUILTIN_MODEL, BUILTIN_SHA256, DEFAULT_MODEL, builtin_bundle, open_bundle
from bcos_sdk.cli import main
from bcos_sdk.errors import HashMismatchError
from bcos_sdk.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = sorted((ROOT / "samples").glob("*.jpg"))
REGISTRY = builtin_registry()
SPEC = REGISTRY[BUILTIN_MODEL]
PETS = "pets37_resnet18_w32"
both = pytest.mark.parametrize("name", [BUILTIN_MODEL, PETS])


@both
def test_the_bundle_was_exported_from_the_packaged_weights(name: str) -> None:
    network = load_model(REGISTRY[name])
    golden = open_bundle(builtin_bundle(name)).golden()
    rgb = torch.from_numpy(golden.pixels).permute(2, 0, 1)[None].double() / 255
    x = torch.cat([rgb, 1 - rgb], dim=1).requires_grad_()
    logits = network.double()(x)[0]
    (weights,) = torch.autograd.grad(logits[golden.target], x)
    np.testing.assert_allclose(logits.detach().numpy(), golden.logits, rtol=1e-5)
    np.testing.assert_allclose(weights[0].numpy(), golden.weights, atol=1e-5 * float(weights.abs().max()))


@both
def test_the_digest_of_the_bundle_is_pinned(name: str) -> None:
    """If this fails after a new export of the model: put the new digest into bcos_sdk/bundle/_builtin.py."""
    assert sha256((builtin_bundle(name) / "manifest.json").read_bytes()).hexdigest() == BUILTIN_SHA256[name]
    assert open_bundle(builtin_bundle(name)).sha256 == BUILTIN_SHA256[name]


def test_changed_weights_are_refused() -> None:
    assert SPEC.packaged is not None
    wrong = SPEC.model_copy(update={"packaged": SPEC.packaged.model_copy(update={"sha256": "0" * 64})})
    with pytest.raises(HashMismatchError, match="not the released file"):
        load_model(wrong)


def test_the_model_card_has_the_measured_accuracy() -> None:
    figures = json.loads((builtin_dir() / f"{BUILTIN_MODEL}.training.json").read_text("utf-8"))
    assert figures["test_accuracy"] >= 0.88
    assert SPEC.published.top1 == pytest.approx(100 * figures["test_accuracy"])
    assert SPEC.published.parameters == figures["parameters"]
    assert SPEC.packaged is not None
    assert SPEC.packaged.sha256 == figures["weights_sha256"]
    card = (builtin_dir() / f"{BUILTIN_MODEL}.md").read_text("utf-8")
    assert f"{100 * figures['test_accuracy']:.2f} %" in card


def test_the_model_card_of_the_pets_has_the_measured_figures() -> None:
    figures = json.loads((builtin_dir() / f"{PETS}.training.json").read_text("utf-8"))
    published = REGISTRY[PETS].published
    assert published.top1 == pytest.approx(100 * figures["breed_accuracy"], abs=0.5)  # in bfloat16
    assert figures["species_accuracy"] >= 0.94
    assert published.parameters == sum(parameter.numel() for parameter in load_model(REGISTRY[PETS]).parameters())
    card = (builtin_dir() / f"{PETS}.md").read_text("utf-8")
    assert f"**{published.top1:.2f} %** of {figures['held_out_images']:,}" in card
    assert f"{published.parameters:,}" in card
    assert f"{figures['training_images']:,}" in card
    assert f"{figures['steps']:,} steps" in card


@pytest.mark.parametrize(("name", "most"), [(BUILTIN_MODEL, 8e6), (PETS, 12.5e6)])
def test_the_files_of_a_built_in_model_are_small(name: str, most: float) -> None:
    found = [path for path in builtin_dir().rglob("*") if path.relative_to(builtin_dir()).parts[0].startswith(name)]
    assert len(found) > 8
    assert sum(path.stat().st_size for path in found if path.is_file()) < most


def test_most_samples_are_classified_correctly_and_all_explanations_are_complete() -> None:
    with Client(BUILTIN_MODEL, device="cpu") as client:
        results = client.explain(SAMPLES, top_k=2)
    right = [
        path.stem.split("-")[0] == result.prediction.classes[0].label
        for path, result in zip(SAMPLES, results, strict=True)
    ]
    assert len(SAMPLES) >= 12
    assert sum(right) >= 0.7 * len(SAMPLES), [result.prediction.classes[0] for result in results]
    assert all(one.completeness.passed for result in results for one in result.explanations)


def test_every_sample_has_a_licence() -> None:
    rows = re.findall(
        r"^\| ([a-z0-9-]+\.jpg) \| .+? \| .+? \| (.+?) \|", (ROOT / "samples" / "LICENSES.md").read_text(), re.M
    )
    assert sorted(name for name, _ in rows) == [path.name for path in SAMPLES]
    assert all(re.match(r"CC0|CC-BY|public domain", licence) for _, licence in rows)


def test_the_pets_model_tells_cats_from_dogs() -> None:
    """Breeds that Oxford-IIIT Pet lacks are given another breed of the same species."""
    pets = [path for path in SAMPLES if path.stem.split("-")[0] in ("cat", "dog")]
    with Client(PETS, device="cpu") as client:
        results = client.explain(pets)
    species = [result.prediction.classes[0].label.split()[-1] for result in results]
    assert species == [path.stem.split("-")[0] for path in pets]
    assert all(one.completeness.passed for result in results for one in result.explanations)


def test_every_label_of_the_pets_ends_with_its_species() -> None:
    labels = REGISTRY[PETS].class_names or ()
    assert [label.split()[-1] for label in labels] == ["cat"] * 12 + ["dog"] * 25


def test_predict_works_without_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "empty"))
    monkeypatch.delenv("BCOS_SDK_MODEL", raising=False)
    result = CliRunner().invoke(main, ["predict", str(ROOT / "samples" / "cat-2.jpg"), "--explain"])
    assert result.exit_code == 0, result.stderr
    assert f"{DEFAULT_MODEL} (built in) on" in result.stderr
    assert re.search(r"cat-2.jpg: .*cat", result.stdout)


def test_predicting_needs_neither_torch_nor_onnx(tmp_path: Path) -> None:
    program = f"""
import sys
for name in ("torch", "onnx", "onnxscript", "safetensors"):
    sys.modules[name] = None
from bcos_sdk.cli import main
main(["predict", {str(ROOT / "samples" / "frog.jpg")!r}, "--explain", "--report", "--out", {str(tmp_path / "out")!r}])
"""
    environment = {**os.environ, "BCOS_SDK_STORE": str(tmp_path / "empty")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").is_file()
