"""Write the tables of the documentation from the code: `python docs/make_tables.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bcos_sdk import BcosError, errors
from bcos_sdk.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "client.md")
OPERATORS_PAGE = ROOT / "docs" / "operators.md"
"""The page whose tables need torch."""
DECOMPOSED = (
    *("addmm", "baddbmm", "bilinear", "cdist", "channel_shuffle", "column_stack", "cosine_similarity", "einsum"),
    *("elu", "gelu", "group_norm", "hardsigmoid", "hardswish", "instance_norm", "layer_norm", "leaky_relu", "lerp"),
    *("log_softmax", "logsumexp", "max_pool1d", "outer", "pixel_shuffle", "prelu", "reflection_pad2d"),
    *("replication_pad2d", "rms_norm", "scaled_dot_product_attention", "silu", "softplus", "stack", "std", "tensordot"),
    *("tile", "unbind"),
)
"""The decomposed operators that the page names. torch decomposes several hundred."""


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


def operator_table() -> str:
    """One row for each kind of operator, with the names in aten."""
    from bcos_sdk.exporters.operators import GROUPS, Kind

    lines = ["| kind | of live or frozen values | of frozen values only |", "|---|---|---|"]
    for group, operators in GROUPS.items():
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for operator in operators:
            overload = str(operator.target)
            if overload.startswith("aten.") and operator.kind is not Kind.EXPLAIN:
                names[operator.kind is Kind.FROZEN].add(overload.split(".")[1])
        if any(names.values()):
            live, frozen = (", ".join(f"`{name}`" for name in sorted(names[key])) for key in (False, True))
            lines.append(f"| {group} | {live} | {frozen} |")
    return "\n".join(lines)


def decomposed_list() -> str:
    """The operators of `DECOMPOSED`, if all of them are decomposed."""
    from bcos_sdk.exporters.capture import decomposed_operators

    if unknown := set(DECOMPOSED) - decomposed_operators():
        raise SystemExit(f"not decomposed: {', '.join(sorted(unknown))}")
    return ", ".join(f"`{name}`" for name in DECOMPOSED)


TABLES = {
    "models": model_table,
    "errors": error_table,
    "operators": operator_table,
    "decomposed": decomposed_list,
}


def with_tables(text: str) -> str:
    """The text with a new table between each pair of marks."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table()}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    for document in (*DOCUMENTS, OPERATORS_PAGE):
        document.write_text(with_tables(document.read_text("utf-8")), "utf-8")
