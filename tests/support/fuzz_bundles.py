"""Fuzz targets for the files of a bundle: manifest, golden record, graphs, engine records; and for `inspect`."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from click.testing import CliRunner

from bcos_sdk import Client
from bcos_sdk.backends.tensorrt import list_engines
from bcos_sdk.bundle import binding_digest, has_manifest, open_bundle, read_manifest
from bcos_sdk.bundle._open import is_replaceable
from bcos_sdk.cli import main
from bcos_sdk.contract import EXPLAIN_METADATA
from support.bundles import random_pixels, small_bundle
from support.export_extra import HAVE_TORCH
from support.mutations import HOSTILE, damaged, hostile_json, hostile_npz
from support.typed_errors import only_typed_errors

__all__ = ["command"]


@functools.cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in small_bundle().path.iterdir()}


def _bundle(folder: Path, **files: bytes) -> Path:
    """A bundle in which these files are replaced. Its hashes and digests are forged, as an attacker would."""
    contents = _files() | {name.replace("_", ".", 1): data for name, data in files.items()}
    contents |= {"explain_rows.onnx": _files()["explain_rows.onnx"]}
    try:
        document = json.loads(contents["manifest.json"])
        before = binding_digest(json.loads(_files()["manifest.json"]))
        digest = binding_digest(document)
        for name in contents:
            if name.endswith(".onnx"):
                contents[name] = contents[name].replace(before.encode(), digest.encode())
        for name, record in document["files"].items():
            if name in contents and len(record["sha256"]) == 64 and type(record["size"]) is int:
                record |= {"sha256": hashlib.sha256(contents[name]).hexdigest(), "size": len(contents[name])}
        contents["manifest.json"] = json.dumps(document).encode()
    except Exception:  # the manifest is so damaged that there is nothing to forge
        pass
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def _use(folder: Path) -> None:
    """Open the bundle, and do with it what a client and a user do."""
    image = random_pixels(1)[0]
    with Client(folder, device="cpu", threads=1) as client:
        for result in (*client.predict(image), *client.explain(image, top_k=2)):
            result.to_json()
        client.explain(image, targets=["mean"])


def command(*arguments: object) -> None:
    """Run a command of `bcos-sdk` in this process. Exceptions without a type of this package propagate."""
    result = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert "cannot write" not in result.output, result.output


# ---------------------------------------------------------------------------------------------------------- manifest


def hostile_manifest(random: Random) -> bytes:
    return hostile_json(json.loads(_files()["manifest.json"]), random)


def open_with_manifest(contents: bytes, folder: Path) -> None:
    _bundle(folder, manifest_json=contents)
    assert has_manifest(folder)
    is_replaceable(folder)
    command("models", "labels", folder)
    with only_typed_errors():
        read_manifest(folder)
    with only_typed_errors():
        _use(folder)
    assert open_bundle(folder).manifest.digest
    if HAVE_TORCH:
        command("inspect", folder)


# ------------------------------------------------------------------------------------------------------------ golden


def hostile_golden(random: Random) -> bytes:
    with np.load(io.BytesIO(_files()["golden.npz"])) as file:
        return hostile_npz(dict(file), random)


def open_with_golden(contents: bytes, folder: Path) -> None:
    _use(_bundle(folder, golden_npz=contents))


# ------------------------------------------------------------------------------------------------------------- graph


def hostile_graph(random: Random) -> bytes:
    return damaged(_files()["explain.onnx"], random)


def open_with_graph(contents: bytes, folder: Path) -> None:
    open_bundle(_bundle(folder, explain_onnx=contents))


# ----------------------------------------------------------------------------------------------------- engine record

_RECORD: dict[str, Any] = {
    "key": {
        "recipe": 1,
        "graph_sha256": "0" * 64,
        "weights_sha256": "1" * 64,
        "precision": "fp32",
        "tf32": False,
        "profiles": [{"image": [[1, 6, 20, 28], [4, 6, 20, 28], [4, 6, 20, 28]]}],
        "flavour": "tensorrt",
        "version": "10.16",
        "compute_capabilities": ["8.6"],
        "gpu": "a GPU",
        "cuda": "12.8",
        "driver": "570",
    },
    "plan_sha256": hashlib.sha256(b"plan").hexdigest(),
    "size": 4,
    "seconds": 1.5,
    "peak_memory": 10,
}


def hostile_engine_record(random: Random) -> bytes:
    return hostile_json(_RECORD, random)


def read_engine_record(contents: bytes, folder: Path) -> None:
    from bcos_sdk.backends.tensorrt import EngineKey, find_engine

    (folder / "explain.tensorrt.json").write_bytes(contents)
    (folder / "explain.tensorrt.plan").write_bytes(b"plan")
    for found in list_engines(folder).values():
        if not isinstance(found, str):
            found.model_dump(mode="json")
            found.key.stem("explain")
    find_engine([folder], "explain", EngineKey.model_validate(_RECORD["key"]))


# ----------------------------------------------------------------------------------------------------------- inspect


def hostile_onnx(random: Random) -> bytes:
    import onnx

    contents = _files()[random.choice(("explain.onnx", "predict.onnx"))]
    if random.random() < 0.4:
        return damaged(contents, random)
    model = onnx.load_from_string(contents)
    for _ in range(random.choice((1, 2))):
        _change_model(model, random)
    return bytes(model.SerializeToString())


def _change_model(model: Any, random: Random) -> None:
    text = random.choice([value for value in HOSTILE if isinstance(value, str)]).encode("utf-8", "replace").decode()
    number = random.choice((0, -1, 99, 1 << 30, -(1 << 62)))
    value = random.choice(
        [*model.graph.input, *model.graph.output, *model.graph.value_info] or [model.graph.input.add()]
    )
    tensor = value.type.tensor_type
    actions = (
        lambda: setattr(tensor, "elem_type", int(np.int32(number % (1 << 31)))),
        lambda: tensor.shape.dim.add(dim_value=number),
        lambda: tensor.shape.dim.add(dim_param=text),
        lambda: setattr(value, "name", text),
        lambda: value.ClearField("type"),
        lambda: value.type.sequence_type.elem_type.tensor_type.SetInParent(),
        lambda: model.ClearField("opset_import"),
        lambda: model.ClearField("graph"),
        lambda: model.ClearField("metadata_props"),
        lambda: setattr(model, "ir_version", number),
        lambda: setattr(model.opset_import[0], "version", number) if model.opset_import else None,
        lambda: model.graph.node.add(op_type=text),
        lambda: model.metadata_props.add(key=EXPLAIN_METADATA, value=text),
        lambda: model.metadata_props.add(
            key=EXPLAIN_METADATA, value=hostile_json({"bias_terms": ["a", "b"]}, random).decode("utf-8", "replace")
        ),
        lambda: model.metadata_props.add(key=text, value=text),
    )
    random.choice(actions)()


def inspect_onnx(contents: bytes, folder: Path) -> None:
    path = folder / "graph.onnx"
    path.write_bytes(contents)
    command("inspect", path)
    command("inspect", path, "--json")
    shutil.copy(path, folder / "model")  # the name of a file that is no ONNX file
    command("inspect", folder / "model")
    command("inspect", folder)
