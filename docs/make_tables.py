"""Write the tables of the documentation from the code: `python docs/make_tables.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bcos_sdk import BcosError, errors
from bcos_sdk.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "client.md")


def model_table() -> str:
    """One row for each published model."""
    lines = ["| model | family | input | parameters | top-1 % |", "|---|---|---|---|---|"]
    for spec in builtin_registry().values():
        figures = spec.published
        if spec.weights is not None and figures.parameters is not None:
            size = f"{spec.input.size[0]}×{spec.input.size[1]}"
            parameters = f"{figures.parameters / 1e6:.1f} M"
            lines.append(f"| `{spec.name}` | {spec.family} | {size} | {parameters} | {figures.top1} |")
    return "\n".join(lines)


def error_table() -> str:
    """One row for each error with its family, in the order of the tree of errors."""
    lines = ["| error | family | code | retry | meaning |", "|---|---|---|---|---|"]
    for kind in error_classes():
        family = kind.__bases__[0].__name__
        meaning = (kind.__doc__ or "").splitlines()[0].removesuffix(" Family of the errors below.")
        retry = "yes" if kind.retryable else ""
        lines.append(f"| `{kind.__name__}` | `{family}` | `{kind.code}` | {retry} | {meaning} |")
    return "\n".join(lines)


def error_classes(family: type[BcosError] = BcosError) -> Iterator[type[BcosError]]:
    """All errors below a family, each family before its errors."""
    for kind in family.__subclasses__():
        if kind.__name__ in errors.__all__:
            yield kind
            yield from error_classes(kind)


TABLES = {"models": model_table, "errors": error_table}


def with_tables(text: str) -> str:
    """The text with a new table between each pair of marks."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table()}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text("utf-8")), "utf-8")
