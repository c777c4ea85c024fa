"""The report draws over the file at a higher resolution, but never over another image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.bundles import random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.cli.predict._drawings import Artist
from bcos_sdk.results import Explained

PIXELS = random_pixels(2, size=(700, 900))


@pytest.fixture(scope="module")
def artist() -> Artist:
    return Artist(small_bundle().manifest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS[0]).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def result(client: Client, path: Path) -> Explained:
    (result,) = client.explain(path, targets=["fox", "lynx"])
    return result


def test_the_display_is_read_again_with_more_pixels(artist: Artist, path: Path, result: Explained) -> None:
    sharp = artist.sharpened(path, result, 320)
    for before, after in zip(result.explanations, sharp.explanations, strict=True):
        assert (before.display.shape, after.display.shape) == ((240, 336, 3), (320, 448, 3))
        smaller = Image.fromarray(after.display).resize((28, 20), Image.Resampling.BOX)
        np.testing.assert_allclose(np.asarray(smaller, float), after.image, atol=25)
        np.testing.assert_array_equal(after.contributions, before.contributions)
    assert artist.sharpened(path, result, 224) is result, "it is large enough"


def test_a_file_that_has_changed_or_is_gone_is_not_drawn_over(artist: Artist, path: Path, result: Explained) -> None:
    Image.fromarray(PIXELS[1]).save(path)
    assert artist.sharpened(path, result, 320) is result
    path.write_bytes(b"no image")
    assert artist.sharpened(path, result, 320) is result
    path.unlink()
    assert artist.sharpened(path, result, 320) is result
