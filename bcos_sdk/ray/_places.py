"""What a text names: a path of this machine, also as a `file://` URL, or the URL of a store."""

from __future__ import annotations

import re
from pathlib import Path

from bcos_sdk.errors import InputError
from bcos_sdk.images import source_path

__all__ = ["is_url", "local_path", "parts_of_url"]

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.DOTALL)
_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)(.*)", re.DOTALL)
"""A typing error. As a path it would be a folder whose name ends with a colon. `C:/` has one letter."""
_FILE = "file://"
_THIS_MACHINE = "file://localhost/"


def is_url(text: str) -> bool:
    """Whether the text is a URL of a store, not a path of this machine."""
    found = _URL.fullmatch(text)
    return found is not None and found[1] != "file"


def parts_of_url(text: str) -> tuple[str, str]:
    """The scheme of the URL of a store, and what follows it."""
    found = _URL.fullmatch(text)
    assert found is not None, text
    return found[1], found[2]


def local_path(text: str) -> Path:
    """The path that a path or a `file://` URL names. In the URL, percent signs encode bytes.

    Raises an `InputError` for the file of another machine, and for a URL with one slash too few.
    """
    if text.startswith(_THIS_MACHINE):
        text = f"{_FILE}/{text.removeprefix(_THIS_MACHINE)}"
    if text.startswith(_FILE) and not text.startswith(f"{_FILE}/"):
        raise InputError(
            f"{text} is a file of another machine, expected file:///folder",
            source=text,
            hint="Three slashes begin a path of this machine.",
        )
    if found := _ONE_SLASH.fullmatch(text):
        expected = f"{found[1]}://{'/' if found[1] == 'file' else ''}{found[2]}"
        raise InputError(
            f"{text} has one slash after {found[1]}:, expected {expected}",
            source=text,
            hint=f"If it is a path of this machine, pass ./{text}",
        )
    return source_path(text)
