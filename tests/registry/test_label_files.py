"""Labels in a text file: line i names class i."""

from __future__ import annotations

from pathlib import Path

import pytest

from bcos_sdk.errors import InputError
from bcos_sdk.registry import load_labels, read_labels


def write(tmp_path: Path, contents: bytes) -> Path:
    path = tmp_path / "labels.txt"
    path.write_bytes(contents)
    return path


@pytest.mark.parametrize(
    "contents",
    [
        b"cat\ndog\nowl",
        b"cat\ndog\nowl\n",
        b"cat\r\ndog\r\nowl\r\n",
        b"\xef\xbb\xbfcat\ndog\nowl\n\n \n\t\r\n",
        b"cat \n\tdog\n  owl\n",
    ],
)
def test_a_byte_order_mark_spaces_and_an_empty_end_are_left_out(tmp_path: Path, contents: bytes) -> None:
    assert read_labels(write(tmp_path, contents)) == ("cat", "dog", "owl")


def test_labels_may_have_any_characters(tmp_path: Path) -> None:
    names = ("chat noir", "großer Hund", "梟", "line\u2028separator", "a,b", "#not a comment")
    assert read_labels(write(tmp_path, "\n".join(names).encode())) == names


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"cat\n\ndog\n", "has no label in line 2"),
        (b"\n\ncat\n", "has no label in line 1"),
        (b"\xef\xbb\xbfcat\ndog\n \nowl", "has no label in line 3"),
        (b"cat\ndog\nowl\ndog\n", "has the label 'dog' twice, in line 2 and in line 4"),
        (b"cat\n cat\n", "has the label 'cat' twice, in line 1 and in line 2"),
        (b"", "contains no labels"),
        (b"\xef\xbb\xbf\n\n", "contains no labels"),
        ("Käse".encode("latin-1"), "cannot read the labels"),
        ("cat".encode("utf-16"), "cannot read the labels"),
    ],
)
def test_a_faulty_file_is_an_error_with_its_line(tmp_path: Path, contents: bytes, message: str) -> None:
    path = write(tmp_path, contents)
    with pytest.raises(InputError) as caught:
        read_labels(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_does_not_exist_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the labels"):
        read_labels(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["imagenet", "cifar10"])
def test_the_label_sets_are_valid_files(tmp_path: Path, name: str) -> None:
    names = load_labels(name)
    assert read_labels(write(tmp_path, "\n".join(names).encode())) == names
