"""Write the tables of models and errors into the documentation: `python docs/make_tables.py`."""

from __future__ import annotations

import re
from pathlib import Path

from bcos_sdk import errors
from bcos_sdk.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "client.md")


def model_table() -> str:
    """Return the table of the published models."""
    lines = ["| model | family | input | parameters | top-1 % |", "|---|---|---|---|---|"]
    for spec in builtin_registry().values():
        figures = spec.published
        if spec.weights is not None and figures.parameters is not None:
            size = f"{spec.input.size[0]}×{spec.input.size[1]}"
            parameters = f"{figures.parameters / 1e6:.1f} M"
            lines.append(f"| `{spec.name}` | {spec.family} | {size} | {parameters} | {figures.top1} |")
    return "\n".join(lines)


def error_table() -> str:
    """Return the table of all errors, sorted by code."""
    lines = ["| code | error | retry | meaning |", "|---|---|---|---|"]
    for kind in sorted(error_types(), key=lambda kind: kind.code):
        meaning = (kind.__doc__ or "").splitlines()[0]
        lines.append(f"| `{kind.code}` | `{kind.__name__}` | {'yes' if kind.retryable else ''} | {meaning} |")
    return "\n".join(lines)


def error_types() -> list[type[errors.BcosError]]:
    """Return all errors of the package except their base class."""
    found = [getattr(errors, name) for name in errors.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, errors.BcosError)]
    return [kind for kind in kinds if kind is not errors.BcosError]


TABLES = {"models": model_table, "errors": error_table}


def with_tables(text: str) -> str:
    """Return the text with new tables between their marks."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table()}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text("utf-8")), "utf-8")
