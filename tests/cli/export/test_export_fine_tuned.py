"""`bcos-sdk export NAME --weights FILE`: a fine-tuned model goes to its own logits in one command."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
import support.needs_torch  # noqa: F401
import torch
from click.testing import CliRunner, Result
from PIL import Image
from support import reference
from support.bundles import random_pixels
from support.checkpoints import lightning, saved
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor

from bcos_sdk import Client
from bcos_sdk.bundle import find_bundle, open_bundle
from bcos_sdk.cli import main
from bcos_sdk.exporters import read_expectation
from bcos_sdk.models import build_model
from bcos_sdk.registry import builtin_registry, derive, load_registry
from bcos_sdk.weights import load_model

PHOTOGRAPH = random_pixels(1, seed=2, size=(90, 120))[0]
LABELS = [f"flower {index}" for index in range(7)]
SMALL = "cifar10_plain9_b2-nomaxout"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def public() -> Any:
    torch.manual_seed(0)
    return reference.fine_tuned_resnet18(7)


def logits_of(network: Any) -> np.ndarray[Any, Any]:
    """The logits of the photograph, prepared with torchvision for an input of 64×64."""
    rgb = Compose([Resize(73), CenterCrop(64), ToTensor()])(Image.fromarray(PHOTOGRAPH))
    with torch.no_grad():
        return np.asarray(network(torch.cat([rgb, 1 - rgb])[None])[0].numpy())


def predicted(folder: Path) -> dict[str, float]:
    with Client(folder, device="cpu") as client:
        (prediction,) = client.predict(PHOTOGRAPH, top_k=7)
    return {entry.label: entry.logit for entry in prediction.classes}


def test_a_state_dict_of_the_public_package(public: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, public.state_dict(), "mine.pth")
    (tmp_path / "labels.txt").write_text("\n".join(LABELS) + "\n")
    options = ["--labels", tmp_path / "labels.txt", "--input-size", 64, "--max-batch", 1, "-o", tmp_path / "out"]
    result = run("resnet18", "--weights", path, *options)
    assert result.exit_code == 0, result.stderr
    found = predicted(tmp_path / "out")
    assert [found[label] for label in LABELS] == pytest.approx(logits_of(public).tolist(), rel=1e-4)
    for assumed in ("logit bias", "-6.90675 (that of resnet18; −ln(classes − 1) is -1.79176)", "temperature", "1e-05"):
        assert assumed in result.stdout
    assert "shorter side to 73, centre crop to 64×64" in result.stdout
    assert "--expect FILE.npz" in result.stdout


def test_a_lightning_checkpoint_of_the_public_package(public: Any, tmp_path: Path) -> None:
    contents = lightning(public.state_dict()) | {
        "hyper_parameters": {"class_names": LABELS, "args": argparse.Namespace(lr=0.1), "data": Path("/data")},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.5)}},
    }
    path = saved(tmp_path, contents, "mine.ckpt")
    np.savez(tmp_path / "expected.npz", image=PHOTOGRAPH, logits=logits_of(public))
    options = ["--input-size", 64, "--expect", tmp_path / "expected.npz", "--max-batch", 1, "-o", tmp_path / "out"]
    result = run("resnet18", "--weights", path, *options)
    assert result.exit_code == 0, result.stderr
    found = predicted(tmp_path / "out")
    assert [found[label] for label in LABELS] == pytest.approx(logits_of(public).tolist(), rel=1e-4)
    assert "'hyper_parameters.class_names' in the weights file" in result.stdout
    assert "at 'state_dict.model'" in result.stdout
    assert "The logits agree with those in" in result.stdout
    assumed = result.stdout[result.stdout.index("Assumed") : result.stdout.index("Difference")]
    assert "probability" in assumed
    assert "bias" not in assumed
    assert "resize" not in assumed


def test_the_lines_of_the_documentation_write_the_file_to_expect(
    public: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three lines run as printed with the network, the transform and the photograph of the user."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(PHOTOGRAPH).save("photo.jpg")
    text = (Path(__file__).parents[3] / "docs" / "own_module.md").read_text("utf-8")
    (lines,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    assert lines.count("\n") == 3
    exec(lines, {"PIL": PIL, "numpy": np, "network": public, "transform": public.transform})
    expectation = read_expectation("expected.npz")
    expectation.check_module(public, builtin_registry()["resnet18"].input)
    assert expectation.is_photograph


def test_expected_logits_that_differ_are_exit_code_3(public: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, public.state_dict(), "mine.pth")
    np.savez(tmp_path / "expected.npz", image=PHOTOGRAPH, logits=(logits_of(public) + 6.906754779) / 5)
    options = ["--input-size", 64, "--expect", tmp_path / "expected.npz", "-o", tmp_path / "out"]
    result = run("resnet18", "--weights", path, *options)
    assert result.exit_code == 3
    assert "[expectation_failed]" in result.stderr
    assert "Pass --temperature 5 --logit-bias 0" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of a small network with seven classes, and files around it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    (tmp_path / "five.txt").write_text("\n".join(LABELS[:5]))
    (tmp_path / "empty.pth").touch()
    saved(tmp_path, build_model("cifar10_resnet20_bnu").state_dict(), "other.pth")
    return saved(tmp_path, build_model(derive(builtin_registry()[SMALL], classes=7)).state_dict(), "mine.pth")


@pytest.mark.usefixtures("tuned")
def test_every_constant_can_be_given() -> None:
    options = ["--logit-bias", 0, "--temperature", 5, "--set", "b=1.5", "--classes", 7, "--labels", "labels.txt"]
    options += ["--input-size", 24, "--resize", 30, "--interpolation", "bicubic", "--probability", "softmax"]
    result = run(SMALL, "--weights", "mine.pth", *options, "--max-batch", 1, "--name", "flowers")
    assert result.exit_code == 0, result.stderr
    assert "Assumed" not in result.stdout
    assert "--model flowers" in result.stdout
    manifest = find_bundle("flowers").manifest
    assert (manifest.model.name, manifest.classes, manifest.probability) == ("flowers", 7, "softmax")
    assert manifest.input.model_dump() == {
        "size": (24, 24),
        "resize": 30,
        "crop": (24, 24),
        "interpolation": "bicubic",
        "channels": "rgb+complement",
    }
    again = run(SMALL, "--weights", "mine.pth", "--name", "flowers")
    assert again.exit_code == 1
    assert "--name NAME" in again.stderr


@pytest.mark.usefixtures("tuned")
def test_labels_of_the_registry_are_assumed_for_as_many_classes(tmp_path: Path) -> None:
    saved(tmp_path, build_model(SMALL).state_dict(), "ten.pth")
    result = run(SMALL, "--weights", "ten.pth", "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "those of cifar10_plain9_b2-nomaxout: airplane, automobile, …  [--labels]" in result.stdout
    assert open_bundle("out").manifest.labels == builtin_registry()[SMALL].class_names


@pytest.mark.usefixtures("tuned")
def test_classes_without_names_are_said() -> None:
    result = run(SMALL, "--weights", "mine.pth", "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "none, pass --labels FILE to name the classes" in result.stdout
    assert open_bundle("out").manifest.labels is None


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "none.pth"], "none.pth does not exist"),
        (["--weights", "empty.pth"], "cannot read empty.pth as a torch checkpoint"),
        (["--weights", "other.pth"], "The weights fit cifar10_resnet20"),
        (["--weights", "mine.pth", "--classes", 5], "has 7 classes (its classifier 8.linear.weight is"),
        (["--weights", "mine.pth", "--classes", 5], "This looks like a fine-tuned cifar10_plain9_b2-nomaxout with 7"),
        (["--weights", "mine.pth", "--labels", "five.txt"], "five.txt has 5 labels, but mine.pth has 7 classes"),
        (["--weights", "mine.pth", "--expect", "none.npz"], "cannot read none.npz"),
        (["--weights", "mine.pth", "--expect", "labels.txt"], "cannot read labels.txt as an .npz file"),
        (["--weights", "mine.pth", "--set", "widths=[8]", "--set", "strides=[1]"], "does not contain the weights"),
    ],
)
def test_files_that_do_not_fit_are_refused(options: list[object], message: str) -> None:
    result = run(SMALL, *options, "-o", "out")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("out").exists()


OWN_REGISTRY = """
schema: 1
models:
  mymodel:
    base: cifar10_plain9_b2-nomaxout
    labels: {file: labels.txt}
    architecture: {classes: 7, logit_bias: 0, temperature: 5}
    weights: {file: mine.pth}
"""


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize("by_variable", [True, False])
def test_a_registry_of_ones_own(by_variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.yaml").write_text(OWN_REGISTRY)
    if by_variable:
        monkeypatch.setenv("BCOS_SDK_REGISTRY", "mine.yaml")
    result = run("mymodel", *([] if by_variable else ["--registry", "mine.yaml"]), "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    manifest = open_bundle("out").manifest
    assert (manifest.model.name, manifest.labels) == ("mymodel", tuple(LABELS))
    assumed = result.stdout[result.stdout.index("Assumed") : result.stdout.index("Difference")]
    assert "logit bias" not in assumed
    assert "temperature" not in assumed
    assert "B  " in assumed


@pytest.mark.usefixtures("tuned")
def test_a_changed_weights_file_of_a_registry_is_refused() -> None:
    text = OWN_REGISTRY.replace("mine.pth}", f"mine.pth, sha256: {'ab' * 32}}}")
    Path("mine.yaml").write_text(text)
    result = run("mymodel", "--registry", "mine.yaml", "-o", "out")
    assert result.exit_code == 1
    assert "[hash_mismatch]" in result.stderr


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("line", "options", "labels"),
    [
        ("", [], None),
        ("", ["--labels", "labels.txt"], tuple(LABELS)),
        ("", ["--classes", 7], None),
        ("labels: {file: labels.txt}", [], tuple(LABELS)),
    ],
)
def test_a_registry_of_ones_own_may_leave_the_classes_to_the_weights(
    line: str, options: list[object], labels: tuple[str, ...] | None
) -> None:
    text = f"schema: 1\nmodels:\n  mymodel:\n    base: {SMALL}\n    weights: {{file: mine.pth}}\n    {line}\n"
    Path("mine.yaml").write_text(text)
    result = run("mymodel", "--registry", "mine.yaml", *options, "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    manifest = open_bundle("out").manifest
    assert (manifest.classes, manifest.labels) == (7, labels)
    network = load_model(load_registry("mine.yaml")["mymodel"])
    assert network(torch.zeros(1, 6, 32, 32)).shape == (1, 7)


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("labels: {file: five.txt}", "but 5 were asked for"),
        ("architecture: {classes: 10}", "but 10 were asked for"),
    ],
)
def test_a_registry_of_ones_own_with_other_classes_is_refused(lines: str, message: str) -> None:
    text = f"schema: 1\nmodels:\n  mymodel:\n    base: {SMALL}\n    weights: {{file: mine.pth}}\n    {lines}\n"
    Path("mine.yaml").write_text(text)
    result = run("mymodel", "--registry", "mine.yaml", "-o", "out")
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.usefixtures("tuned")
def test_settings_are_named_if_the_weights_do_not_fit() -> None:
    result = run(SMALL, "--weights", "mine.pth", "--set", "max_out=2", "--set", "b=1.5", "-o", "out")
    assert result.exit_code == 1
    assert f"--set changed max_out, b of {SMALL}: this may be the reason." in result.stderr


@pytest.mark.usefixtures("tuned")
def test_a_setting_of_true_is_refused() -> None:
    result = run(SMALL, "--weights", "mine.pth", "--set", "b=true", "-o", "out")
    assert result.exit_code == 2
    assert "b: Input should be a valid number" in result.stderr


@pytest.mark.usefixtures("tuned")
def test_a_key_chooses_between_copies_that_differ(tmp_path: Path) -> None:
    states = [build_model(derive(builtin_registry()[SMALL], classes=classes)).state_dict() for classes in (3, 3)]
    path = saved(tmp_path, {"teacher": states[0], "model": states[1]}, "two.pth")
    result = run(SMALL, "--weights", path, "-o", "out")
    assert result.exit_code == 1
    assert "they differ: 'teacher' and 'model'" in result.stderr
    assert "--weights-key teacher" in result.stderr
    result = run(SMALL, "--weights", path, "--weights-key", "model", "--max-batch", 1, "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "at 'model'" in result.stdout
    assert run(SMALL, "--weights-key", "model", "--random-weights").exit_code == 2


def assumed_after(tmp_path: Path, image: np.ndarray[Any, Any], epsilon: float, *options: object) -> tuple[str, str]:
    """The summary and its assumed values, for logits of a network with that epsilon; the export uses 1e-5."""
    torch.manual_seed(0)
    spec = derive(builtin_registry()["cifar10_resnet20_bnu"], settings={"norm.eps": epsilon})
    network = build_model(spec).eval()
    for name, buffer in network.named_buffers():
        if name.endswith("running_var"):
            buffer.fill_(0.3)
    top, left = (image.shape[0] - 32) // 2, (image.shape[1] - 32) // 2
    rgb = torch.from_numpy(image[top : top + 32, left : left + 32] / 255).float().permute(2, 0, 1)
    with torch.no_grad():
        logits = network(torch.cat([rgb, 1 - rgb])[None])[0].numpy()
    np.savez(tmp_path / "expected.npz", image=image, logits=logits)
    path = saved(tmp_path, network.state_dict(), "mine.pth")
    given = ["--weights", path, "--expect", tmp_path / "expected.npz", "--max-batch", 1, "-o", tmp_path / "out"]
    result = run("cifar10_resnet20_bnu", *given, *options)
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stdout[result.stdout.index("Assumed") : result.stdout.index("Difference")]


@pytest.mark.parametrize(("epsilon", "is_close"), [pytest.param(1e-5, True, marks=pytest.mark.full), (1e-4, False)])
def test_a_wrong_epsilon_stays_listed(tmp_path: Path, epsilon: float, is_close: bool) -> None:
    text, assumed = assumed_after(tmp_path, random_pixels(1, seed=3, size=(32, 32))[0], epsilon)
    assert ("The logits agree with those in" in text) == is_close
    assert ("The logits are near those in" in text) == (not is_close)
    for name in ("norms", "logit bias", "preprocessing"):
        assert (name in assumed) == (not is_close)


@pytest.mark.full
def test_a_photograph_that_is_not_resized_does_not_compare_the_resize(tmp_path: Path) -> None:
    photograph = random_pixels(1, seed=3, size=(36, 40))[0]
    _, assumed = assumed_after(tmp_path, photograph, 1e-5, "--input-size", 32, "--resize", 36)
    assert "interpolation" in assumed
    assert "norms" not in assumed


def test_random_weights_take_the_number_of_classes(tmp_path: Path) -> None:
    result = run(SMALL, "--random-weights", "--classes", 3, "--max-batch", 1, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert open_bundle(tmp_path / "out").manifest.classes == 3
