"""What TensorRT says goes to this package's log, and its last complaint into our errors; its own logger uses stdout."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

__all__ = ["words_of"]

logger = logging.getLogger("bcos_sdk")


@cache
def words_of(trt: Any) -> Any:
    """The one logger for this TensorRT, kept for good: it refuses a second one. `complaint` is its last error."""

    class Words(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.complaint = "it does not say why"

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.complaint = message
                logger.error("TensorRT: %s", message)
            elif severity == trt.ILogger.WARNING:
                logger.warning("TensorRT: %s", message)

    return Words()
