"""Fuzz targets for what users write: images, targets, lists, labels, registries, settings, the environment."""

from __future__ import annotations

import functools
import io
import json
import os
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import yaml
from PIL import Image

from bcos_sdk import Contrast
from bcos_sdk.bundle import find_bundle, latest_stored_bundle, list_store
from bcos_sdk.cli.predict._image_files import find_images
from bcos_sdk.contract import InputSpec
from bcos_sdk.images import load_image
from bcos_sdk.limits import Limits
from bcos_sdk.registry import builtin_registry, derive, load_registry, model_registry, parse_settings, read_labels
from bcos_sdk.testing import FakeClient
from support.bundles import random_pixels
from support.fuzz_bundles import command
from support.mutations import HOSTILE, changed, damaged
from support.registries import ENTRY
from support.typed_errors import only_typed_errors

# ------------------------------------------------------------------------------------------------------------- image

_FORMATS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PNG", "RGB", {}),
    ("PNG", "P", {}),
    ("PNG", "I;16", {}),
    ("JPEG", "RGB", {"progressive": True}),
    ("JPEG", "L", {}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ("TIFF", "L", {}),
    ("WEBP", "RGB", {}),
)


@functools.cache
def _picture(place: int) -> bytes:
    form, mode, options = _FORMATS[place]
    pixels = random_pixels(1, size=(40, 50))[0]
    picture = Image.fromarray(pixels)
    file = io.BytesIO()
    (Image.fromarray(pixels[..., 0].astype(np.uint16)) if mode == "I;16" else picture.convert(mode)).save(
        file, form, **options
    )
    return file.getvalue()


def hostile_image(random: Random) -> bytes:
    contents = _picture(random.randrange(len(_FORMATS)))
    head = random.randrange(len(contents) + 1)  # most of what a decoder can trip over is in the head
    return damaged(contents[:head], random) + contents[head:] if random.random() < 0.6 else damaged(contents, random)


def load_picture(contents: bytes, _folder: Path) -> None:
    load_image(contents, "the image", InputSpec.for_photographs((20, 28)), Limits(), enlarge=4)


# ----------------------------------------------------------------------------------------------------------- targets

_TARGETS: list[Any] = [
    0,
    "cat",
    "mean",
    "cat vs dog",
    {"contrast": ["cat", "mean"]},
    [0, 1],
    {"numpy": 3},
    {"float": 1},
]


def hostile_targets(random: Random) -> bytes:
    document = {"targets": random.choice([*_TARGETS, _TARGETS]), "top_k": 2}
    return json.dumps(changed(document, random)).encode()


def explain_targets(contents: bytes, _folder: Path) -> None:
    document = json.loads(contents)
    arguments = document if isinstance(document, dict) else {"targets": document}
    with FakeClient(input_size=8) as client:
        for image in (random_pixels(1)[0], random_pixels(2)):
            client.explain(
                image, targets=_target(arguments.get("targets")), top_k=arguments.get("top_k", 1), on_error="return"
            )


def _target(value: Any) -> Any:
    if isinstance(value, list):
        return [_target(one) for one in value]
    if isinstance(value, dict) and isinstance(value.get("contrast"), list) and len(value["contrast"]) == 2:
        return Contrast(*map(_target, value["contrast"]))
    if isinstance(value, dict) and isinstance(value.get("numpy"), int):
        return np.int64(value["numpy"] % 10)
    return value


# -------------------------------------------------------------------------------------------------------------- list

_NAMES = ("a.png", "sub/b.jpg", "/c.png", " ", "..", "@d", "-", "*.png", "[", "~", "~x/a.png", "a" * 300, "\ud800", "#")


def hostile_list(random: Random) -> bytes:
    names = random.choices((*_NAMES, *(value for value in HOSTILE if isinstance(value, str))), k=random.randrange(6))
    separator = random.choice(("\n", "\r\n", "\0", "\r", "\u2028"))
    text = separator.join(names).encode("utf-8", "surrogatepass")
    return damaged(text, random) if random.random() < 0.5 else text


def read_list(contents: bytes, folder: Path) -> None:
    path = folder / "list.txt"
    path.write_bytes(contents)
    for null in (False, True):
        for stdin in (False, True):
            with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(contents))), only_typed_errors():
                found = find_images(["-"] if stdin else [f"@{path}"], null=null, out=folder / "out")
                for image in found.images[:5]:
                    _load_path(image.path)


def _load_path(path: Path) -> None:
    with only_typed_errors():
        load_image(path, "the image", InputSpec.exact((20, 28)), Limits())


# ------------------------------------------------------------------------------------------------------------ labels


def hostile_labels(random: Random) -> bytes:
    names = [value for value in HOSTILE if isinstance(value, str)]
    text = "\n".join(random.sample(names, random.randrange(len(names)))).encode("utf-8", "surrogatepass")
    return damaged(text or b"cat\ndog\n", random) if random.random() < 0.5 else text


def read_label_file(contents: bytes, folder: Path) -> None:
    path = folder / "labels.txt"
    path.write_bytes(contents)
    read_labels(path)


# -------------------------------------------------------------------------------------------------------------- YAML

_ENTRY: dict[str, Any] = {**ENTRY, "published": {"top1": 90.0, "note": "x"}, "weights": {"file": "w.pth"}}
_MATRIX: dict[str, Any] = {
    **ENTRY,
    "matrix": {"size": {"a": {"architecture": {"width": 8}}, "b": {}}, "b": {1: {}, "2": {"description": "two"}}},
}
_BASE: dict[str, Any] = {"base": "cifar10_resnet18_w16", "labels": {"file": "labels.txt"}, "input": {"size": [40, 40]}}
_DOCUMENT: dict[str, Any] = {"schema": 1, "models": {"mine": _ENTRY, "m_{size}_{b}": _MATRIX, "tuned": _BASE}}
_FRAGMENTS = (
    *(
        "&a [*a]",
        "*a",
        "&a {<<: *a}",
        "{<<: [1, 2]}",
        "{<<: 1}",
        "!!python/object:os.system x",
        "!!binary '@'",
        "!!set {1}",
    ),
    *("2001-02-30", "2001-01-01T25:61:61Z", "2001-01-01", "1:60:99", "0x" + "f" * 9000, "0b" + "1" * 9000, "1" * 5000),
    *(
        ".nan",
        ".inf",
        "-.inf",
        "1e999",
        "0o9",
        "~",
        "? [a]\n: b",
        "{[1]: 2}",
        "{{1: 2}: 3}",
        "!!timestamp x",
        "!!int x",
    ),
    *("!!float .", "!!bool x", "!!null x", "!!omap [1]", "!!pairs [1]", "!x y", "!!str [a]", "!!map [1]", "!!seq {}"),
    *("[" * 5000, "{a: " * 3000, "- " * 3000, '"\\UFFFFFFFF"', '"\\ud800"', "'", "|\n", "%YAML 9.9", "@", "`", "\t"),
    *("!!int ''", "!!float ''", "!!binary ''", "0x", "1__0", "+", "_", "-_", "0b_", ":", "1:", "--- a\n--- b", "...\n"),
)


def _bomb(random: Random) -> str:
    """Anchors that stand for exponentially many values, as lists or as merged mappings, or a long chain of them."""
    levels, width, style = random.choice((8, 30, 2000)), random.choice((1, 2, 9)), random.randrange(3)
    lines = ["schema: 1", "shared:", "  k0: &k0 {a: 1}"]
    for level in range(1, levels):
        names = ", ".join([f"*k{level - 1}"] * width)
        kinds = (f"[{names}]", f"{{<<: [{names}]}}", f"{{a{level}: *k{level - 1}, b: *k0}}")
        lines.append(f"  k{level}: &k{level} {kinds[style]}")
    place = random.choice(("labels", "description", "matrix", "architecture", "input", "<<"))
    return "\n".join([*lines, "models:", "  mine:", f"    {place}: *k{levels - 1}", ""])


def _matrix(random: Random) -> str:
    """A matrix whose axes multiply to very many entries."""
    axes = random.choice((3, 8, 20))
    values: dict[str, Any] = {str(value): {} for value in range(random.choice((2, 10)))}
    name = "m" + "".join(f"_{{a{axis}}}" for axis in range(axes))
    entry = {**ENTRY, "matrix": {f"a{axis}": values for axis in range(axes)}}
    return json.dumps({"schema": 1, "models": {name: entry}})


def hostile_yaml(random: Random) -> bytes:
    choice = random.random()
    if choice < 0.06:
        return _bomb(random).encode()
    if choice < 0.09:
        return _matrix(random).encode()
    if choice < 0.5:
        text = json.dumps(changed(_DOCUMENT, random), ensure_ascii=random.random() < 0.8)
        return text.encode("utf-8", "surrogatepass")
    if choice < 0.8:
        text = json.dumps(changed(_DOCUMENT, random, ("fragment",)))
        return text.replace('"fragment"', random.choice(_FRAGMENTS)).encode()
    return damaged(yaml.safe_dump(_DOCUMENT).encode(), random)


def read_yaml(contents: bytes, folder: Path) -> None:
    path = folder / "models.yaml"
    path.write_bytes(contents)
    (folder / "labels.txt").write_text("\n".join(map(str, range(10))))
    registry = load_registry(path)
    command("models", "--registry", path)
    command("models", "--registry", path, "--json")
    for name, spec in list(registry.items())[:5]:
        spec.model_dump_json()
        if not name.startswith("-"):
            command("models", "show", "--registry", path, name)


# ---------------------------------------------------------------------------------------------------------- settings


def hostile_settings(random: Random) -> bytes:
    keys = (
        "norm.eps",
        "norm",
        "classes",
        "b",
        "width",
        "blocks",
        "max_out",
        "temperature",
        "logit_bias",
        "family",
        "x.y",
    )
    values = (*_FRAGMENTS, *(json.dumps(value) for value in HOSTILE))
    settings = [f"{random.choice(keys)}={random.choice(values)}" for _ in range(random.choice((1, 2)))]
    text = json.dumps(settings).encode()
    return (
        text
        if random.random() < 0.8
        else json.dumps([damaged(settings[0].encode(), random).decode("latin-1")]).encode()
    )


def apply_settings(contents: bytes, _folder: Path) -> None:
    spec = builtin_registry()["cifar10_resnet18_w16"]
    derived = derive(spec, settings=parse_settings(json.loads(contents)))
    derived.model_dump_json()
    assert derived.architecture.resolved_logit_bias is not None


# ------------------------------------------------------------------------------------------------------- environment

_VARIABLES = (
    "BCOS_SDK_CACHE",
    "BCOS_SDK_STORE",
    "BCOS_SDK_REGISTRY",
    "BCOS_SDK_MODEL",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
)
_PLACES = (
    "~nobody-at-all/x",
    "~",
    "/dev/null",
    "/dev/null/x",
    "x" * 5000,
    "\ud800",
    "*",
    "/proc/self/mem",
    ":",
    "://",
    ".",
)


def hostile_environment(random: Random) -> bytes:
    texts = [value for value in HOSTILE if isinstance(value, str) and "\0" not in value and len(value) < 10_000]
    chosen = {name: random.choice((*texts, *_PLACES)) for name in random.sample(_VARIABLES, random.choice((1, 2)))}
    return json.dumps(chosen).encode()


def read_environment(contents: bytes, folder: Path) -> None:
    variables = {name: text for name, text in json.loads(contents).items() if "HOME" not in name or text}
    encodable = {name: os.fsdecode(text.encode("utf-8", "replace")) for name, text in variables.items()}
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ):
            for name in _VARIABLES:
                os.environ.pop(name, None)
            os.environ.update(encodable)
            for call in (list_store, latest_stored_bundle, model_registry, lambda: find_bundle("resnet")):
                with only_typed_errors():
                    call()
            command("models", "list")
            command("inspect", "resnet")
            command("predict", "x.png", "--device", "cpu")
    finally:
        os.chdir(before)
