"""What a caller hands over is read when it is taken, whatever becomes of it afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence
from support.bundles import (
    SIZE,
    cropped,
    random_pixels,
)

from bcos_sdk import Client, Explained, Failure
from bcos_sdk.images import encode


def test_one_image_alone_is_a_stream_of_one(client: Client, photograph: Path) -> None:
    (pixels,) = random_pixels(1)
    for image in (pixels, str(photograph), photograph.read_bytes(), Image.open(photograph).copy()):
        assert len(list(client.predict_stream(image))) == 1  # type: ignore[arg-type]
        assert len(list(client.explain_stream(image))) == 1  # type: ignore[arg-type]


def levels(pixels: Any) -> int:
    return round(float(np.asarray(pixels).mean()))


@pytest.mark.parametrize("encoded", [False, True])
def test_a_buffer_that_is_filled_again_is_read_in_time(client: Client, encoded: bool) -> None:
    """The frames of a camera: one array, new contents for each image."""
    shades = [0, 40, 80, 120, 160, 200, 240] * 3
    buffer = np.zeros((6, *SIZE), np.float32) if encoded else np.zeros((*SIZE, 3), np.uint8)

    def frames() -> Iterator[Any]:
        for shade in shades:
            frame = np.full((*SIZE, 3), shade, np.uint8)
            buffer[...] = encode(frame) if encoded else frame
            yield buffer

    for shade, result in zip(shades, client.explain_stream(frames()), strict=True):
        assert isinstance(result, Explained)
        assert levels(result.explanations[0].image) == shade
        assert result.explanations[0].completeness.passed


def test_the_frames_of_an_animation_are_seen_one_by_one(client: Client) -> None:
    shades = [0, 80, 160, 240] * 3
    file = io.BytesIO()
    first, *others = (Image.new("L", (64, 48), shade) for shade in shades)
    first.save(file, "GIF", save_all=True, append_images=others, duration=list(range(10, 130, 10)))
    with Image.open(file) as animation:
        results = list(client.explain_stream(ImageSequence.Iterator(animation)))
    seen = [levels(result.explanations[0].image) for result in results if isinstance(result, Explained)]
    assert seen == shades


@pytest.mark.parametrize("suffix", ["PNG", "WEBP", "BMP", "JPEG"])
def test_a_picture_that_is_not_loaded_yet_can_be_shared(client: Client, suffix: str) -> None:
    file = io.BytesIO()
    Image.fromarray(random_pixels(1, size=(400, 500))[0]).save(file, suffix)
    expected = client.predict(file.getvalue())[0].classes[0].logit
    for _ in range(5):
        with Image.open(io.BytesIO(file.getvalue())) as lazy, ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client.predict, [lazy] * 3) for _ in range(4)]
            for prediction in (one for call in calls for one in call.result()):
                assert prediction.classes[0].logit == pytest.approx(expected, rel=1e-4)


def test_arrays_of_images_are_collections(client: Client) -> None:
    images = random_pixels(3)
    assert client.predict(np.stack(images)) == client.predict(images)
    assert len(client.predict(np.stack([encode(cropped(image)) for image in images]))) == 3


class Nameless(io.BytesIO):
    @property
    def name(self) -> str:
        raise OSError("no name")


class OddPath:
    def __fspath__(self) -> bytes:
        return b"\xff.png"


def test_sources_that_cannot_say_their_name_lose_nothing(client: Client, photograph: Path) -> None:
    images: list[Any] = [photograph, Nameless(photograph.read_bytes()), OddPath(), Nameless(b"x")]
    good, nameless, odd, bad = client.explain(images, on_error="return")
    assert isinstance(good, Explained)
    assert isinstance(nameless, Explained)
    assert nameless.source == "image 1"
    assert isinstance(odd, Failure)
    assert isinstance(bad, Failure)
    for one in (good, nameless, odd, bad):
        assert type(one).from_json(one.to_json()) == one


def test_every_failure_says_where_and_what_to_do(client: Client) -> None:
    images: list[Any] = [b"", "missing.png", 3, np.zeros((2, 2), np.float32), Image.new("F", (40, 40))]
    for place, failure in enumerate(client.explain(images, on_error="return")):
        assert isinstance(failure, Failure)
        assert failure.hint, images[place]
        assert failure.source == ("missing.png" if place == 1 else f"image {place} ({type(images[place]).__name__})")
