"""Logits of the user's own code: an export that does not give them fails, and says what to change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from support.bundles import random_pixels
from torch import Tensor, nn

from bcos_sdk.contract import GraphPrecision, InputSpec
from bcos_sdk.errors import ExpectationError, InputError
from bcos_sdk.exporters import export, read_expectation
from bcos_sdk.exporters.verify import Expectation
from bcos_sdk.models.layers import BcosConv2d, LogitLayer

SIZE = (24, 24)
PHOTOGRAPH = random_pixels(1, seed=4, size=(40, 50))[0]


class Small(nn.Module):
    """One B-cos convolution and the logit layer z / temperature + bias."""

    def __init__(self, bias: float = 0.5, temperature: float = 2.0, classes: int = 5, b: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = BcosConv2d(6, classes, 3, stride=2, b=b)
        self.logits = LogitLayer(bias, temperature)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.logits(self.conv(x).mean((2, 3)))
        return out


def prepared(resize: int, resample: Image.Resampling = Image.Resampling.BILINEAR) -> npt.NDArray[np.float32]:
    """The photograph as the user's code prepares it: shorter side to `resize`, centre crop, complement appended."""
    height, width = PHOTOGRAPH.shape[:2]
    picture = Image.fromarray(PHOTOGRAPH).resize((int(resize * width / height), resize), resample)
    left, top = round((picture.width - SIZE[1]) / 2), round((picture.height - SIZE[0]) / 2)
    pixels = np.asarray(picture.crop((left, top, left + SIZE[1], top + SIZE[0])))
    rgb = (pixels / 255).astype(np.float32).transpose(2, 0, 1)
    return np.concatenate([rgb, 1 - rgb])


def logits_of(module: nn.Module, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(module.eval()(torch.from_numpy(x)[None]).numpy())


def expected(module: nn.Module, *, photograph: bool = True, resize: int = 27) -> dict[str, npt.NDArray[Any]]:
    x = prepared(resize)
    return {"image": PHOTOGRAPH if photograph else x, "logits": logits_of(module, x)}


def run(path: Path, module: nn.Module, figures: Any, **options: Any) -> Any:
    return export(module.eval(), path, input_size=SIZE, max_batch=1, expected=figures, **options)


@pytest.mark.parametrize("photograph", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_export_that_gives_the_expected_logits_succeeds(
    tmp_path: Path, photograph: bool, precision: GraphPrecision
) -> None:
    bundle = run(tmp_path / "b", Small(), expected(Small(), photograph=photograph), precision=precision)
    assert bundle.manifest.input == InputSpec.for_photographs(SIZE)


@pytest.mark.parametrize(("resize", "resampled"), [(27, True), (40, False)])
def test_an_agreement_says_whether_the_photograph_was_resized(resize: int, resampled: bool) -> None:
    spec = InputSpec.for_photographs(SIZE, resize)
    agreement = read_expectation(expected(Small(), resize=resize)).agreement(Small().eval(), spec)
    assert (agreement.is_photograph, agreement.resampled, agreement.is_close) == (True, resampled, True)
    agreement = read_expectation(expected(Small(), photograph=False)).agreement(Small().eval(), spec)
    assert (agreement.is_photograph, agreement.resampled, agreement.is_close) == (False, False, True)


@pytest.mark.parametrize(("part", "is_close"), [(2e-5, True), (5e-4, False)])
def test_an_agreement_is_close_only_within_the_rounding_of_float32(part: float, is_close: bool) -> None:
    figures = expected(Small())
    spread = float(np.ptp(figures["logits"]))
    figures["logits"][0, figures["logits"].argmin()] -= part * spread
    spec, module = InputSpec.for_photographs(SIZE), Small().eval()
    expectation = read_expectation(figures)
    expectation.check_module(module, spec)
    agreement = expectation.agreement(module, spec)
    assert agreement.difference == pytest.approx(part, rel=0.2)
    assert agreement.is_close == is_close


def hint(tmp_path: Path, module: nn.Module, figures: Any, **options: Any) -> str:
    with pytest.raises(ExpectationError) as caught:
        run(tmp_path / "b", module, figures, **options)
    assert list(tmp_path.iterdir()) == []
    assert caught.value.exit_code == 3
    assert caught.value.code == "expectation_failed"
    assert "No bundle was written." in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("bias", "temperature", "advice"),
    [
        (0.0, 5.0, "Pass --temperature 5 --logit-bias 0: then they agree."),
        (0.5, 0.1, "Pass --temperature 0.1: then they agree."),
        (-np.log(4), 2.0, "Pass --logit-bias -1.386294361: then they agree."),
        (-np.log(999), 2.0, "Your logits are ours − 7.40675. Pass --logit-bias -6.906754779: then they agree."),
        (1.25, 30.0, "Pass --temperature 30 --logit-bias 1.25: then they agree."),
    ],
)
def test_another_bias_and_temperature_are_found_with_their_values(
    tmp_path: Path, bias: float, temperature: float, advice: str
) -> None:
    text = hint(tmp_path, Small(), expected(Small(bias, temperature)))
    assert advice in text
    values = {name: float(value) for name, value in re.findall(r"--([\w-]+) (-?[\d.]+)", text)}
    found = Small(values.get("logit-bias", 0.5), values.get("temperature", 2.0))
    run(tmp_path / "b", found, expected(Small(bias, temperature)))


def test_a_small_shift_that_the_bias_hides_is_found(tmp_path: Path) -> None:
    """With a bias of −6.9 the logits differ by less than a thousandth of their size."""
    ours, theirs = Small(-6.9, 100.0), Small(-6.9, 125.0)
    assert np.allclose(expected(ours)["logits"], expected(theirs)["logits"], rtol=1e-3)
    assert "Pass --temperature 125" in hint(tmp_path, ours, expected(theirs))


def test_two_classes_fit_any_line_and_the_hint_says_so(tmp_path: Path) -> None:
    text = hint(tmp_path, Small(classes=2), expected(Small(0.0, 5.0, classes=2)))
    assert "Two classes always fit a line" in text


def test_other_preprocessing_is_found_with_its_options(tmp_path: Path) -> None:
    figures = {"image": PHOTOGRAPH, "logits": logits_of(Small(), prepared(27, Image.Resampling.BICUBIC))}
    assert "With --interpolation bicubic the logits agree" in hint(tmp_path, Small(), figures)
    assert "With --resize 24 the logits agree" in hint(tmp_path, Small(), expected(Small(), resize=24))
    other = hint(tmp_path, Small(), expected(Small(), resize=30))
    assert "Compare the preprocessing (resize, crop, interpolation)" in other


@pytest.mark.parametrize("photograph", [True, False])
def test_another_network_is_told_what_could_differ(tmp_path: Path, photograph: bool) -> None:
    text = hint(tmp_path, Small(), expected(Small(b=1.5), photograph=photograph))
    assert "No temperature and bias make them equal" in text
    assert "--set b=…" in text
    assert ("preprocessing" in text) == photograph


def test_probabilities_instead_of_logits_are_recognised(tmp_path: Path) -> None:
    logits = expected(Small())["logits"]
    for probabilities in (1 / (1 + np.exp(-logits)), np.exp(logits) / np.exp(logits).sum()):
        text = hint(tmp_path, Small(), {"image": PHOTOGRAPH, "logits": probabilities})
        assert "The file has probabilities" in text


def test_a_factory_of_the_public_package_is_told_to_change_its_logit_layer(tmp_path: Path) -> None:
    from support import reference

    def network(temperature: float | None, bias: float) -> nn.Module:
        torch.manual_seed(0)
        conv = reference.BcosConv2d(6, 5, 3)
        return nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), reference.LogitLayer(temperature, bias))

    text = hint(tmp_path, network(None, 1.0), expected(network(5.0, 0.0)))
    assert "Set logit_temperature=5, logit_bias=0 in the logit layer of your factory" in text


def test_the_graph_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expectation, "check_module", lambda *_: None)
    assert "The module in torch agrees: please report this." in hint(tmp_path, Small(), expected(Small(0.0)))


def test_another_number_of_logits_is_an_error(tmp_path: Path) -> None:
    assert "has 4 logits, but the model has 5 classes" in hint(tmp_path, Small(), expected(Small(classes=4)))


def test_the_figures_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "expected.npz"
    figures = expected(Small())
    np.savez(path, image=figures["image"], logits=figures["logits"])
    run(tmp_path / "b", Small(), path)
    assert read_expectation(path).is_photograph
    figures = expected(Small(), photograph=False)
    batch = {"image": figures["image"][None].astype(np.float64), "logits": figures["logits"][0]}
    assert read_expectation(batch).image.shape == (6, *SIZE)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"image": PHOTOGRAPH}, "has no array logits"),
        ({}, "has no array image and no array logits"),
        ({"image": PHOTOGRAPH[..., 0], "logits": np.zeros(5)}, "the image in expected is uint8 [40, 50]"),
        ({"image": np.zeros((24, 24)), "logits": np.zeros(5)}, "the image in expected is float64 [24, 24]"),
        ({"image": np.zeros((2, 6, 24, 24)), "logits": np.zeros(5)}, "the image in expected is float64 [2, 6,"),
        ({"image": PHOTOGRAPH, "logits": np.zeros((2, 5))}, "the logits in expected are float64 [2, 5]"),
        ({"image": PHOTOGRAPH, "logits": np.arange(5)}, "the logits in expected are int64 [5]"),
        ({"image": PHOTOGRAPH, "logits": np.full(5, np.nan)}, "are not finite"),
    ],
)
def test_arrays_of_another_kind_are_an_input_error(figures: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_expectation(figures)
    assert message in str(caught.value)


def test_an_input_with_another_number_of_channels_is_an_input_error(tmp_path: Path) -> None:
    figures = {"image": np.zeros((3, *SIZE)), "logits": np.arange(5.0)}
    with pytest.raises(InputError, match=r"the image in expected is an array float64 \[3, 24, 24\]") as caught:
        run(tmp_path / "b", Small(), figures)
    assert "float [6, 24, 24]" in str(caught.value)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("contents", [b"", b"text", b"PK\x05\x06" + bytes(18), b"\x93NUMPY"])
def test_a_file_that_is_not_an_npz_is_an_input_error(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "expected.npz"
    path.write_bytes(contents)
    with pytest.raises(InputError) as caught:
        read_expectation(path)
    assert "pickle" not in str(caught.value)


def test_a_missing_file_and_one_with_objects_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_expectation(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", image=np.array([{}], dtype=object), logits=np.zeros(3))
    with pytest.raises(InputError, match=r"as an \.npz file of arrays"):
        read_expectation(tmp_path / "objects.npz")


def test_an_input_of_another_size_is_an_input_error(tmp_path: Path) -> None:
    figures = {"image": np.full((6, 8, 8), 0.5, np.float32), "logits": np.zeros(5)}
    with pytest.raises(InputError, match="the image in expected"):
        run(tmp_path / "b", Small(), figures)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offset", [-1.5e-3, -1e-3, 5e-4, 1e-3, 5.0])
def test_the_hint_names_the_bias_however_small_the_difference_is(tmp_path: Path, offset: float) -> None:
    figures = expected(Small())
    spread = float(np.ptp(figures["logits"]))
    figures["logits"] = figures["logits"] + np.float32(offset * max(1.0, 3 * spread))
    with pytest.raises(ExpectationError) as caught:
        run(tmp_path / "b", Small(), figures)
    (bias,) = re.findall(r"Pass --logit-bias (\S+): then they agree", str(caught.value))
    run(tmp_path / "b", Small(bias=float(bias)), figures)


def test_logits_that_are_equal_but_for_rounding_are_not_compared(tmp_path: Path) -> None:
    figures = {"image": PHOTOGRAPH, "logits": np.array([-6.9, -6.9000005, -6.9, -6.9, -6.9], np.float32)}
    with pytest.raises(ExpectationError, match="too close together to be compared"):
        run(tmp_path / "b", Small(), figures)
