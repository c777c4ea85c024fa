"""What plans for Triton are built from: TensorRT's parser reads it, and the parsed network computes the same.

TensorRT itself builds only on a GPU. TensorRT for RTX has the same parser and builds without one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.needs_torch  # noqa: F401
import torch
from support import gpu_machine
from support.bundles import LABELS, encoded_batch, random_pixels, small_bundle
from support.config_text import parse_config
from support.walking import execute, parse

from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.tensorrt import run_worker
from bcos_sdk.images import encode
from bcos_sdk.triton import RepositorySettings, write_repository

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")

CLASSES = len(LABELS)
SIZE = small_bundle().manifest.input.size
# Both compute the same sums of products in another order.
TOLERANCE = 2e-5
TYPES = {"float32": "TYPE_FP32", "int64": "TYPE_INT64", "uint8": "TYPE_UINT8"}


def sources(folder: Path, **settings: Any) -> list[tuple[dict[str, Any], Path, dict[str, Any]]]:
    """For each model: its configuration, a copy of the graph from which its plan is built, and the job."""
    found: list[tuple[Path, dict[str, Any]]] = []

    def keep(job: dict[str, Any]) -> dict[str, Any]:
        if job["task"] == "build":
            graph = Path(job["graph"])
            shutil.copytree(graph.parent, folder / f"{len(found)}")
            found.append((folder / f"{len(found)}" / graph.name, job))
        return machine.work(job)

    with pytest.MonkeyPatch.context() as patch:
        machine = gpu_machine.install(patch, folder / "cache")
        gpu_machine.use_worker(patch, keep)
        chosen = RepositorySettings(flavour="tensorrt", **settings)
        models = write_repository(small_bundle(), folder / "models", chosen)
    gpu_machine.forget()
    configs = (parse_config((one.path / "config.pbtxt").read_text("ascii")) for one in models)
    return [(config, graph, job) for config, (graph, job) in zip(configs, found, strict=True)]


@pytest.mark.parametrize("pixels", [False, True])
def test_the_parsed_network_has_the_tensors_of_the_configuration(tmp_path: Path, pixels: bool) -> None:
    """Also that there is no other output: the TensorRT backend refuses a plan with one that is not configured."""
    for config, graph, _ in sources(tmp_path, pixels=pixels):
        parsed = parse(graph, for_engine=True)
        for field, tensors in (("input", parsed.inputs), ("output", parsed.outputs)):
            configured = {one["name"][0]: (one["data_type"][0], [-1, *one.get("dims", [])]) for one in config[field]}
            assert configured == {
                one.name: (TYPES[np.dtype(_numpy_type(one)).name], list(one.shape)) for one in tensors
            }


@pytest.mark.parametrize("pixels", [False, True])
def test_the_parsed_network_explains_what_the_bundle_does(tmp_path: Path, pixels: bool) -> None:
    (_, predict, _), (_, explain, _) = sources(tmp_path, pixels=pixels, weights=True)
    colours = np.stack(random_pixels(3, size=SIZE))
    images = np.stack([encode(one) for one in colours])
    assert images.shape == encoded_batch(3).shape
    targets = np.array([[0, -1], [CLASSES, -CLASSES], [2, 3]])
    image = {"pixels": torch.from_numpy(colours)} if pixels else {"image": torch.from_numpy(images)}
    session = CPU.open_session(small_bundle().explain_graph)
    names = [one.name for one in session.get_outputs()]
    expected = dict(zip(names, session.run(names, {"image": images, "targets": targets}), strict=True))
    got = execute(parse(explain, for_engine=True), {**image, "targets": torch.from_numpy(targets)})
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert np.linalg.norm(got[name].numpy() - value) <= TOLERANCE * np.linalg.norm(value), name
    logits = execute(parse(predict, for_engine=True), image)["logits"].numpy()
    assert np.linalg.norm(logits - expected["logits"]) <= TOLERANCE * np.linalg.norm(logits)
    wrong = np.array([[-CLASSES - 1], [-(2**40)], [CLASSES + 1]])
    nothing = execute(parse(explain, for_engine=True), {**image, "targets": torch.from_numpy(wrong)})
    assert (nothing["classes"].numpy() > CLASSES).all()
    assert not nothing["contributions"].any()


@pytest.mark.full
def test_tensorrt_for_rtx_builds_a_plan_with_these_profiles(tmp_path: Path) -> None:
    for _, graph, job in sources(tmp_path, pixels=True, max_targets=2):
        job |= {"graph": str(graph), "plan": str(graph.with_suffix(".plan")), "flavour": "tensorrt_rtx", "gpu": None}
        reply = run_worker({**job, "capabilities": ["8.9"]})
        assert Path(job["plan"]).stat().st_size == reply["size"] > 0


def _numpy_type(tensor: Any) -> Any:
    import tensorrt_rtx

    return tensorrt_rtx.nptype(tensor.dtype)
