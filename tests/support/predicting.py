"""Runs of `bcos-sdk predict` for tests, in this process and in another one."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from PIL import Image

from bcos_sdk.cli import main
from support.bundles import random_pixels


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run the command in this process, on the device that starts fastest."""
    return CliRunner().invoke(main, ["predict", "--device", "cpu", *map(str, arguments)], input=stdin)


def command(*arguments: object) -> list[str]:
    """The command for another process."""
    program = "from bcos_sdk.cli import main; main()"
    return [sys.executable, "-c", program, "predict", "--device", "cpu", *map(str, arguments)]


def lines(result: Result) -> list[dict[str, Any]]:
    """The JSON Lines that the command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def names(result: Result) -> list[str]:
    """The file names of the images in the JSON Lines that the command printed."""
    return [Path(line["source"]).name for line in lines(result)]


def records(folder: str | Path = "out") -> list[dict[str, Any]]:
    """The record of an output folder."""
    return [json.loads(line) for line in (Path(folder) / "results.jsonl").read_text("utf-8").splitlines()]


def contents(folder: str | Path = "out") -> dict[str, bytes]:
    """All files of a folder that are not hidden."""
    files = (path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def add_image(path: Path, seed: int = 0) -> Path:
    """Write a random image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        Image.fromarray(random_pixels(1, seed=seed)[0]).save(file, "PNG")
    return path


def add_bad_files(folder: Path) -> None:
    """Write three files that are no images, though their names are those of images."""
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("this is text")
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0"))
    framed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    (folder / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))
