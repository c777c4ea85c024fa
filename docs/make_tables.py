"""Write the tables of the documentation from the code: `python docs/make_tables.py`."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bcos_sdk import BcosError, errors
from bcos_sdk.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "client.md", ROOT / "docs" / "security.md")
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
sys.path.append(str(ROOT / "tests"))

from support.attacks import AREAS, HELD, Attack, collect_attacks  # noqa: E402


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


def attack_totals() -> str:
    """One row for each area of attacks, and their sum."""
    lines = ["| area | tried | held before | failed before, now fixed |", "|---|---|---|---|"]
    everything = attacks()
    for area, title in AREAS.items():
        if rows := [one for one in everything if one.area == area]:
            lines.append(f"| {title} | {_counts(rows)} |")
    lines.append(f"| **all** | {_counts(everything)} |")
    return "\n".join(lines)


def attack_table() -> str:
    """One row for each kind of attack, in the order of the areas and of the tests."""
    lines = ["| area | attack | tried | before | now |", "|---|---|---|---|---|"]
    kinds: dict[tuple[str, str, str], list[Attack]] = {}
    for one in sorted(attacks(), key=lambda one: list(AREAS).index(one.area)):
        kinds.setdefault((AREAS[one.area], one.what, one.before), []).append(one)
    for (area, what, before), cases in kinds.items():
        tried = "random inputs" if all(case.random for case in cases) else str(len(cases))
        cells = (area, what, tried, before, "holds" if before == HELD else "fixed")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


@functools.cache
def attacks() -> tuple[Attack, ...]:
    return tuple(collect_attacks())


def _counts(rows: Sequence[Attack]) -> str:
    held = sum(one.before == HELD for one in rows)
    return f"{len(rows)} | {held} | {len(rows) - held}"


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
    "attack-totals": attack_totals,
    "attacks": attack_table,
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
