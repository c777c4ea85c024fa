"""Hostile variants of valid documents and files: wrong types, huge numbers, deep nesting, damaged bytes."""

from __future__ import annotations

import copy
import io
import json
import math
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

__all__ = ["HOSTILE", "changed", "damaged", "deep", "hostile_json", "hostile_npz", "members_of"]

HUGE = 10**400
DEPTH = 100_000

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**63, 2**64, -(2**63), HUGE, -HUGE),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *(
        "",
        " ",
        "\0",
        "..",
        "../../x",
        "/etc/passwd",
        "{{entries}}",
        "{{title}}",
        "%s %d",
        "{0}",
        "NaN",
        "1e400",
        "true",
    ),
    *("\ud800", "\x1b[2J", "=1+1", "é", "e\u0301", "🙂", "a" * 300, "x" * 100_000, "2001-01-01", "1_0", "²", "٣"),
    *([], {}, [[]], [None], [0, 0], [-1, 2], [HUGE, HUGE], {"": None}, {"a": {"b": {}}}, [1] * 10_000),
)
"""Values that a document may have where another one was expected."""

RAW = (
    *("1" * 5000, "-" + "9" * 5000, "1e999999", "-1e999999", "0.1e-99999", "-0", "Infinity", "NaN", "01", "1.", "tru"),
    *('"\\ud800"', '"\\udfff\\ud800"', '"\\x"', '"', "'a'", "//", "\ufeff1", "[1,]", '{"a":1,"a":2}', "{,}", "\x00"),
    *("[" * DEPTH, "[" * DEPTH + "]" * DEPTH, '{"a":' * 5000 + "1" + "}" * 5000, "[" * 400 + "]" * 400),
)
"""Texts in place of a value, most of them no JSON."""

_MARK = "raw fragment"


def deep(depth: int = DEPTH) -> dict[str, Any]:
    """A dict in a dict in a dict, and so on."""
    document: dict[str, Any] = {}
    for _ in range(depth):
        document = {"a": document}
    return document


def changed(document: Any, random: Random, values: tuple[Any, ...] = HOSTILE) -> Any:
    """A copy with one to three values replaced, removed, repeated or renamed."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        document = _changed_once(document, random, values)
    return document


def _changed_once(document: Any, random: Random, values: tuple[Any, ...]) -> Any:
    places = list(_places(document))
    if not places or random.random() < 0.03:
        return copy.deepcopy(random.choice(values))
    holder, key = random.choice(places)
    action = random.random()
    if action < 0.75:
        holder[key] = copy.deepcopy(random.choice(values))
    elif action < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * random.choice((1, 1000)))
    else:
        name = random.choice([value for value in values if isinstance(value, str)])
        holder[name] = holder.pop(key) if random.random() < 0.5 else random.choice(values)
    return document


def _places(document: Any) -> Any:
    """Every place in the document that a value can be put into."""
    if isinstance(document, (dict, list)):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


def hostile_json(document: Any, random: Random) -> bytes:
    """The document as JSON, with hostile values, with fragments that are no JSON, or with damaged bytes."""
    choice = random.random()
    if choice < 0.15:
        return damaged(json.dumps(document).encode(), random)
    if choice < 0.35:
        text = json.dumps(changed(document, random, (_MARK,)))
        return text.replace(f'"{_MARK}"', random.choice(RAW)).encode("utf-8", "surrogatepass")
    ascii_only = random.random() < 0.8
    return json.dumps(changed(document, random), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def damaged(contents: bytes, random: Random) -> bytes:
    """The bytes with some of them changed, removed, repeated or inserted; sometimes other bytes altogether."""
    if random.random() < 0.05:
        return random.choice((b"", b"\0", b"\xff" * 100, b"\xef\xbb\xbf", b"PK\x03\x04", b"\x80\x02.", b"\n" * 1000))
    found = bytearray(contents)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        place = random.randrange(len(found) + 1)
        action = random.randrange(6)
        if action == 0 and place < len(found):
            found[place] ^= 1 << random.randrange(8)
        elif action == 1 and place < len(found):
            found[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif action == 2:
            del found[place : place + random.choice((1, 2, 8, 100, len(found)))]
        elif action == 3:
            found[place:place] = found[place : place + random.choice((1, 8, 100))]
        elif action == 4:
            found[place:place] = bytes(random.randrange(256) for _ in range(random.choice((1, 4, 16))))
        else:
            inserted = (b"\xff\xff\xff\xff\x0f", b"\x80" * 12, b"\xed\xa0\x80", b"\0" * 8, b"\r\n", b"-1", b"9" * 30)
            found[place : place + random.choice((0, 4, 8))] = random.choice(inserted)
    return bytes(found)


# --------------------------------------------------------------------------------------------- archives of arrays

_TYPES = ("<f4", ">f4", "<f8", "<f2", "|u1", "|i1", "<i8", "<u8", "|b1", "<c8", "|O", "<U5", "|S3", "<M8[s]", "|V4")
_HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }",
    "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': [('a', '<f4'), ('b', '%s')], 'fortran_order': True, 'shape': (2, 3), }",
    "{'descr': '<f4', 'fortran_order': %s, 'shape': (2,)}",
    "%s",
)
_PARTS = (
    "-1",
    "99999999999",
    "1" * 400,
    "True",
    "'a'",
    "()",
    "[" * 3000,
    "|O",
    "<f99",
    "<U999999999",
    "",
    "(((",
    "0.5",
)


def hostile_npz(arrays: dict[str, Any], random: Random) -> bytes:
    """An archive of these arrays in which one is left out, has other values or another type, or has damaged bytes."""
    arrays = dict(arrays)
    members = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    name = random.choice(list(arrays))
    choice = random.random()
    if choice < 0.45:
        members[f"{name}.npy"] = _npy(_other_array(np.asarray(arrays[name]), random))
    elif choice < 0.65:
        header = random.choice(_HEADERS).replace("%s", random.choice(_PARTS)).encode("latin-1")
        body = members[f"{name}.npy"][128:]
        version = random.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
        size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
        members[f"{name}.npy"] = b"\x93NUMPY" + version + size + header + body
    elif choice < 0.75:
        members[f"{name}.npy"] = damaged(members[f"{name}.npy"], random)
    elif choice < 0.85:
        del members[f"{name}.npy"]
    contents = _zip(members, random)
    return damaged(contents, random) if random.random() < 0.25 else contents


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _other_array(array: Any, random: Random) -> Any:
    choice = random.randrange(6)
    if choice == 0 and array.dtype.kind == "f":
        other = np.array(array)
        other.flat[random.randrange(max(other.size, 1))] = random.choice((np.nan, np.inf, -np.inf, 3e38))
        return other
    if choice == 1:
        kind = np.dtype(random.choice(_TYPES))
        return np.zeros(array.shape, kind)
    if choice == 2:
        shapes = ((), (0,), (1,), (0, 3), (2, 0, 3), array.shape[::-1], (1, *array.shape), (1,) * 32)
        return np.zeros(random.choice(shapes), array.dtype)
    if choice == 3 and array.dtype.kind in "iu":
        return np.array(random.choice((-1, 10**6, 2**62)), np.int64)
    if choice == 4:
        return np.array(random.choice(("", "{}", "[]", "\0", "[" * DEPTH, "NaN", '{"a": 1}')))
    return np.full(array.shape, 0, array.dtype)


def _zip(members: dict[str, bytes], random: Random) -> bytes:
    file = io.BytesIO()
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
        if random.random() < 0.1:
            archive.writestr(random.choice(("../evil", "x" * 60_000, "a.npy/b", "\u202e.npy")), b"")
    return file.getvalue()


def members_of(contents: bytes) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def hostile_zip(contents: bytes, random: Random, change: Callable[[str, bytes], bytes]) -> bytes:
    """The zip file with one member changed."""
    members = members_of(contents)
    name = random.choice(list(members))
    members[name] = change(name, members[name])
    return _zip(members, random)
