"""Pictures of a model with a small input have the detail of the photograph, not that of the input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support.bundles import SIZE, random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.cli import main


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    """Stripes of six pixels, which the input of 28 × 20 pixels cannot show."""
    stripes = np.zeros((480, 700, 3), np.uint8)
    stripes[:, np.arange(700) % 12 < 6] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    return tmp_path / "stripes.png"


def test_an_overlay_is_as_sharp_as_the_photograph(client: Client, photograph: Path) -> None:
    (result,) = client.explain(photograph, targets=["fox", "lynx"])
    fox, lynx = result.explanations
    assert fox.image.shape == (*SIZE, 3)
    assert np.ptp(fox.image[10, 5:-5, 0].astype(int)) < 60, "the network received grey"
    assert fox.overlay().size == (28 * 12, 20 * 12)
    assert np.std(fox.display[100, :, 0].astype(float)) > 90, "the display shows black and white stripes"
    assert np.std(np.asarray(fox.overlay().convert("L"), float)[100]) > 60
    assert fox.geometry is not None
    assert fox.geometry.original == (700, 480)
    assert np.shares_memory(fox.display, lynx.display), "one image is held once"


def test_an_image_without_more_detail_is_not_held_twice(client: Client) -> None:
    (pixels,) = random_pixels(1, size=(20, 28))
    (result,) = client.explain(pixels)
    assert "display" not in result.explanations[0].arrays
    assert result.explanations[0].overlay().size == (28 * 12, 20 * 12)


def test_the_command_line_writes_the_pictures_of_the_client(client: Client, photograph: Path, tmp_path: Path) -> None:
    (result,) = client.explain(photograph, targets=["fox"], weights=True)
    (fox,) = result.explanations
    kinds: dict[str, Callable[[], Image.Image]] = {"overlay": fox.overlay, "rgba": fox.rgba, "heatmap": fox.heatmap}
    options = ["--target", "fox", "--save", ",".join(kinds), "--out", str(tmp_path / "out"), "--device", "cpu"]
    outcome = CliRunner().invoke(main, ["predict", str(photograph), "--model", str(small_bundle().path), *options])
    assert outcome.exit_code == 0, outcome.stderr
    for kind, draw in kinds.items():
        with Image.open(tmp_path / "out" / f"stripes.png.{kind}.png") as saved:
            np.testing.assert_array_equal(np.asarray(saved), np.asarray(draw()), err_msg=kind)
