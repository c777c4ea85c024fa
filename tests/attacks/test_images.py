"""Hostile image files: each takes little time and memory, is the error of one image, and leaves nothing behind."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.attacks import attack
from support.decoders import CRASH, EXIT, HANG, LIE, child_pids, obedient_decoders
from support.hostile_images import empty_png_chunks, empty_webp_chunks, jpeg_of_scans, webp_canvas
from support.image_files import with_segments

from bcos_sdk import Failure, Limits, Prediction
from bcos_sdk.cli.predict._content import Content
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import DecodingTimeoutError, ImageTooLargeError, UnreadableImageError
from bcos_sdk.images import load_image
from bcos_sdk.testing import FakeClient

SPEC = InputSpec(size=(24, 24), resize=24, crop=(24, 24))
GENEROUS = 60.0


def load(image: Any, limits: Limits | None = None) -> Any:
    return load_image(image, "picture", SPEC, limits or Limits())


def saved(suffix: str, size: tuple[int, int] = (32, 24), **options: Any) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, suffix, **options)
    return file.getvalue()


@attack("images", "progressive JPEG of 500 kB with 1,500 scans", before="took 16 s of a decoder thread")
def test_jpeg_of_many_scans_is_refused() -> None:
    with pytest.raises(UnreadableImageError, match="takes too long to decode: it has 101 scans"):
        load(jpeg_of_scans(1500, (1000, 1000)))
    with pytest.raises(UnreadableImageError, match=r"takes too long to decode: it has \d+ scans of 49,000,000 pixels"):
        load(jpeg_of_scans(60, (7000, 7000)))


@attack("images", "JPEG of 100 kB that is one run of fill bytes", before="held the interpreter lock for 94 s")
def test_jpeg_of_fill_bytes_takes_linear_time() -> None:
    begin = time.monotonic()
    with pytest.raises(UnreadableImageError):
        load(b"\xff\xd8" + b"\xff" * 100_000)
    assert time.monotonic() - begin < 15


@attack("images", "WebP animation of 90 bytes with a canvas of 8000 × 8000", before="took 976 MiB and 3.5 s")
def test_canvas_of_an_animation_is_refused_in_the_header() -> None:
    with pytest.raises(ImageTooLargeError, match="animation of 7000 × 7000 pixels, the limit for animations"):
        load(webp_canvas(7000, 7000, animated=True))
    with pytest.raises(ImageTooLargeError, match="has 8000 × 8000 pixels"):
        load(webp_canvas(8000, 8000, animated=True))


@attack("images", "picture whose header states more pixels than the limit", before="64 million were allowed")
@pytest.mark.parametrize("animated", [False, True])
def test_canvas_is_checked_before_pillow_sees_it(animated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Pillow was called")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(ImageTooLargeError, match="16383 × 16383 pixels, the limit is 52,428,800"):
        load(webp_canvas(16383, 16383, animated=animated))


EMPTY = {
    "PNG, pixels": lambda: empty_png_chunks(b"IDAT", 200_000),
    "PNG, metadata": lambda: empty_png_chunks(b"tEXt", 200_000),
    "PNG, palette": lambda: empty_png_chunks(b"PLTE", 200_000),
    "JPEG": lambda: with_segments(saved("JPEG"), *[(0xE0, b"")] * 200_000),
    "WebP": lambda: empty_webp_chunks(200_000),
}


@attack("images", "file of hundreds of thousands of empty chunks", before="took up to 1 s per MB")
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_chunks_are_refused(kind: str) -> None:
    with pytest.raises(UnreadableImageError, match="more than 65,536 parts"):
        load(EMPTY[kind]())


@attack("images", "file replaced by a named pipe between the check and the opening", before="a thread hung for good")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("reader", [load, Content.of], ids=["the image is read", "the image is hashed"])
def test_pipe_in_place_of_a_file_does_not_block(reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regular, pipe = tmp_path / "photo.png", tmp_path / "pipe.png"
    regular.write_bytes(saved("PNG"))
    os.mkfifo(pipe)
    statuses = iter([regular.stat()])
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **options: next(statuses, None) or real(path, **options))
    outcomes: list[Any] = []

    def read() -> None:
        try:
            outcomes.append(reader(pipe))
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(GENEROUS)
    assert not thread.is_alive()
    if reader is load:
        assert isinstance(outcomes[0], UnreadableImageError)
        assert "not a regular file" in str(outcomes[0])
    else:
        assert outcomes == [None]


@attack("images", "image that takes longer than the limit, decoded in isolation", before="could not be ended")
def test_slow_image_is_ended() -> None:
    slow = jpeg_of_scans(40, (6000, 6000))
    with pytest.raises(DecodingTimeoutError, match=r"picture was not decoded within 0\.02 seconds"):
        load(slow, Limits(decoding="isolated", decoding_seconds=0.02))


@attack("images", "image that needs more memory than the limit, decoded in isolation", before="took the memory")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is bounded on Linux only")
@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "WEBP", "GIF"])
def test_large_image_fails_within_its_memory(suffix: str) -> None:
    black = io.BytesIO()
    Image.new("RGB", (6000, 6000)).save(black, suffix)
    with pytest.raises((ImageTooLargeError, UnreadableImageError)):
        load(black.getvalue(), Limits(decoding="isolated", decoding_memory=64 << 20))
    load(black.getvalue(), Limits(decoding="isolated"))


@attack("images", "decoder that hangs, crashes, exits or sends something else", before="ended or blocked the client")
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (HANG, "decoding_timeout"),
        (CRASH, "decoder_crashed"),
        (EXIT, "decoder_crashed"),
        (LIE, "decoder_crashed"),
    ],
)
def test_bad_decoder_is_the_error_of_one_image(command: bytes, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    obedient_decoders(monkeypatch)
    before = child_pids()
    good = saved("PNG")
    limits = Limits(decoding="isolated", decoding_seconds=5)
    with FakeClient(limits=limits) as client:
        results = client.predict([good, command, good, command, good], on_error="return")
        assert [type(result) for result in results] == [Prediction, Failure, Prediction, Failure, Prediction]
        assert [result.code for result in results if isinstance(result, Failure)] == [code, code]
        assert all(isinstance(result, Prediction) for result in client.predict([good] * 4)), "they are replaced"
    assert child_pids() <= before
