"""What must not reach a terminal, and commands whose output a terminal shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

from click.testing import CliRunner

from bcos_sdk.cli import main

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b]52;c;aGk=\x07\x9b2J\x85\x7f\t\r\nFORGED line\x0b\x0c\u2028FORGED\u2029"
    "\u202e\u2066\u200f\u061c\ufeff\U000e0041"
)
"""Sets the title of the window, clears the screen, writes to the clipboard, forges a line, turns the text round."""

_CODES = [*range(9), *range(11, 32), 9, *range(127, 160), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029]
_CODES += [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080)]
EFFECTS = frozenset(map(chr, _CODES))
"""Every character that a text of a stranger must not bring to a terminal: all control characters but the line end."""

_OURS = re.compile(r"\r\x1b\[K|\x1b\[3[13]m(?=error)|(?<=error)\x1b\[0m")
"""What this package itself sends to a terminal: the progress bar clears its line, "error" is red."""
_PROGRAM = "from bcos_sdk.cli import main; main()"


def effects_in(shown: str) -> set[str]:
    """The characters of an output that have an effect and are not ours; and lines that a text has forged."""
    left = _OURS.sub("", shown)
    return (set(left) & EFFECTS) | {line for line in left.split("\n") if line.startswith("FORGED")}


def output_of(arguments: Iterable[object]) -> str:
    """What a command prints to stdout and stderr as on a terminal, run in this process."""
    result = CliRunner().invoke(main, [*map(str, arguments)], color=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout_bytes.decode("utf-8") + result.stderr_bytes.decode("utf-8")


def shown_on_terminal(arguments: Iterable[object]) -> str:
    """What a command sends to a real terminal, run in another process."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST  # the terminal would send each line end as \r\n
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *map(str, arguments)], stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # the process has closed the terminal
        pass
    os.close(ours)
    process.wait(60)
    return shown.decode("utf-8")
