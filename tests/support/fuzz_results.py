"""Fuzz targets for results: their JSON, results.jsonl, .npz files, and the record that `predict --resume` continues."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image

from bcos_sdk import Explained, Explanation, Failure, Prediction, read_explanation, read_results
from bcos_sdk.bundle import Manifest
from bcos_sdk.cli.predict._content import Content
from bcos_sdk.cli.predict._drawings import Artist
from bcos_sdk.cli.predict._image_files import find_images
from bcos_sdk.cli.predict._output import Output
from bcos_sdk.cli.predict._output_options import OutputOptions, Start
from bcos_sdk.results import Work
from bcos_sdk.testing import FakeClient
from support.bundles import random_pixels
from support.mutations import HOSTILE, damaged, hostile_json, hostile_npz
from support.typed_errors import only_typed_errors

_KINDS = (Prediction, Explained, Explanation, Failure)


@functools.cache
def _explained() -> Explained:
    with FakeClient(input_size=8) as client:
        (result,) = client.explain(random_pixels(1)[0], top_k=2, weights=True)
    return result


@functools.cache
def _manifest() -> Manifest:
    with FakeClient(input_size=8) as client:
        return client.manifest


@functools.cache
def _failure() -> Failure:
    return Failure(source="a.png", code="image_unreadable", message="no", hint=None, retryable=False)


# ------------------------------------------------------------------------------------------------------------ result


def hostile_result(random: Random) -> bytes:
    explained = _explained()
    result = random.choice((explained, explained.prediction, explained.explanations[0], _failure()))
    return hostile_json(json.loads(result.to_json(arrays=random.choice(("base64", "omit")))), random)


def read_result(contents: bytes, _folder: Path) -> None:
    for kind in _KINDS:
        with only_typed_errors():
            _use(kind.from_json(contents))


def _use(result: Prediction | Explained | Explanation | Failure) -> None:
    """What a program does with a result that it has read."""
    for call in (result.to_json, result._repr_html_, lambda: str(result)):
        _try(call)
    for explanation in getattr(result, "explanations", (result,) if isinstance(result, Explanation) else ()):
        for method in (explanation.overlay, explanation.rgba, explanation.heatmap, explanation.require_complete):
            _try(method)
        _try(lambda explanation=explanation: explanation - explanation)
        _try(lambda explanation=explanation: explanation.overlay(on=Image.new("RGB", (45, 32))))


def _try(call: Any) -> None:
    with only_typed_errors():
        call()


# ----------------------------------------------------------------------------------------------------- results.jsonl


def _record(result: Prediction | Explained | Failure, name: str, **fields: Any) -> dict[str, Any]:
    document = {
        "name": name,
        "path": f"/tmp/{name}",
        "image_sha256": "0" * 64,
        "work": json.loads(_work().model_dump_json()),
        "files": [f"{name}.1.overlay.png"],
        "kind": type(result).__name__,
        "result": json.loads(result.to_json(arrays="omit")),
    }
    return document | fields


def _lines(random: Random) -> list[bytes]:
    explained = _explained()
    documents = [
        _record(explained, "a.png"),
        _record(explained.prediction, "b.png"),
        _record(_failure(), "c.png"),
        json.loads(explained.to_json(arrays="omit")),
    ]
    lines = [json.dumps(document).encode() for document in random.choices(documents, k=random.randrange(3))]
    lines.insert(random.randrange(len(lines) + 1), hostile_json(random.choice(documents), random))
    return lines


def hostile_results(random: Random) -> bytes:
    text = random.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(_lines(random))
    return damaged(text, random) if random.random() < 0.1 else text


def read_result_file(contents: bytes, folder: Path) -> None:
    path = folder / "results.jsonl"
    path.write_bytes(contents)
    for on_error in ("raise", "skip"):
        with only_typed_errors():
            for result in read_results(path, on_error=on_error):
                _use(result)


# --------------------------------------------------------------------------------------------------------------- npz


def hostile_explanation(random: Random) -> bytes:
    explanation = _explained().explanations[0]
    text = explanation.to_json(arrays="omit")
    if random.random() < 0.5:
        text = hostile_json(json.loads(text), random).decode("utf-8", "replace").rstrip("\0")
    return hostile_npz({**explanation.arrays, "metadata": text}, random)


def read_npz(contents: bytes, folder: Path) -> None:
    path = folder / "explanation.npz"
    path.write_bytes(contents)
    _use(read_explanation(path))


# ------------------------------------------------------------------------------------------------------------ resume

_PARTS = ("results.jsonl", ".report.jsonl", ".bcos-sdk.writing")


@functools.cache
def _work() -> Work:
    return Work(model="0" * 64, explain=True, targets=(), top_k=2, tf32=False, outputs=("overlay", "report"))


def hostile_journal(random: Random) -> bytes:
    """The three files of a folder, as JSON by name. Bytes are written as the characters of Latin-1."""
    line = {"name": "a.png", "key": "0" * 64, "entry": {"source": "a.png", "error": None}}
    parts = {
        "results.jsonl": b"\n".join(_lines(random)) + random.choice((b"\n", b"")),
        ".report.jsonl": hostile_json(line, random) + b"\n",
        ".bcos-sdk.writing": hostile_json({"name": "a.png", "files": ["a.png.1.overlay.png"]}, random),
    }
    if random.random() < 0.3:
        parts["results.jsonl"] = json.dumps(_record(_explained(), random.choice(_TEXTS))).encode()
    chosen = random.sample(_PARTS, random.choice((1, 2, 3)))
    return json.dumps({name: parts[name].decode("latin-1") for name in chosen}).encode()


_TEXTS = [value for value in HOSTILE if isinstance(value, str)]


def resume(contents: bytes, folder: Path) -> None:
    image = folder / "a.png"
    Image.fromarray(random_pixels(1)[0]).save(image)
    for start in (Start.RESUME, Start.OVERWRITE):
        out = folder / start.name
        out.mkdir()
        for name, text in json.loads(contents).items():
            (out / name).write_bytes(text.encode("latin-1"))
        options = OutputOptions(out, ("overlay",), True, False, start)
        with only_typed_errors():
            found = find_images([str(folder)], out=folder / "other")
            options.check_start()
            with Output(options, Artist(_manifest(), ranked=True), _work()) as output:
                for task in output.plan(found.images).tasks[:1]:
                    output.write(task, Content.of(task.path), _explained().prediction)  # nothing has to be drawn
                list(output.results())
                output.finish()
