"""What reaches stdout and stderr. Every text is printed here, so that no text of a stranger controls a terminal."""

from __future__ import annotations

import logging
import traceback
from types import TracebackType

import click

from bcos_sdk._plain_text import plain, plain_json, plain_lines
from bcos_sdk.cli._hints import hint_here

__all__ = [
    "PlainFormatter",
    "ask_password",
    "confirm",
    "count_of",
    "plain_usage_error",
    "print_encoded",
    "print_error",
    "print_json",
    "print_lines",
    "print_message",
    "print_traceback",
]


def print_lines(*lines: str) -> None:
    """Print lines to stdout. A line end inside one of them is escaped: each stays one line."""
    for line in lines:
        click.echo(plain(line))


def print_json(document: str) -> None:
    """Print a JSON document to stdout: the same value, with characters that would have an effect as escapes."""
    print_encoded(plain_json(document) + "\n")


def print_encoded(text: str) -> None:
    """Print rows of a format whose writer has escaped its cells, as UTF-8."""
    click.echo(text.encode("utf-8"), nl=False)


def print_message(text: str, *, label: str = "", colour: str | None = None) -> None:
    """Print one line to stderr, after a label such as "note:"."""
    _to_stderr(plain(text), label, colour)


def print_error(code: str, message: str, hint: str | None = None) -> None:
    """Print an error to stderr: its message, and what to do in a line below, in the words of the command line."""
    _to_stderr(f"[{plain(code)}]: {plain_lines(message)}", "error", "red")
    if hint := hint_here(hint):
        click.echo(plain_lines(hint), err=True)


def confirm(question: str) -> None:
    """Ask on stderr, and end the command unless the answer is yes."""
    click.confirm(plain(question), abort=True, err=True)


def ask_password(question: str) -> str:
    """Ask for a password on stderr, without showing it."""
    password: str = click.prompt(plain(question), hide_input=True, err=True)
    return password


def plain_usage_error(error: click.ClickException) -> click.ClickException:
    """The same error of a command line. Its message may quote an argument, which a shell took from a file name."""
    vars(error)["message"] = plain(error.message)  # click declares it final
    return error


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception that nobody has handled, as Python does: what `sys.excepthook` calls."""
    for part in traceback.format_exception(kind, error, trace):
        click.echo(plain_lines(part.rstrip("\n")), err=True)


class PlainFormatter(logging.Formatter):
    """Formats the records of all loggers. Those of libraries may quote files as well."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


def count_of(number: int, noun: str) -> str:
    """For example "1 image", "2,996 images"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _to_stderr(text: str, label: str, colour: str | None) -> None:
    shown = click.style(label, fg=colour) if colour else label
    click.echo(f"{shown} {text}" if label else text, err=True)
