"""`bcos-sdk evaluate` opens the network of the bundle, never another one: for grids and for post-hoc methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import support.needs_torch  # noqa: F401 - skips the module without torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file
from support.fine_tuned import FineTunedModel, fine_tuned_model

from bcos_sdk import Client
from bcos_sdk.cli import main
from bcos_sdk.errors import InputError
from bcos_sdk.evaluation import Sample, Subject, WeightsChoice, open_own_network
from bcos_sdk.registry import load_registry


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> FineTunedModel:
    return fine_tuned_model(tmp_path_factory.mktemp("half"), "fp16")


@pytest.fixture
def model(half: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FineTunedModel:
    """The registry has other weights under the name of the bundle. The cache is empty."""
    monkeypatch.setenv("BCOS_SDK_REGISTRY", str(half.registry))
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))
    return half


def run(model: FineTunedModel, out: Path, *options: str) -> Result:
    arguments = ["evaluate", str(model.data), "--model", str(model.bundle), "--device", "cpu", "--out", str(out)]
    return CliRunner().invoke(main, [*arguments, "--cells", "2", "--grids", "2", *options])


def result_of(out: Path) -> Any:
    return json.loads((out / "evaluation.json").read_text("utf-8"))


def forbidden(*_args: object, **_options: object) -> None:
    raise AssertionError("the grid network was exported")


def test_post_hoc_methods_never_explain_other_weights_of_an_fp16_bundle(model: FineTunedModel, tmp_path: Path) -> None:
    pytest.importorskip("captum", reason="pip install 'bcos-sdk[evaluate]'")
    result = run(model, tmp_path / "out", "--against", "ixg", "--grid-mode", "windows")
    assert result.exit_code == 1, result.output
    assert "the registry's mine has other weights" in result.stderr
    assert "--weights FILE" in result.stderr


def test_without_its_weights_a_model_is_explained_by_windows(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcos_sdk.exporters.export", forbidden)
    result = run(model, tmp_path / "out", "--measure", "localisation")
    assert result.exit_code == 0, result.output
    assert "sliding windows, since the weights of the bundle mine were not found" in result.stderr
    assert result_of(tmp_path / "out")["grid_mode"] == "windows"
    refused = run(model, tmp_path / "other", "--measure", "localisation", "--grid-mode", "network")
    assert refused.exit_code == 1
    assert "the registry's mine has other weights" in refused.stderr


def test_its_weights_give_a_fine_tuned_model_both(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grid network is exported once for all output folders."""
    pytest.importorskip("captum", reason="pip install 'bcos-sdk[evaluate]'")
    options = ("--weights", str(model.tuned), "--measure", "localisation", "--against", "ixg,deeplift")
    result = run(model, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    found = result_of(tmp_path / "out")
    assert found["grid_mode"] == "network"
    assert {one["name"] for one in found["against"]["methods"]} == {"ours", "ixg", "deeplift"}
    for text in ("ours %", "equals", "input × gradient"):
        assert text in result.stdout
        assert text in (tmp_path / "out" / "evaluation.html").read_text("utf-8")
    monkeypatch.setattr("bcos_sdk.exporters.export", forbidden)
    again = run(model, tmp_path / "again", "--measure", "localisation")
    assert again.exit_code == 0, again.output
    assert (
        result_of(tmp_path / "again")["model"]["figures"]["localisation"] == (found["model"]["figures"]["localisation"])
    )


def test_two_models_are_explained_in_the_same_way(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid model of one of them alone is not enough: the registry has other weights for the other."""
    options = ("--compare", str(model.bundle), "--measure", "localisation", "--max-drop", "0")
    same = run(model, tmp_path / "out", *options, "--weights", str(model.tuned))
    assert same.exit_code == 0, same.output
    (grid_model,) = (one for one in (tmp_path / "cache" / "grid-networks").iterdir() if one.is_dir())
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "empty"))
    one = run(model, tmp_path / "one", *options, "--grid-model", str(grid_model))
    assert one.exit_code == 1
    assert "the registry's mine has other weights" in one.stderr
    both = ("--grid-model", str(grid_model), "--compare-grid-model", str(grid_model))
    assert run(model, tmp_path / "both", *options, *both).exit_code == 0
    assert result_of(tmp_path / "both")["grid_mode"] == "network"


def test_wrong_weights_are_refused_before_the_export(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcos_sdk.exporters.export", forbidden)
    options = ("--weights", str(model.registered), "--measure", "localisation")
    result = run(model, tmp_path / "out", *options)
    assert result.exit_code == 1
    assert f"{model.registered} has other weights" in result.stderr
    named = run(model, tmp_path / "out", *options, "--base", "resnet17", "--overwrite")
    assert "no model 'resnet17'" in named.stderr


def test_without_grids_nothing_is_exported_and_the_rest_is_measured(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcos_sdk.exporters.export", forbidden)
    options = ("--weights", str(model.tuned), "--cells", "3", "--images", "2")
    result = run(model, tmp_path / "out", "--measure", "all", *options)
    assert result.exit_code == 0, result.output
    assert "localisation was not measured: a grid of 3 × 3 needs" in result.stderr
    found = result_of(tmp_path / "out")
    assert set(found["model"]["figures"]) == {"accuracy", "faithfulness", "bias", "stability"}
    assert any("localisation was not measured" in note for note in found["notes"])
    asked = run(model, tmp_path / "asked", "--measure", "localisation", *options)
    assert asked.exit_code == 1
    assert "Use smaller grids: --cells 2" in asked.stderr
    demanded = run(model, tmp_path / "out", "--measure", "all", *options, "--resume", "--min-localisation", "10")
    assert demanded.exit_code == 3, demanded.output
    assert "localisation was not measured, expected at least 10 %" in demanded.stderr


class TestOpening:
    """`open_own_network` on the fp16 bundle."""

    def opened(self, model: FineTunedModel, choice: WeightsChoice) -> Any:
        samples = [Sample("missing", 0, model.data.parent / "missing.png")]
        samples += [Sample("0", 0, model.data.parent / "0.png")]
        with Client(model.bundle, device="cpu") as client:
            return open_own_network(Subject(client), samples, choice)

    def test_the_file_with_the_right_hash_is_taken(self, model: FineTunedModel) -> None:
        network = self.opened(model, WeightsChoice((model.registered, model.tuned)))
        assert (network.state_dict()["fc.linear.weight"] == load_file(model.tuned)["fc.linear.weight"]).all()

    def test_a_copy_that_is_not_averaged_is_found(self, model: FineTunedModel, tmp_path: Path) -> None:
        average = {f"ema.module.{key}": value for key, value in load_file(model.registered).items()}
        save_file(
            {f"model.{key}": value for key, value in load_file(model.tuned).items()} | average,
            tmp_path / "both.safetensors",
        )
        network = self.opened(model, WeightsChoice((tmp_path / "both.safetensors",)))
        assert (network.state_dict()["fc.linear.weight"] == load_file(model.tuned)["fc.linear.weight"]).all()

    def test_the_same_weights_with_another_constant_are_refused(
        self, model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = model.registry.read_text("utf-8").replace("logit_bias: 3.0", "logit_bias: 2.0")
        other = tmp_path / "own.yaml"
        other.write_text(text.replace(model.registered.name, str(model.tuned)), "utf-8")
        assert load_registry(other)["mine"].architecture.logit_bias == 2
        monkeypatch.setenv("BCOS_SDK_REGISTRY", str(other))
        with pytest.raises(InputError, match="but other logits"):
            self.opened(model, WeightsChoice())

    def test_the_base_of_a_compared_model(self, model: FineTunedModel) -> None:
        choice = WeightsChoice((model.tuned,), base="mine", registry=False)
        own, same = WeightsChoice((model.tuned,)), WeightsChoice((model.tuned,), base="mine")
        assert choice.of_compared("cats", "cats") == choice.of_compared("cats", "dogs") == same
        assert choice.of_compared("cats", "resnet18") == own

    def test_a_name_that_the_registry_does_not_know(
        self, model: FineTunedModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("BCOS_SDK_REGISTRY")
        with pytest.raises(InputError, match="no model 'mine'") as refused:
            self.opened(model, WeightsChoice())
        assert "--base NAME" in str(refused.value.hint)


def test_the_built_in_model_in_fp16_is_checked() -> None:
    import numpy as np

    from bcos_sdk.bundle import PETS_MODEL

    pixels = np.random.default_rng(0).integers(0, 256, (192, 192, 3), dtype=np.uint8)
    with Client(PETS_MODEL, device="cpu") as client:
        assert client.manifest.precision == "fp16"
        network = open_own_network(Subject(client), [Sample("noise", 0, pixels)])
    assert not network.training
