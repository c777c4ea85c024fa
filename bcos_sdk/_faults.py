"""What pydantic found wrong, in one line."""

from __future__ import annotations

from pydantic import ValidationError

__all__ = ["first_faults"]

_MOST = 5


def first_faults(error: ValidationError) -> str:
    """The first faults of a document, each with the path of its field."""
    found = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:_MOST]]
    return "; ".join(found)
