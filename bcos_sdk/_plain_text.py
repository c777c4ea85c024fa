r"""Text that terminals, logs and tables only show: what a stranger wrote cannot move the cursor or forge a line.

File names, labels, names of models and messages of libraries may contain anything. Every character that is not shown,
but does something, is written as an escape such as \x1b: control characters, line and paragraph separators, changes of
the writing direction, other format characters and lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["plain", "plain_cell", "plain_json", "plain_lines"]

_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control and format characters, lone surrogates, line and paragraph separators."""
_JOINERS = "\u200c\u200d"  # format characters inside words and emoji
_FIRST_ESCAPED_BYTE = 0xDC00  # Python stands the byte b of a name that is no UTF-8 in for by this + b
_INDENT = "  "
# Spreadsheets run a cell that begins so as a formula; also in the wide forms. In many languages they take the semicolon
# for the end of a cell.
_FORMULA = re.compile("(^|;)([=+\\-@\uff1d\uff0b\uff0d\uff20])")


def plain(text: str) -> str:
    r"""The text as one line without effect: line ends are escaped as \n, other control characters as \x1b."""
    return text if text.isprintable() else "".join(map(_visible, text))


def plain_lines(text: str) -> str:
    """Like `plain`, but with its line ends. All lines but the first are indented: none can pass for a line of ours."""
    if text.isprintable():
        return text
    first, *others = map(plain, text.split("\n"))
    return "\n".join([first, *(line if line.startswith(_INDENT) else (_INDENT + line).rstrip() for line in others)])


def plain_cell(text: str) -> str:
    """Like `plain`, for a cell of CSV. An apostrophe goes before what a spreadsheet would run as a formula."""
    return _FORMULA.sub(r"\1'\2", plain(text))


def plain_json(text: str) -> str:
    r"""The same JSON document with such characters inside its strings as \u escapes; line ends between values stay."""
    return text if text.isprintable() else "".join(map(_visible_in_json, text))


def _has_effect(char: str) -> bool:
    return unicodedata.category(char) in _ESCAPED and char not in _JOINERS


def _visible(char: str) -> str:
    if not _has_effect(char):
        return char
    byte = ord(char) - _FIRST_ESCAPED_BYTE
    if 0x80 <= byte <= 0xFF:
        return f"\\x{byte:02x}"
    return char.encode("unicode_escape").decode("ascii")


def _visible_in_json(char: str) -> str:
    if char == "\n" or not _has_effect(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
