"""Any file name that the system has: processed, shown escaped, and kept exactly in JSON Lines and Parquet."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.predicting import add_image, command, contents, lines, records, run

from bcos_sdk._plain_text import plain
from bcos_sdk.cli.predict._output_names import OutputNames
from bcos_sdk.images import source_name, source_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow every name")

ESCAPES = "\x1b[31mred\x1b[0m\x07\r\x9b2J\u202egnp.png"


def test_a_name_that_is_no_utf8_is_processed_and_kept_exactly(images: Path) -> None:
    path = Path(os.fsdecode(b"caf\xe9 %41\xff.png"))
    add_image(path)
    result = run(".", "--report", "--save", "overlay,npz", "--format", "jsonl", "--out", "out")
    assert result.exit_code == 0, result.output
    source = next(line["source"] for line in lines(result) if line["source"].startswith("file://"))
    assert source == f"file://{Path.cwd()}/caf%E9%20%2541%FF.png"
    assert source_path(source) == path.absolute()
    record = next(record for record in records() if record["result"]["source"] == source)
    assert all((Path("out") / file).is_file() for file in record["files"])
    resumed = run(".", "--report", "--save", "overlay,npz", "--format", "jsonl", "--out", "out", "--resume")
    assert resumed.stdout == ""
    listed = run("-", "--format", "csv", stdin=os.fsencode(path))
    assert next(csv.DictReader(io.StringIO(listed.stdout)))["source"] == source


@pytest.mark.parametrize("length", [231, 249, 255])
def test_a_long_name_is_processed(images: Path, length: int) -> None:
    for letter in "xy":
        add_image(images / f"{letter * (length - 5)}{letter}.png")
    add_image(images / ("ü" * ((length - 4) // 2) + ".png"))
    result = run(images, "--save", "overlay,rgba,heatmap,npz", "--top-k", 2, "--out", "out")
    assert result.exit_code == 0, result.output
    listed = [file for record in records() for file in record["files"]]
    assert len(listed) == 5 * 8
    assert contents().keys() == {"results.jsonl", *listed}


def test_escape_codes_in_names_are_shown_escaped_and_kept_exactly(images: Path) -> None:
    add_image(Path(ESCAPES))
    text = run(ESCAPES, "missing\x1b5m.png")
    for shown in (text.stdout, text.stderr):
        assert "\\x1b" in shown
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(shown)
    table = run(ESCAPES, "--format", "csv")
    rows = csv.DictReader(io.StringIO(table.stdout_bytes.decode(), newline=""))
    assert {row["source"] for row in rows} == {"\\x1b[31mred\\x1b[0m\\x07\\r\\x9b2J\\u202egnp.png"}
    (line,) = lines(run(ESCAPES, "--format", "jsonl"))
    assert line["source"] == ESCAPES
    nothing = run("no\x1b[31m*.png")
    assert "\\x1b[31m" in nothing.stderr
    assert "\x1b" not in nothing.stderr


@pytest.mark.parametrize("form", ["text", "csv", "jsonl"])
def test_no_format_sends_escape_codes_to_a_terminal(images: Path, form: str) -> None:
    add_image(Path(ESCAPES))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(ESCAPES, "--format", form), stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the process has closed the terminal
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert b"red" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown.decode())


def test_escape_codes_are_kept_in_parquet(images: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'bcos-sdk[parquet]'")
    add_image(Path(ESCAPES))
    run(ESCAPES, "--format", "parquet", "--out", "out")
    assert set(parquet.read_table("out/results.parquet").column("source").to_pylist()) == {ESCAPES}


def test_folders_named_like_outputs_are_not_in_the_way(images: Path) -> None:
    for name in ("results.jsonl", "report.html", "a.png.overlay.png", "a.png.npz"):
        add_image(images / name / "x.png")
    add_image(images / "a.png.1.png")
    result = run(images, "--save", "overlay,npz", "--report", "--out", "out")
    assert result.exit_code == 0, result.output
    assert len(records()) == 7
    assert all((Path("out") / file).is_file() for record in records() for file in record["files"])


def test_images_with_the_same_name_do_not_overwrite_each_other(images: Path) -> None:
    add_image(images / "other" / "a.png", seed=9)
    run(images / "a.png", images / "other" / "a.png", "--save", "overlay", "--out", "out")
    assert {path.name for path in Path("out").glob("*.overlay.png")} == {"a.png.overlay.png", "a-2.png.overlay.png"}


# Every name that Linux allows: bytes without "/" and NUL, as Python decodes them.
FILE_NAMES = (
    st.one_of(
        st.binary(min_size=1, max_size=255),
        st.text(min_size=1, max_size=255).map(lambda text: text.encode("utf-8", "surrogatepass")[:255]),
        st.sampled_from([b"a.png", b"A.png", b"a-2.png", b"a.png.1", b"a.png.overlay.png", b"...", b" "]),
    )
    .map(lambda name: os.fsdecode(name.replace(b"/", b"_").replace(b"\0", b"_")))
    .filter(lambda name: name not in (".", ".."))
)
PATHS = st.lists(FILE_NAMES, min_size=1, max_size=3).map("/".join)
KINDS = [f"{number}{kind}" for number in ("", ".1", ".2", ".1000") for kind in (".overlay.png", ".npz")]


@given(st.lists(PATHS, min_size=1, max_size=12, unique=True))
def test_distinct_names_give_distinct_files_that_every_system_allows(images: list[str]) -> None:
    names = OutputNames()
    stems = [names.give(image) for image in images]
    files = [f"{stem}{kind}" for stem in stems for kind in KINDS]
    assert len({file.casefold() for file in files}) == len(images) * len(KINDS)
    for file in files:
        parts = file.encode("utf-8").split(b"/")
        assert all(0 < len(part) <= 255 for part in parts)
        assert not {b".", b"..", b"results.jsonl", b"report.html", b"results.parquet", b".report.jsonl"} & set(parts)
    folders = {parent for file in files for parent in map(str, Path(file).parents)}
    assert not folders & set(files)


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert OutputNames().give(f"folder/{name}.png") == f"folder/{name}.png"


@given(PATHS)
def test_a_path_is_restored_from_its_source(path: str) -> None:
    source = source_name(Path(path), 0)
    source.encode("utf-8")
    assert source_path(source) in (Path(path), Path(path).absolute())


@given(st.text() | st.binary().map(os.fsdecode))
def test_shown_text_has_no_control_characters_and_is_shown_the_same_twice(text: str) -> None:
    shown = plain(text)
    assert plain(shown) == shown
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in shown)
    assert text.isprintable() <= (shown == text)
