"""The log of this package. Its records quote names and messages of strangers, each as one line without effect."""

from __future__ import annotations

import logging
from typing import Any

from bcos_sdk._plain_text import plain

__all__ = ["log"]

log = logging.getLogger("bcos_sdk")
"""The only logger of the package: a filter of a logger does not see what is logged to the loggers below it."""


def _quote_plainly(record: logging.LogRecord) -> bool:
    """Escape what a record quotes. Handlers belong to the application, so this is done before they see the record."""
    if isinstance(record.args, tuple):
        record.args = tuple(map(_plain_argument, record.args))
    return True


def _plain_argument(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else plain(str(value))


log.addFilter(_quote_plainly)
