"""Write the tables of docs/ray.md from docs/ray.json: `python docs/make_ray.py`.

`docs/measure_ray.py` measures the figures in this file again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bcos_sdk.ray import COLUMNS_OF_IMAGE, LARGEST_SHARD, Column

DOCS = Path(__file__).resolve().parent
DATA, PAGE = DOCS / "ray.json", DOCS / "ray.md"
PLANNED = 10_000_000
JPEG_BYTES = 110_000
"""The mean of ImageNet's training images: 1.28 million in 138 GB."""
CPUS = (64, 512, 4096)
GPUS = (8, 64)
CPUS_PER_GPU = 12
"""Usual for rented machines with GPUs."""
SECONDS_PER_ACTOR = 20
S3_REQUESTS = 5_500
"""Reads per second and prefix that S3 is documented to allow at least."""
REQUESTS_PER_IMAGE = 2
"""Its size and its contents."""

Figures = dict[str, Any]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def schema_table() -> str:
    """One row for each column and each field of a column."""

    def rows(columns: Sequence[Column], above: str) -> Iterator[tuple[str, str, str]]:
        for column in columns:
            name = f"{above}{column.name}"
            kind = "struct" if column.fields else str(column.arrow.value_type if column.many else column.arrow)
            yield f"`{name}`", f"list of {kind}" if column.many else kind, column.meaning
            yield from rows(column.fields, f"{name}{'[]' if column.many else ''}.")

    return table(("column", "type", "meaning"), list(rows(COLUMNS_OF_IMAGE, "")))


def kill_table(figures: Figures) -> str:
    rows = [
        (one["killed"], one["expected"], one["found"], one["twice"], one["other_bytes"]) for one in figures["kills"]
    ]
    return table(("killed", "rows expected", "rows found", "images twice", "rows with other bytes"), rows)


def throughput_table(figures: Figures) -> str:
    rows = [
        (one["model"], one["device"], one["images"], f"{one['wall']:.2f}", f"{one['cpu']:.2f}")
        for one in figures["throughput"]
    ]
    return table(("model, one thread", "device", "images per round", "by time", "by CPU time"), rows)


def memory_table(figures: Figures) -> str:
    rows = [(f"{one['files']:,}", f"{one['driver']:.0f}") for one in figures["memory"]["samples"]]
    return table(("files written (of 98)", "driver, MB"), rows)


def plan_table(figures: Figures) -> str:
    """What 10 million images of ImageNet's size need, from the measured figures of one image."""
    plan = figures["plan"]
    images, read = PLANNED, PLANNED * JPEG_BYTES
    seconds = plan["explain_cpu_seconds"]
    rows: list[tuple[str, str, str]] = [
        ("bytes read", _bytes(read), f"{JPEG_BYTES / 1e3:.0f} kB per image; again with `--resume`, to compare"),
        *(
            (
                f"bytes written, {maps}",
                _bytes(images * size),
                f"{size / 1e3:.1f} kB per image, {images // LARGEST_SHARD:,} files",
            )
            for maps, size in plan["row_bytes"].items()
        ),
        (
            "object store",
            _bytes(images * plan["shard_bytes"]),
            f"{plan['shard_bytes']:.0f} bytes per image, the names; images and maps never enter it",
        ),
        (
            "memory of the driver",
            _bytes(images * plan["driver_bytes"] + plan["driver_base"]),
            f"{plan['driver_bytes']:.0f} bytes per image above {_bytes(plan['driver_base'])}",
        ),
        ("memory of a worker", _bytes(plan["worker_bytes"]), "measured with one CPU"),
    ]
    for cpus in CPUS:
        hours = images * seconds / cpus / 3600
        rows.append((f"{cpus:,} CPUs, {cpus:,} workers", _hours(hours), f"{seconds:.3f} CPU seconds per image"))
    for gpus in GPUS:
        cpus = gpus * CPUS_PER_GPU
        hours = images * plan["host_cpu_seconds"] / cpus / 3600
        rate = cpus / plan["host_cpu_seconds"] / gpus
        rows.append(
            (
                f"{gpus} GPUs with {CPUS_PER_GPU} CPUs each, {gpus} workers",
                f"at least {_hours(hours)}",
                f"decoding and storing allow {rate:,.0f} images/s per GPU; the GPU itself was not measured",
            )
        )
    return table(("10 million images, 224×224, one target", "", "from"), rows)


def breaks_table(figures: Figures) -> str:
    """The limits in the order in which larger clusters and larger buckets reach them."""
    plan = figures["plan"]
    fed = int(S3_REQUESTS / REQUESTS_PER_IMAGE * plan["explain_cpu_seconds"])
    fresh, resumed = (int((16e9 - plan["driver_base"]) / plan[name] / 1e6) for name in ("driver_bytes", "resume_bytes"))
    whole = _hours(PLANNED * plan["explain_cpu_seconds"] / CPUS[-1] / 3600)
    rows = [
        (
            "requests to S3",
            f"{S3_REQUESTS:,} per second and prefix, two for each image: they feed {fed:,} CPUs",
            "spread the images over several prefixes, or fewer workers",
        ),
        (
            "start of actors",
            f"about {SECONDS_PER_ACTOR} seconds, while {CPUS[-1]:,} CPUs need {whole} in all",
            "fewer CPUs for longer",
        ),
        (
            "listing",
            f"{PLANNED // 1000:,} requests of 1,000 names, one after the other: at 0.1 s each {_hours(PLANNED / 36e6)}",
            "a list, `@FILE`",
        ),
        (
            "memory of the driver",
            f"16 GB hold {fresh} million names, with `--resume` {resumed} million",
            "one run and one `--out` for each part of the bucket",
        ),
        ("work lost by a kill", f"up to {LARGEST_SHARD:,} images of each worker that is killed", "`--images-per-file`"),
    ]
    return table(("limit", "size", "what to do"), rows)


def _bytes(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


TABLES: dict[str, Callable[[Figures], str]] = {
    "schema": lambda _figures: schema_table(),
    "kills": kill_table,
    "throughput": throughput_table,
    "memory": memory_table,
    "plan": plan_table,
    "breaks": breaks_table,
}


def with_tables(text: str, figures: Figures) -> str:
    """The page with its tables made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, count = pattern.subn(partial(_filled, make(figures)), text)
        assert count == 1, f"the page has {count} places for the table {name}"
    return text


def _filled(made: str, found: re.Match[str]) -> str:
    return f"{found[1]}{made}\n{found[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), json.loads(DATA.read_text("utf-8"))), "utf-8")
