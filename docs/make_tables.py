"""Write the tables of README.md from models.yaml: `python docs/make_tables.py`."""

from __future__ import annotations

import re
from pathlib import Path

from bcos_sdk.registry import builtin_registry

README = Path(__file__).resolve().parents[1] / "README.md"


def model_table() -> str:
    """The published models, one row each."""
    lines = ["| model | family | input | parameters | top-1 % |", "|---|---|---|---|---|"]
    for spec in builtin_registry().values():
        figures = spec.published
        if spec.weights is not None and figures.parameters is not None:
            size = f"{spec.input.size[0]}×{spec.input.size[1]}"
            parameters = f"{figures.parameters / 1e6:.1f} M"
            lines.append(f"| `{spec.name}` | {spec.family} | {size} | {parameters} | {figures.top1} |")
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """The text with what stands between the marks made anew."""
    pattern = re.compile(r"(<!-- models: [^>]*-->\n).*?(<!-- /models -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{model_table()}\n{match[2]}", text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text("utf-8")), "utf-8")
