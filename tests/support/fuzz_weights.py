"""Fuzz targets for weights files and for the figures of a user's own code. They need torch."""

from __future__ import annotations

import functools
import io
import json
import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bcos_sdk.registry import ModelSpec, builtin_registry, derive
from support.bundles import random_pixels
from support.export_extra import torch
from support.mutations import HOSTILE, changed, damaged, hostile_json, hostile_npz, hostile_zip


@functools.cache
def _spec() -> ModelSpec:
    spec = builtin_registry()["cifar10_resnet18_w16"]
    return derive(spec, settings={"blocks": [1], "width": 2})


@functools.cache
def _state() -> dict[str, Any]:
    from bcos_sdk.models import build_model

    return dict(build_model(_spec()).state_dict())


def _structure(random: Random) -> Any:
    """A checkpoint of nested, shared and recursive containers."""
    state = _state()
    choice = random.randrange(8)
    if choice == 0:
        shared: Any = dict(state)
        for _ in range(random.choice((4, 40))):
            shared = {str(key): shared for key in range(random.choice((2, 8)))}
        return shared
    if choice == 1:
        recursive: dict[str, Any] = dict(state)
        recursive["self"] = recursive
        recursive["list"] = [recursive] * 3
        return recursive
    if choice == 2:
        return {f"{number}.{key}": value for number in range(20) for key, value in state.items()}
    if choice == 3:
        return state | {random.choice(_TEXTS) + key: value for key, value in state.items()}
    if choice == 4:
        return {"labels": random.choice(HOSTILE), "state_dict": state, "hparams": {"classes": random.choice(HOSTILE)}}
    if choice == 5:
        names = {random.choice(_TEXTS): random.choice(HOSTILE[:30]) for _ in range(10)}
        return {"class_to_idx": names, "model": state, "id2label": dict.fromkeys(names.values(), "a")}
    if choice == 6:
        key = random.choice([key for key, tensor in state.items() if tensor.is_floating_point()])
        tensors = (
            torch.zeros(0),
            torch.zeros(2**20).expand(2**10, 2**20),
            torch.full_like(state[key], float("nan")),
            torch.zeros(3, dtype=torch.complex64),
            torch.eye(3).to_sparse(),
            state[key].to(torch.int8),
            state[key].to(torch.float8_e4m3fn),
        )
        return state | {key: random.choice(tensors)}
    return changed({"state_dict": {"a": 1}, "epoch": 3, "hparams": {"a": [1]}}, random)


_TEXTS = [value for value in HOSTILE if isinstance(value, str)]


def hostile_checkpoint(random: Random) -> bytes:
    structure = _structure(random)
    file = io.BytesIO()
    if random.random() < 0.15:
        try:
            return damaged(pickle.dumps(changed({"a": {"b": [1, 2.0, "x"]}}, random), random.choice((0, 2, 4))), random)
        except RecursionError:
            return b""
    torch.save(structure, file, _use_new_zipfile_serialization=random.random() < 0.8)
    contents = file.getvalue()
    choice = random.random()
    if choice < 0.25:
        return damaged(contents, random)
    if choice < 0.5 and contents.startswith(b"PK"):
        return hostile_zip(contents, random, lambda _name, member: damaged(member, random))
    return contents


def load_checkpoint(contents: bytes, folder: Path) -> None:
    _load(folder / "weights.pth", contents)


def hostile_safetensors(random: Random) -> bytes:
    from safetensors.torch import save

    contents = save(_state(), {"labels": json.dumps(random.choice(HOSTILE))})
    if random.random() < 0.3:
        return damaged(contents, random)
    size = int.from_bytes(contents[:8], "little")
    header = hostile_json(json.loads(contents[8 : 8 + size]), random)
    claimed = len(header) if random.random() < 0.9 else random.choice((0, 2**40, 2**63, 2**64 - 1))
    return claimed.to_bytes(8, "little") + header + contents[8 + size :]


def load_safetensors(contents: bytes, folder: Path) -> None:
    _load(folder / "weights.safetensors", contents)


def _load(path: Path, contents: bytes) -> None:
    from bcos_sdk.weights import load_fine_tuned

    path.write_bytes(contents)
    load_fine_tuned(_spec(), path)


def hostile_expectation(random: Random) -> bytes:
    return hostile_npz({"image": random_pixels(1)[0], "logits": np.arange(7.0)}, random)


def read_expected(contents: bytes, folder: Path) -> None:
    from bcos_sdk.contract import InputSpec
    from bcos_sdk.exporters.verify import read_expectation
    from bcos_sdk.models import build_model

    path = folder / "expected.npz"
    path.write_bytes(contents)
    expectation = read_expectation(path)
    expectation.check_module(build_model(_spec()).eval(), InputSpec.exact((32, 32)))
