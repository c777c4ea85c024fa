"""Hints in the words of the command line: an option for each argument of Python, and nothing that only Python has."""

from __future__ import annotations

import re
from collections.abc import Collection

import click

__all__ = ["command_hint", "hint_here"]

_OPTIONS = {
    "Limits.pixels": ("--max-pixels", "--max-pixels"),
    "Remote.bundle": ("--bundle", "--bundle DIR"),
    "Remote.token": ("--token-file", "--token-file FILE"),
    ".device": ("--device", "--device {value}"),
    ".precision": ("--precision", "--precision {value}"),
    ".weights": ("--save", "--save npz"),
}
"""For each argument of a constructor, or of any call, the option that sets it, and how a hint names it."""

_PHRASES = {
    'The attribute `results` of this error has the other results; on_error="return" returns them instead.': "",
    "Use predict_stream or explain_stream, or raise Limits(images=…).": "Pass fewer images at once.",
    "Labels are, for example, ": "`bcos-sdk models labels MODEL` lists all labels, for example ",
    'Pixel(target, y, x), Region(target, mask), or the text "label @ y:x"': '--target "label @ y:x"',
}
"""What has no single argument."""

_BESIDE_AN_OPTION = re.compile(r" \([a-z_]+=[^()]*\)")
"""The argument beside the option that says the same, as in "--force (force=True)"."""

_CALL = r"(?:Limits|Remote|Client|export|explain)\((?:…, )?([a-z_]+)=([^()]*)\)"
_LOAD_MODEL = r"(?:in Python: )?load_model\([^()]*\)"
_ARGUMENT = re.compile(rf"(?<![-\w.])(?:{_CALL}|(device|precision|weights)=('\w+'|\"\w+\"|True)|{_LOAD_MODEL})")
_SENTENCE = re.compile(r"(?<=[.?!]) (?=\S)")
_CLAUSE = re.compile(r"(?:,? or |[:;] )[^,:;]*\0[^;]*?(?=[,;] |[.?!]?$)")
_MARK = "\0"


def command_hint(hint: str, options: Collection[str]) -> str:
    """The hint for a command with these options; empty if it only says what the command has no option for.

    The library writes hints for both: "--force (force=True)", "or raise Limits(pixels=…)". An argument becomes its
    option. If the command has no such option, the clause is left out that names the argument, else the sentence.
    """
    for phrase, other in _PHRASES.items():
        hint = hint.replace(phrase, other)
    hint = _BESIDE_AN_OPTION.sub("", hint)
    sentences = (_translated(one, options) for one in _SENTENCE.split(hint))
    return " ".join(one for one in sentences if one)


def hint_here(hint: str | None) -> str | None:
    """The hint for the command that is running."""
    return (command_hint(hint, _current_options()) or None) if hint else None


def _current_options() -> frozenset[str]:
    context = click.get_current_context(silent=True)
    if context is None:
        return frozenset()
    command: click.Command | None = context.command
    if isinstance(command, click.Group) and context.invoked_subcommand is not None:
        command = command.get_command(context, context.invoked_subcommand)
    params = [] if command is None else command.params
    return frozenset(name for param in params for name in param.opts)


def _translated(sentence: str, options: Collection[str]) -> str:
    def replacement(found: re.Match[str]) -> str:
        name, value = (found[1], found[2]) if found[1] else (found[3], found[4])
        call = found[0].partition("(")[0]
        option, text = _OPTIONS.get(f"{call}.{name}") or _OPTIONS.get(f".{name}") or ("", "")
        return text.format(value=(value or "").strip("'\"")) if option and option in options else _MARK

    sentence = _ARGUMENT.sub(replacement, sentence)
    if _MARK not in sentence:
        return sentence
    shorter = _CLAUSE.sub("", sentence)
    return "" if _MARK in shorter else shorter
