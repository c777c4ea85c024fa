"""Text of strangers: nothing that has an effect is left, nothing else is changed, and JSON keeps its value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.terminals import EFFECTS, HOSTILE, effects_in

from bcos_sdk._plain_text import plain, plain_cell, plain_json, plain_lines

ANY_TEXT = st.text(st.characters() | st.sampled_from(sorted(EFFECTS)))


@given(ANY_TEXT)
def test_no_character_with_an_effect_is_left(text: str) -> None:
    shown = plain(text)
    assert not {*EFFECTS, "\n"} & set(shown)
    assert plain(shown) == shown
    shown.encode("utf-8")
    lines = plain_lines(text)
    assert not EFFECTS & set(lines)
    assert plain_lines(lines) == lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("großer Hund 梟 🦊 × − “x”", "großer Hund 梟 🦊 × − “x”"),
        ("no\xa0break\u3000space", "no\xa0break\u3000space"),
        ("👩\u200d🔬 می\u200cخواهم", "👩\u200d🔬 می\u200cخواهم"),
        ("C:\\names\\x", "C:\\names\\x"),
        ("a\x1b[2J\r\nb", "a\\x1b[2J\\r\\nb"),
        ("\x9b\u2028\u202e\U000e0041\udcff\ud800", "\\x9b\\u2028\\u202e\\U000e0041\\xff\\ud800"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_further_lines_are_indented() -> None:
    assert plain_lines("first\nsecond\n  third\n\x1b[1m") == "first\n  second\n  third\n  \\x1b[1m"
    assert effects_in(plain_lines(HOSTILE)) == set()


@given(
    st.recursive(ANY_TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner))
)
def test_json_keeps_its_value(value: object) -> None:
    for ensure_ascii in (True, False):
        for indent in (None, 2):
            text = plain_json(json.dumps(value, ensure_ascii=ensure_ascii, indent=indent))
            assert not EFFECTS & set(text)
            assert json.loads(text) == value
            assert indent or "\n" not in text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_cell_is_no_formula(start: str) -> None:
    assert plain_cell(f"{start}1+1") == f"'{start}1+1"
    assert plain_cell(f"a;{start}1;{start}2") == f"a;'{start}1;'{start}2"
    assert plain_cell(f"a{start}1") == f"a{start}1"
