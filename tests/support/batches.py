"""Images, settings and workers for tests of runs on a cluster, without a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bcos_sdk import Client, Explained, Failure, Prediction
from bcos_sdk.ray._dataset import settings_for
from bcos_sdk.ray._explainer import Explainer
from bcos_sdk.ray._parts import PartWriter
from bcos_sdk.ray._record import Record, Start, begin, file_names, read_record
from bcos_sdk.ray._settings import Question, WorkerSettings
from bcos_sdk.ray._shards import Outcome, plan_shards
from bcos_sdk.ray._storage import Folder
from support.bundles import random_pixels, small_bundle

__all__ = ["add_images", "part_writer", "reference_row", "run_shards", "settings", "table_of"]


def add_images(folder: Path, count: int, *, seed: int = 0, size: tuple[int, int] = (32, 45)) -> list[str]:
    """Write images, one of them damaged, and return their absolute paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, pixels in enumerate(random_pixels(count, seed=seed, size=size)):
        path = folder / f"n{seed}-{number:03d}.png"
        Image.fromarray(pixels).save(path)
        paths.append(str(path.absolute()))
    if count > 3:
        Path(paths[2]).write_bytes(b"this is no image")
    return paths


def settings(question: Question | None = None, device: str = "cpu") -> WorkerSettings:
    """The settings of workers that run the small bundle."""
    options: dict[str, Any] = {"device": device, "threads": 1}
    bundle = small_bundle()
    return settings_for(bundle, str(bundle.path), question or Question(), options, ship="path", local=True)


@contextmanager
def part_writer(folder: Folder, record: Record, question: Question | None = None) -> Iterator[PartWriter]:
    with Explainer(settings(question)) as explainer:
        yield PartWriter(explainer, folder, record.session)


def run_shards(
    place: Path, images: list[str], start: Start, question: Question | None = None, size: int = 5
) -> tuple[Outcome, list[Outcome]]:
    """What a run does with its shards, in this process: the sum of the outcomes, and all of them."""
    folder = Folder(str(place))
    record = begin(folder, start)
    names = [] if start is Start.OVERWRITE else file_names(folder, read_record(folder))
    files = {name: folder.parquet(name).read(columns=["path"]).column("path").to_pylist() for name in names}
    total, outcomes = Outcome(), []
    with part_writer(folder, record, question) as writer:
        for shard in plan_shards(images, files, size=size, prefix=f"part-{record.session}-").shards:
            outcomes.append(writer.process(shard))
            total.add(outcomes[-1])
    return total, outcomes


def table_of(place: Path) -> dict[str, dict[str, Any]]:
    """The rows of all files by path, read with pyarrow alone. No path may be in two rows."""
    from pyarrow import parquet

    rows: dict[str, dict[str, Any]] = {}
    for file in sorted(place.glob("*.parquet")):
        for row in parquet.read_table(file).to_pylist():
            assert row["path"] not in rows, f"{row['path']} is in two rows"
            rows[row["path"]] = row
    return rows


def reference_row(client: Client, path: str, question: Question) -> dict[str, Any]:
    """What the row of an image has to hold, from the result of a client on one machine, spelt out by hand."""
    result: Prediction | Explained | Failure
    if question.explain:
        (result,) = client.explain([path], targets=question.targets, top_k=question.top_k, on_error="return")
    else:
        (result,) = client.predict([path], top_k=question.top_k, on_error="return")
    contents = Path(path).read_bytes()
    row: dict[str, Any] = {"path": path, "image_sha256": hashlib.sha256(contents).hexdigest(), "device": client.device}
    if isinstance(result, Failure):
        return row | {
            "status": "failed",
            "error_code": result.code,
            "error_message": result.message,
            "error_hint": result.hint,
            "error_retryable": result.retryable,
            "explanations": None,
            "classes": None,
            "logit": None,
        }
    prediction = result.prediction if isinstance(result, Explained) else result
    best = prediction.classes[0]
    row |= {"status": "ok", "error_code": None, "model": prediction.model, "class": best.index, "label": best.label}
    row |= {"probability": best.probability, "logit": best.logit, "notes": list(prediction.notes)}
    row["classes"] = [
        {"class": one.index, "label": one.label, "probability": one.probability, "logit": one.logit}
        for one in prediction.classes
    ]
    if isinstance(result, Explained):
        geometry = result.explanations[0].geometry
        assert geometry is not None
        row["box"] = [*geometry.box]
        row["original_width"], row["original_height"] = geometry.original
        row["explanations"] = [_explanation(one, question) for one in result.explanations]
    return row


def _explanation(explanation: Any, question: Question) -> dict[str, Any]:
    figures = json.loads(explanation.completeness.model_dump_json())
    fields: dict[str, Any] = {
        "class": explanation.target.index,
        "label": explanation.target.label,
        "probability": explanation.target.probability,
        "logit": explanation.target.logit,
        "terms": [{"name": name, "value": value} for name, value in explanation.bias.items()],
    }
    fields |= {
        name: figures[name] for name in ("sum", "scale", "tolerance", "precision", "relative_residual", "passed")
    }
    assert question.maps == "float32"
    height, width = explanation.contributions.shape
    data = np.ascontiguousarray(explanation.contributions, "<f4").tobytes()
    fields["contributions"] = {"dtype": "float32", "height": height, "width": width, "scale": 1.0, "data": data}
    return fields
