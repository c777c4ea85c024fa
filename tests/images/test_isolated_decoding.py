"""Isolated decoding gives the results and errors of decoding in this process, and leaves no process behind."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.decoders import HANG, SPIN, child_pids, obedient_decoders, open_files
from support.image_files import exif, png, png_chunk, tiff, with_chunks, with_segments
from support.waiting import until

from bcos_sdk._processes import python_command
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ClientClosedError, DecoderCrashedError, DecodingTimeoutError, InputError
from bcos_sdk.images import DecodingPool, LoadedImage, _decoding_process, load_image
from bcos_sdk.limits import Limits

SPEC = InputSpec(size=(24, 24), resize=28, crop=(24, 24))
HERE, ISOLATED = Limits(), Limits(decoding="isolated", decoding_seconds=60)
LEVELS = np.random.default_rng(5).integers(0, 256, (61, 83, 3), np.uint8)
DEEP = np.random.default_rng(6).integers(0, 4096, (61, 83, 3)).astype(np.uint16)

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def saved(suffix: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(LEVELS).convert(mode).save(file, suffix, **options)
    return file.getvalue()


FILES: dict[str, bytes] = {
    "JPEG": saved("JPEG"),
    "progressive JPEG": saved("JPEG", progressive=True),
    "grey JPEG": saved("JPEG", "L"),
    "CMYK JPEG": saved("JPEG", "CMYK"),
    "rotated JPEG": with_segments(saved("JPEG"), (0xE1, b"Exif\0\0" + exif(6))),
    "PNG": saved("PNG"),
    "PNG with palette": saved("PNG", "P"),
    "PNG with alpha": saved("PNG", "RGBA"),
    "PNG of 16 bits": png(DEEP),
    "grey PNG of 16 bits": png(DEEP[..., 0]),
    "PNG that states its bits": with_chunks(png(DEEP), png_chunk(b"sBIT", bytes([12, 12, 12]))),
    "lossy WebP": saved("WEBP"),
    "lossless WebP": saved("WEBP", lossless=True),
    "animated WebP": saved("WEBP", save_all=True, append_images=[Image.new("RGB", (83, 61))]),
    "BMP": saved("BMP"),
    "GIF": saved("GIF", "P"),
    "TIFF": tiff(LEVELS),
    "compressed TIFF": tiff(LEVELS, compressed=True),
    "TIFF of 16 bits": tiff(DEEP),
    "TIFF with pages": saved("TIFF", save_all=True, append_images=[Image.new("RGB", (8, 8))]),
    "no image": b"not an image",
    "nothing": b"",
    "cut off": saved("PNG")[:900],
    "no pixels": png(LEVELS[:0]),
    "a line": png(np.zeros((1, 3_000_000), np.uint8)),
    "separate planes": tiff(DEEP, separate=True),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodingPool]:
    with DecodingPool(1) as pool:
        yield pool


def outcome(contents: Any, limits: Limits, **options: Any) -> Any:
    try:
        return load_image(contents, "the file", SPEC, limits, **options)
    except BcosError as error:
        return error


@pytest.mark.parametrize("enlarge", [1, 2])
@pytest.mark.parametrize("name", FILES)
def test_results_and_errors_are_those_of_this_process(name: str, enlarge: int, pool: DecodingPool) -> None:
    wanted = outcome(FILES[name], HERE, enlarge=enlarge)
    found = outcome(FILES[name], ISOLATED, enlarge=enlarge, pool=pool)
    assert type(found) is type(wanted)
    if isinstance(wanted, BcosError):
        assert (found.message, found.hint, found.source) == (wanted.message, wanted.hint, wanted.source)
        return
    np.testing.assert_array_equal(found.pixels, wanted.pixels)
    np.testing.assert_array_equal(found.encoded, wanted.encoded)
    assert (found.encoded.dtype, found.pixels.dtype) == (wanted.encoded.dtype, wanted.pixels.dtype)
    assert (found.notes, found.geometry) == (wanted.notes, wanted.geometry)
    assert (found.display is None) == (wanted.display is None) == (enlarge == 1)
    if wanted.display is not None:
        np.testing.assert_array_equal(found.display, wanted.display)


def test_paths_and_files_are_isolated_and_pictures_are_not(
    tmp_path: Path, pool: DecodingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(FILES["PNG"])
    wanted = load_image(FILES["PNG"], "photo", SPEC, HERE)
    decoded: list[str] = []
    decode = DecodingPool.decode

    def watched(self: DecodingPool, contents: bytes, source: str, *rest: Any) -> Any:
        decoded.append(source)
        return decode(self, contents, source, *rest)

    monkeypatch.setattr(DecodingPool, "decode", watched)
    images: dict[str, Any] = {
        "path": path,
        "text": str(path),
        "bytes": FILES["PNG"],
        "view": memoryview(FILES["PNG"]),
        "file": io.BytesIO(FILES["PNG"]),
        "PIL": Image.open(path),
        "array": LEVELS,
    }
    for name, image in images.items():
        found = load_image(image, name, SPEC, ISOLATED, pool=pool)
        np.testing.assert_array_equal(found.pixels, wanted.pixels, err_msg=name)
    assert decoded == ["path", "text", "bytes", "view", "file"]
    load_image(path, "in this process", SPEC, HERE, pool=pool)
    assert "in this process" not in decoded


def test_limits_hold_in_the_child_process(pool: DecodingPool) -> None:
    for limits in ({"pixels": 100}, {"bytes": 100}, {"formats": ("JPEG",)}):
        wanted = outcome(FILES["PNG"], Limits(**limits))
        found = outcome(FILES["PNG"], Limits(decoding="isolated", **limits), pool=pool)
        assert (type(found), str(found)) == (type(wanted), str(wanted))


def test_format_that_only_a_plug_in_of_this_process_reads_is_an_error(
    pool: DecodingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Image.OPEN, "OWN", Image.OPEN["PNG"])
    with pytest.raises(InputError, match=r"cannot be decoded in a child process: .*cannot read the formats OWN"):
        load_image(FILES["PNG"], "photo", SPEC, Limits(decoding="isolated", formats=("OWN",)), pool=pool)


@needs_proc
def test_processes_are_few_and_end_with_the_pool() -> None:
    before, files = child_pids(), open_files()
    with DecodingPool(2) as pool:
        assert child_pids() == before, "none is started before it is needed"
        for _ in range(3):
            load_image(FILES["PNG"], "photo", SPEC, ISOLATED, pool=pool)
        assert len(child_pids() - before) == 1
        threads = [
            threading.Thread(target=load_image, args=(FILES["JPEG"], "photo", SPEC, ISOLATED), kwargs={"pool": pool})
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool.start()
        assert len(child_pids() - before) == 2
    assert child_pids() == before
    assert open_files() == files
    with pytest.raises(ClientClosedError):
        load_image(FILES["PNG"], "photo", SPEC, ISOLATED, pool=pool)
    pool.close()


@needs_proc
def test_pool_that_is_not_closed_ends_its_processes_when_it_is_collected() -> None:
    before, files = child_pids(), open_files()
    pool = DecodingPool(1)
    pool.start()
    assert child_pids() != before
    del pool
    gc.collect()
    assert (child_pids(), open_files()) == (before, files)


@needs_proc
def test_close_ends_an_image_that_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    obedient_decoders(monkeypatch)
    before = child_pids()
    pool = DecodingPool(1)
    errors: list[Any] = []
    running = threading.Thread(target=lambda: errors.append(outcome(HANG, ISOLATED, pool=pool)))
    waiting = threading.Thread(target=lambda: errors.append(outcome(HANG, ISOLATED, pool=pool)))
    running.start()
    until(lambda: child_pids() != before)
    waiting.start()
    pool.close()
    for thread in (running, waiting):
        thread.join(30)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [ClientClosedError] * 2
    assert child_pids() == before


@needs_proc
def test_idle_process_that_was_killed_is_replaced(pool: DecodingPool) -> None:
    pool.start()
    children = child_pids()
    for pid in children:
        if b"_decoding_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    assert isinstance(outcome(FILES["PNG"], ISOLATED, pool=pool), LoadedImage)


@needs_proc
def test_process_that_keeps_memory_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    leaking = (
        "from bcos_sdk.images import _decoding_worker as worker\nkept = []\ndecode_image = worker.decode_image\n"
        "worker.decode_image = lambda *given: (kept.append(bytearray(40 << 20)), decode_image(*given))[1]\n"
        "worker.main()\n"
    )
    monkeypatch.setattr(_decoding_process, "_PROGRAM", leaking)
    limits = Limits(decoding="isolated", decoding_memory=100 << 20)
    before = child_pids()
    with DecodingPool(1) as pool:
        for _ in range(5):  # 200 MiB in one process would be over the limit
            assert isinstance(outcome(FILES["PNG"], limits, pool=pool), LoadedImage)
            assert child_pids() == before


def test_process_that_does_not_start_is_an_error_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decoding_process, "_PROGRAM", "import no_such_module")
    with pytest.raises(DecoderCrashedError, match=r"cannot be started.*No module named 'no_such_module'") as caught:
        load_image(FILES["PNG"], "photo", SPEC, ISOLATED)
    assert caught.value.source == "photo"
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(DecoderCrashedError, match="cannot be started"):
        load_image(FILES["PNG"], "photo", SPEC, ISOLATED)


def test_threads_may_start_a_pool_at_once() -> None:
    with DecodingPool(2) as pool:
        threads = [threading.Thread(target=pool.start, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="processor time is not bounded there")
def test_processor_time_is_bounded_by_the_child_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a busy decoder ends although its client was killed, and nobody watches the wall time."""
    obedient_decoders(monkeypatch)
    limits = Limits(decoding="isolated", decoding_seconds=0.1)
    job = {
        "source": "photo",
        "size": len(SPIN),
        "spec": SPEC.model_dump(mode="json"),
        "limits": limits.model_dump(mode="json"),
        "enlarge": 1,
    }
    process = _decoding_process.DecodingProcess()
    with pytest.raises(DecodingTimeoutError):
        process.run(job, SPIN, (1, 1), seconds=300)
    process.end()


_PARENT = """
import os, time
from bcos_sdk.images import DecodingPool
pool = DecodingPool(2)
pool.start()
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)
print(json.dumps([process._child.pid for process in pool._processes]), flush=True)
time.sleep(600)
"""


@needs_proc
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_processes_end_with_a_killed_parent(how: str) -> None:
    """Also if the parent forked before: the copies of the pipes in the other process do not keep them alive."""
    parent = subprocess.Popen(python_command(_PARENT, how), stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    try:
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 2
        parent.kill()
        parent.wait()
        until(lambda: not any(_is_decoder(pid) for pid in pids))
    finally:
        os.killpg(parent.pid, signal.SIGKILL) if how == "fork" else parent.kill()
        parent.stdout.close()


def _is_decoder(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
        return status != "Z" and b"_decoding_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
