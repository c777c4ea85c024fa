"""Engines on a GPU compared with ONNX Runtime on the CPU: values, certificates, batches, cache.

Every test runs on a simulated GPU, which shows that the test works, and with `make test-gpu` on a real GPU, once for
each TensorRT flavour that is installed there.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gpu_machine
from support.bundles import MAX_BATCH, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.members import MEMBERS, build_member
from support.members import images as member_images

from bcos_sdk import Client
from bcos_sdk.backends import Backend, open_backend, probe_driver
from bcos_sdk.backends.tensorrt import EngineRecord, flavour_problem, flavours_for
from bcos_sdk.bundle import Bundle, builtin_bundle, open_bundle
from bcos_sdk.contract import ExplainOutputs, GraphPrecision
from bcos_sdk.exporters import export
from bcos_sdk.images import encode

FAKE = "simulated GPU"
FLAVOURS = ("tensorrt", "tensorrt_rtx")
CLOSE = 1e-3  # TensorRT rounds in another order, but a wrong layer differs by more than this


@pytest.fixture(
    autouse=True,
    params=[FAKE, *(pytest.param(flavour, marks=pytest.mark.gpu) for flavour in FLAVOURS)],
)
def _gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    if request.param == FAKE:
        gpu_machine.install(monkeypatch, tmp_path / "cache")
    else:
        pytest.importorskip(request.param, reason=f"{request.param} is not installed")
        monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))
        gpu_machine.uninstall(monkeypatch, *(flavour for flavour in FLAVOURS if flavour != request.param))
        if (problem := flavour_problem(request.param, 0)) is not None:
            pytest.skip(problem)
        needs: GraphPrecision = "fp16" if "fp16" in request.node.name else "fp32"
        capability = probe_driver().gpus[0].capability
        if not flavours_for(capability, needs, [request.param]):
            pytest.skip(f"{request.param} has no {needs} on compute capability {capability}")
    yield request.param
    gpu_machine.forget()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


@pytest.fixture
def builds(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A function that returns the log lines about builds since its last call."""
    caplog.set_level(logging.WARNING, "bcos_sdk")

    def taken() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if "building" in record.getMessage()]
        caplog.clear()
        return lines

    return taken


def images(count: int, seed: int = 0) -> Any:
    return np.stack([encode(cropped(pixels)) for pixels in random_pixels(count, seed)])


def relative_difference(value: Any, truth: Any) -> float:
    """‖value − truth‖ / ‖truth‖."""
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


def compare(gpu: Backend, cpu: Backend, batch: Any, targets: Any) -> None:
    got, want = gpu.explain(batch, targets, weights=True), cpu.explain(batch, targets, weights=True)
    assert (got.classes == want.classes).all()
    for name in ("logits", "contributions", "bias_terms", "weights"):
        one, other = getattr(got, name), getattr(want, name)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert relative_difference(one, other) < CLOSE, name
    assert relative_difference(gpu.predict(batch), want.logits) < CLOSE


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 2), (MAX_BATCH, MAX_BATCH), (2 * MAX_BATCH + 1, 1)])
def test_engines_agree_with_onnx_runtime(bundle: Bundle, count: int, rows: int) -> None:
    gpu, cpu = open_backend(bundle, "tensorrt"), cpu_backend(bundle)
    targets = np.arange(count * rows).reshape(count, rows) % (bundle.manifest.classes + 1)
    compare(gpu, cpu, images(count), targets)
    compare(gpu, cpu, images(count, seed=1), targets)
    gpu.close()


FAMILIES = ["ResNet with bottlenecks", "ResNeXt", "DenseNet", "VGG", "ConvNeXt", "SimpleViT", "ViT-C", "plain network"]
FAR = {"fp32": CLOSE, "tf32": 1e-1, "fp16": 1e-1}


@pytest.mark.parametrize("precision", FAR)
@pytest.mark.parametrize("family", FAMILIES)
def test_engines_of_every_family_agree_with_onnx_runtime(
    request: pytest.FixtureRequest, tmp_path: Path, family: str, precision: str
) -> None:
    if request.getfixturevalue("_gpu") == FAKE and (family, precision) != ("ViT-C", "fp16"):
        pytest.skip("one case shows that the test works")
    size, _ = MEMBERS[family]
    exported = export(
        build_member(family),
        tmp_path / "family",
        input_size=size,
        max_batch=3,
        precision="fp16" if precision == "fp16" else "fp32",
    )
    gpu = open_backend(exported, "tensorrt", tf32=precision == "tf32")
    batch = member_images(3, size).numpy()
    got = gpu.explain(batch, np.array([[0], [1], [2]]), weights=True)
    want = cpu_backend(exported).explain(batch, np.array([[0], [1], [2]]), weights=True)
    assert got.weights is not None
    assert want.weights is not None
    assert relative_difference(got.weights, want.weights) < FAR[precision]
    assert relative_difference(got.logits, want.logits) < FAR[precision]


def test_every_explanation_is_complete(bundle: Bundle) -> None:
    with Client(bundle.path, device="tensorrt") as client:
        for result in client.explain(random_pixels(9), top_k=3, weights=True):
            for explanation in result.explanations:
                assert explanation.completeness.passed
                assert explanation.completeness.tolerance <= bundle.manifest.tolerance


def test_cuda_graphs_agree_with_onnx_runtime(bundle: Bundle) -> None:
    """Each shape often enough that both slots have captured it, then again after larger ones have moved the buffers."""
    gpu, cpu = open_backend(bundle, "tensorrt", cuda_graphs=True), cpu_backend(bundle)
    for seed, (count, rows) in enumerate([(1, 1), (3, 2), (1, 1), (MAX_BATCH, MAX_BATCH), (3, 2), (1, 1)]):
        targets = np.arange(count * rows).reshape(count, rows) % (bundle.manifest.classes + 1)
        for again in range(6):
            compare(gpu, cpu, images(count, seed=10 * seed + again), targets)
    gpu.close()


@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_switching_profiles_agrees_with_onnx_runtime(cuda_graphs: bool) -> None:
    """One image with one target has a profile of its own. Each run switches to the other one, also during a run."""
    exported = open_bundle(builtin_bundle())
    gpu, cpu = open_backend(exported, "tensorrt", cuda_graphs=cuda_graphs), cpu_backend(exported)
    batches = [encoded_images(count, exported) for count in (1, 8)]
    asked = [np.array([[3]]), np.arange(40).reshape(8, 5) % 11]
    truths = [cpu.explain(*pair, weights=True) for pair in zip(batches, asked, strict=True)]
    wanted = [place % 2 for place in range(12)]
    waiting: deque[Callable[[], ExplainOutputs]] = deque()
    got = []
    for overlap in (1, 2):  # one run at a time, then each started while the one before is on the GPU
        for place in wanted:
            waiting.append(gpu.start_explain(batches[place], asked[place], weights=True))
            if len(waiting) == overlap:
                got.append(waiting.popleft()())
    got.extend(finish() for finish in waiting)
    assert len(got) == 2 * len(wanted)
    for place, outputs in zip([*wanted, *wanted], got, strict=True):
        assert (outputs.classes == truths[place].classes).all()
        assert relative_difference(outputs.weights, truths[place].weights) < CLOSE
        assert relative_difference(outputs.logits, truths[place].logits) < CLOSE
    gpu.close()


@pytest.mark.parametrize("layer", range(4))
def test_inner_layers_agree_with_onnx_runtime(layer: int) -> None:
    exported = open_bundle(builtin_bundle())
    gpu, cpu = open_backend(exported, "tensorrt"), cpu_backend(exported)
    channels = exported.manifest.layer_records[layer].channels
    batch, targets = encoded_images(3, exported), np.array([[0, -1], [3, 10], [-2, 5]])
    positions, directions = np.array([[-1], [0], [3]]), np.eye(3, channels, dtype=np.float32)[:, None]
    for name, of_gpu, of_cpu in (
        ("features", *(one.features(batch, (layer,)).activations[0] for one in (gpu, cpu))),
        ("relay", *(one.relay(batch, targets, layer).features for one in (gpu, cpu))),
        ("explain_layer", *(one.explain_layer(batch, layer, positions, directions).weights for one in (gpu, cpu))),
    ):
        assert relative_difference(of_gpu, of_cpu) < CLOSE, name
    gpu.close()


def encoded_images(count: int, exported: Bundle) -> Any:
    shape = (count, *exported.manifest.input.size, 3)
    return np.stack([encode(one) for one in np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)])


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_certificates_hold_with_tf32_and_fp16(tmp_path: Path, precision: str) -> None:
    exported = small_bundle(precision="fp16" if precision == "fp16" else "fp32")
    folder = copy_of(exported, tmp_path / "coarse")
    with Client(folder, device="tensorrt", tf32=precision == "tf32") as client:
        for result in client.explain(random_pixels(9), top_k=2, weights=True):
            for explanation in result.explanations:
                assert explanation.completeness.precision == precision
                assert explanation.completeness.passed


def test_many_threads_get_their_own_results(bundle: Bundle) -> None:
    pixels = random_pixels(8)
    with Client(bundle.path, device="tensorrt") as client:
        alone = [client.explain(one)[0].explanations[0].contributions for one in pixels]
        together: dict[int, Any] = {}

        def ask(place: int) -> None:
            together[place] = client.explain(pixels[place])[0].explanations[0].contributions

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(pixels))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for place, expected in enumerate(alone):
        assert relative_difference(together[place], expected) < CLOSE


def test_engines_are_built_once(bundle: Bundle, builds: Callable[[], list[str]]) -> None:
    open_backend(bundle, "tensorrt").close()
    assert len(builds()) == 2
    open_backend(bundle, "tensorrt").close()
    assert builds() == []


def engine_files(tmp_path: Path, suffix: str) -> list[Path]:
    return sorted((tmp_path / "cache" / "engines").glob(f"explain*{suffix}"))


def test_an_engine_of_another_version_is_built_again(
    bundle: Bundle, tmp_path: Path, builds: Callable[[], list[str]]
) -> None:
    open_backend(bundle, "tensorrt").close()
    builds()
    (path,) = engine_files(tmp_path, ".json")
    record = EngineRecord.model_validate_json(path.read_text("utf-8"))
    old = record.model_copy(update={"key": record.key.model_copy(update={"version": "1.0"})})
    path.write_text(old.model_dump_json(), "utf-8")
    backend = open_backend(bundle, "tensorrt")
    (line,) = builds()
    assert f"its TensorRT version is 1.0, not {record.key.version}" in line
    compare(backend, cpu_backend(bundle), images(2), np.array([[0], [-1]]))


def test_a_damaged_plan_is_built_again(bundle: Bundle, tmp_path: Path, builds: Callable[[], list[str]]) -> None:
    open_backend(bundle, "tensorrt").close()
    builds()
    (plan,) = engine_files(tmp_path, ".plan")
    contents = bytearray(plan.read_bytes())
    contents[len(contents) // 2] ^= 1
    plan.write_bytes(contents)
    backend = open_backend(bundle, "tensorrt")
    (line,) = builds()
    assert "its hash differs from the record" in line
    compare(backend, cpu_backend(bundle), images(1), np.array([[2]]))


def test_auto_uses_engines_that_were_built(bundle: Bundle, builds: Callable[[], list[str]]) -> None:
    open_backend(bundle, "tensorrt").close()
    builds()
    with Client(bundle.path, device="auto") as client:
        assert client.device == "tensorrt:0"
    assert builds() == []


def test_memory_is_freed(bundle: Bundle) -> None:
    from importlib import import_module

    runtime: Any = import_module("cuda.bindings.runtime")
    open_backend(bundle, "tensorrt").close()  # the first use of a GPU keeps some memory
    _, before, _ = runtime.cudaMemGetInfo()
    for _ in range(5):
        backend = open_backend(bundle, "tensorrt")
        compare(backend, cpu_backend(bundle), images(MAX_BATCH), np.zeros((MAX_BATCH, 1), np.int64))
        backend.close()
    _, after, _ = runtime.cudaMemGetInfo()
    assert before - after < 32 << 20
