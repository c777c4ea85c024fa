"""The log of a server on stderr: a line of text or of JSON for each request and each event, with the request's id."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Literal

from bcos_sdk._plain_text import plain_json, plain_lines
from bcos_sdk.serve._request_ids import AddRequestId

__all__ = ["configure_logs"]

_LOGGERS = ("bcos_sdk", "uvicorn")


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


class _JsonLines(logging.Formatter):
    """One JSON object per line. The fields of a request are those of `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        entry = {
            "time": time,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return plain_json(json.dumps(entry, ensure_ascii=False, default=str))


def configure_logs(form: Literal["text", "json"]) -> None:
    """Send the log of this package and of uvicorn to stderr in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(AddRequestId())
    text = _TextLines("%(asctime)s %(levelname)s [%(request_id)s] %(message)s")
    handler.setFormatter(_JsonLines() if form == "json" else text)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
