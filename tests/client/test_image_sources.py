"""Mutable images are read at once, so the caller may change them afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence
from support.bundles import SIZE, cropped, random_pixels

from bcos_sdk import Client, Explained, Failure
from bcos_sdk.images import encode


def test_a_stream_accepts_a_single_image(client: Client, photograph: Path) -> None:
    (pixels,) = random_pixels(1)
    for image in (pixels, str(photograph), photograph.read_bytes(), Image.open(photograph).copy()):
        assert len(list(client.predict_stream(image))) == 1  # type: ignore[arg-type]
        assert len(list(client.explain_stream(image))) == 1  # type: ignore[arg-type]


def levels(pixels: Any) -> int:
    return round(float(np.asarray(pixels).mean()))


@pytest.mark.parametrize("encoded", [False, True])
def test_a_buffer_may_be_reused_for_the_next_image(client: Client, encoded: bool) -> None:
    """A camera writes all frames into one array."""
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


def test_each_frame_of_an_animation_is_one_image(client: Client) -> None:
    shades = [0, 80, 160, 240] * 3
    file = io.BytesIO()
    first, *others = (Image.new("L", (64, 48), shade) for shade in shades)
    first.save(file, "GIF", save_all=True, append_images=others, duration=list(range(10, 130, 10)))
    with Image.open(file) as animation:
        results = list(client.explain_stream(ImageSequence.Iterator(animation)))
    seen = [levels(result.explanations[0].image) for result in results if isinstance(result, Explained)]
    assert seen == shades


@pytest.mark.parametrize("suffix", ["PNG", "WEBP", "BMP", "JPEG"])
def test_threads_may_share_a_lazily_opened_picture(client: Client, suffix: str) -> None:
    file = io.BytesIO()
    Image.fromarray(random_pixels(1, size=(400, 500))[0]).save(file, suffix)
    expected = client.predict(file.getvalue())[0].classes[0].logit
    for _ in range(5):
        with Image.open(io.BytesIO(file.getvalue())) as lazy, ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client.predict, [lazy] * 3) for _ in range(4)]
            for prediction in (one for call in calls for one in call.result()):
                assert prediction.classes[0].logit == pytest.approx(expected, rel=1e-4)


def test_an_array_with_a_batch_axis_is_a_collection(client: Client) -> None:
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


def test_sources_whose_name_cannot_be_read_are_named_by_position(client: Client, photograph: Path) -> None:
    images: list[Any] = [photograph, Nameless(photograph.read_bytes()), OddPath(), Nameless(b"x")]
    good, nameless, odd, bad = client.explain(images, on_error="return")
    assert isinstance(good, Explained)
    assert isinstance(nameless, Explained)
    assert nameless.source == "image 1"
    assert isinstance(odd, Failure)
    assert isinstance(bad, Failure)
    for one in (good, nameless, odd, bad):
        assert type(one).from_json(one.to_json()) == one


def test_every_failure_has_a_source_and_a_hint(client: Client) -> None:
    images: list[Any] = [b"", "missing.png", 3, np.full((2, 2), 2.0, np.float32), Image.new("F", (40, 40), 2.0)]
    for place, failure in enumerate(client.explain(images, on_error="return")):
        assert isinstance(failure, Failure)
        assert failure.hint, images[place]
        assert failure.source == ("missing.png" if place == 1 else f"image {place} ({type(images[place]).__name__})")
