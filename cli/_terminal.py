"""What reaches the terminal: text of files and models is shown with its control characters escaped."""

from __future__ import annotations

import sys
import unicodedata

import click

__all__ = ["count_of", "print_error", "print_exact", "print_message", "printable"]

_SHOWN_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control and format characters (also those that reverse the text), lone surrogates, separators."""
_JOINERS = "\u200c\u200d"  # format characters inside words and emoji
_FIRST_ESCAPED_BYTE = 0xDC00  # Python stands the byte b of a name that is no UTF-8 in for by this + b


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with control characters as \x1b, and those in `keep` unchanged."""
    if text.isprintable():
        return text
    return "".join(char if char in keep else _escaped(char) for char in text)


def print_message(text: str, *, label: str = "", colour: str | None = None) -> None:
    """Print a message to stderr, after a label such as "error" or "note:"."""
    before = f"{click.style(label, fg=colour)} " if label else ""
    click.echo(before + printable(text, keep="\n"), err=True)


def print_error(code: str, text: str, source: str | None) -> None:
    """Print an error to stderr. In the name `source`, which the text may quote, line ends are escaped as well."""
    shown = text.replace(source, printable(source)) if source else text
    print_message(f"[{code}]: {shown}", label="error", colour="red")


def print_exact(text: str) -> None:
    """Print CSV or JSON Lines to stdout: every character as it is, but escaped on a terminal."""
    if sys.stdout.isatty():
        text = printable(text, keep="\n\t")
    click.echo(text.encode("utf-8"), nl=False)  # of text, click removes escape sequences if stdout is no terminal


def count_of(number: int, noun: str) -> str:
    """For example "1 image", "2,996 images"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in _SHOWN_ESCAPED or char in _JOINERS:
        return char
    byte = ord(char) - _FIRST_ESCAPED_BYTE
    if 0x80 <= byte <= 0xFF:
        return f"\\x{byte:02x}"
    return char.encode("unicode_escape").decode("ascii")
