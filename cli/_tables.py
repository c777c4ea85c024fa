"""Plain text tables for stdout."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["columns", "pairs"]


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line per row under a header, columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (header, *rows)]
    return "\n".join(lines)


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """One line per name and value, values aligned."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)
