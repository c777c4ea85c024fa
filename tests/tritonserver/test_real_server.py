"""A real tritonserver on repositories of the flavour python, which the same code writes as the other flavours.

`make test-triton` runs these tests. The results are compared, bit for bit, with ONNX Runtime in this process.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support.bundles import LABELS, MAX_BATCH, encoded_batch, random_pixels, small_bundle
from support.triton import Reply, TritonServer, run_in_environment, running_triton, triton_environment

from bcos_sdk import Client
from bcos_sdk.bundle import Bundle, builtin_bundle, open_bundle
from bcos_sdk.contract import Arrays, certificate_scale
from bcos_sdk.images import encode
from bcos_sdk.triton import RepositorySettings, write_repository

pytestmark = pytest.mark.full

CLASSES = len(LABELS)
MERGING = {"queue_delay": 50_000}
ROUNDING = 1e-5
"""Relative, in the 2-norm. The results of different images differ by far more, see `distinct`."""


def write(folder: Path, bundle: Bundle, **settings: Any) -> None:
    write_repository(bundle, folder, RepositorySettings(flavour="python", threads=1, **settings))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    triton_environment()
    folder = tmp_path_factory.mktemp("triton") / "models"
    write(folder, small_bundle())
    write(folder, small_bundle(), name="full", weights=True)
    write(folder, small_bundle(), name="eight_bit", pixels=True)
    write(folder, small_bundle(), name="merging", **MERGING)
    write(folder, open_bundle(builtin_bundle()), name="narrow", queue=2, instances=1)
    with running_triton(folder) as running:
        yield running


class InProcess:
    """The graphs of a bundle in ONNX Runtime, in this process."""

    def __init__(self, bundle: Bundle) -> None:
        self._sessions = [
            onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            for path in (bundle.predict_graph, bundle.explain_graph)
        ]

    def __call__(self, **feed: Any) -> Arrays:
        session = self._sessions["targets" in feed]
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, feed), strict=True))


@pytest.fixture(scope="module")
def computed() -> InProcess:
    return InProcess(small_bundle())


def check(reply: Reply, expected: Arrays, *, merged: bool = False) -> None:
    """The outputs must be those expected, bit for bit. A run with the images of others may round otherwise."""
    assert reply.status == 200, reply.document
    for name, value in reply.tensors.items():
        wanted = expected[name]
        assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
        difference = np.linalg.norm(value.astype(np.float64) - wanted)
        assert difference <= (ROUNDING * np.linalg.norm(wanted) if merged else 0), name


def distinct(expected: Sequence[Arrays]) -> bool:
    """Whether the logits of all these images differ by more than a hundred times what rounding explains."""
    logits = np.concatenate([one["logits"] for one in expected]).astype(np.float64)
    distances = np.linalg.norm(logits[:, None] - logits, axis=-1) + np.diag(np.full(len(logits), np.inf))
    return bool(distances.min() > 100 * ROUNDING * np.linalg.norm(logits, axis=1).max())


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """The results of all calls, each in a thread of its own, started together."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_outputs_are_those_of_onnx_runtime_bit_for_bit(server: TritonServer, computed: InProcess) -> None:
    for count in range(1, MAX_BATCH + 1):
        images = encoded_batch(count, seed=count)
        targets = np.array([[0, -1, CLASSES, -CLASSES]] * count)
        predicted, explained = computed(image=images), computed(image=images, targets=targets)
        check(server.infer("small", image=images), predicted)
        for name, outputs in (("small", 5), ("full", 6)):
            reply = server.infer(f"{name}_explain", image=images, targets=targets)
            assert len(reply.tensors) == outputs
            check(reply, explained)
        only = server.infer("full_explain", ["contributions"], image=images, targets=targets)
        assert only.tensors.keys() == {"contributions"}
        check(only, explained)


def test_explanations_add_up(server: TritonServer) -> None:
    """Several targets of one image: a class, the third most likely one, and the mean of all logits."""
    images, targets = encoded_batch(2), np.array([[3, -3, CLASSES]] * 2)
    outputs = server.infer("small_explain", image=images, targets=targets).tensors
    for image, row in np.ndindex(2, 3):
        logits, known = outputs["logits"][image], outputs["classes"][image, row]
        logit = logits.mean(dtype=np.float64) if known == CLASSES else logits[known]
        contributions, terms = outputs["contributions"][image, row], outputs["bias_terms"][image, row]
        total = contributions.sum(dtype=np.float64) + terms.sum(dtype=np.float64)
        scale = certificate_scale(contributions, terms, logits, is_mean=bool(known == CLASSES))
        assert abs(logit - total) <= small_bundle().manifest.tolerance * scale


def test_a_contrast_is_the_difference_of_two_targets(server: TritonServer) -> None:
    pixels = random_pixels(1, seed=5)[0]
    with Client(small_bundle().path, device="cpu") as client:
        (result,) = client.explain(pixels, targets=["fox vs lynx"])
    explanation = result.explanations[0]
    fox, lynx = LABELS.index("fox"), LABELS.index("lynx")
    images = np.stack([encode(explanation.image)])
    outputs = server.infer("small_explain", image=images, targets=np.array([[fox, lynx]])).tensors
    first, second = outputs["contributions"][0]
    assert np.array_equal(first - second, explanation.contributions)


def test_pixels_give_the_bits_of_the_client_s_preprocessing(server: TritonServer, computed: InProcess) -> None:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (3, *small_bundle().manifest.input.size, 3), dtype=np.uint8)
    images, targets = np.stack([encode(one) for one in pixels]), np.array([[-1, 2]] * 3)
    check(server.infer("eight_bit", pixels=pixels), computed(image=images))
    check(server.infer("eight_bit_explain", pixels=pixels, targets=targets), computed(image=images, targets=targets))


def test_the_configuration_has_the_manifest_over_http_and_grpc(server: TritonServer) -> None:
    expected = small_bundle().manifest.to_json()
    for model in ("small", "small_explain"):
        assert server.config(model)["parameters"]["bcos_manifest"]["string_value"] == expected
    program = """
import sys, tritonclient.grpc as grpc
client = grpc.InferenceServerClient(sys.argv[1])
print(client.get_model_config("small_explain").config.parameters["bcos_manifest"].string_value, end="")
"""
    assert run_in_environment(triton_environment(), program, f"127.0.0.1:{server.grpc}") == expected


def test_the_lines_of_the_documentation_get_the_same_bits_over_grpc(
    server: TritonServer, computed: InProcess, tmp_path: Path
) -> None:
    """With the unmodified public client."""
    page = (Path(__file__).parents[2] / "docs" / "triton.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = f"""
import sys, numpy as np
encoded = np.load(sys.argv[1])
{block}
assert manifest.startswith("{{")
np.savez(sys.argv[2], **{{one.name: result.as_numpy(one.name) for one in result.get_response().outputs}})
"""
    program = program.replace("localhost:8001", f"127.0.0.1:{server.grpc}").replace('"NAME', '"full')
    images = encoded_batch(3)
    np.save(tmp_path / "in.npy", images)
    run_in_environment(triton_environment(), program, str(tmp_path / "in.npy"), str(tmp_path / "out.npz"))
    expected = computed(image=images, targets=np.full((3, 1), -1))
    with np.load(tmp_path / "out.npz") as got:
        assert got.keys() == expected.keys()
        assert all(np.array_equal(got[name], expected[name]) for name in expected)


def test_requests_are_merged_into_batches(server: TritonServer, computed: InProcess) -> None:
    images = encoded_batch(40)
    calls: list[Callable[[], Any]] = [
        lambda place=place: server.infer("merging", image=images[place : place + 1])  # type: ignore[misc]
        for place in range(40)
    ]
    names = ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count")
    before = [server.metric(name, "merging") for name in names]
    replies = at_once(calls)
    requests, inferences, executions = (
        server.metric(name, "merging") - old for name, old in zip(names, before, strict=True)
    )
    expected = [computed(image=images[place : place + 1]) for place in range(40)]
    assert distinct(expected)
    for reply, outputs in zip(replies, expected, strict=True):
        check(reply, outputs, merged=True)
    assert (requests, inferences) == (40, 40)
    assert 10 <= executions < 40


def test_concurrent_requests_do_not_mix(server: TritonServer, computed: InProcess) -> None:
    """Batches of all sizes, one to four targets, and callers whose targets do not exist or are too many."""
    images = encoded_batch(64)
    generator = np.random.default_rng(2)
    calls: list[Callable[[], Reply]] = []
    expected: list[Arrays | None] = []
    for place in range(60):
        own = images[place : place + int(generator.integers(1, MAX_BATCH + 1))]
        targets = generator.integers(-CLASSES, CLASSES + 1, (len(own), int(generator.integers(1, MAX_BATCH + 1))))
        kind = place % 6
        if kind == 4:
            targets[0, 0] = -CLASSES - 1 - place
        if kind == 5:
            targets = np.zeros((len(own), MAX_BATCH + 1), np.int64)
        model = "small" if place % 2 else "merging"
        feed = {"image": own} if kind < 2 else {"image": own, "targets": targets}
        name = model if kind < 2 else f"{model}_explain"
        calls.append(lambda name=name, feed=feed: server.infer(name, **feed))  # type: ignore[misc]
        if kind == 4:
            reachable = np.where(targets < -CLASSES, 0, targets)
            outputs = computed(image=own, targets=reachable)
            for output in ("contributions", "bias", "bias_terms"):
                outputs[output][targets < -CLASSES] = 0
            outputs["classes"][targets < -CLASSES] = CLASSES + 1
            expected.append(outputs)
        else:
            expected.append(None if kind == 5 else computed(**feed))
    for reply, wanted in zip(at_once(list(calls)), expected, strict=True):
        if wanted is None:
            assert reply.status == 500
            assert f"at_most_{MAX_BATCH}_targets" in reply.document["error"]
        else:
            check(reply, wanted, merged=True)


def test_a_full_queue_refuses_and_the_rest_is_answered(server: TritonServer) -> None:
    images = np.random.default_rng(3).random((16, 3, 32, 32), np.float32)
    images = np.concatenate([images, 1 - images], axis=1)
    targets = np.tile(np.arange(10), (16, 1))
    expected = InProcess(open_bundle(builtin_bundle()))(image=images, targets=targets)
    calls: list[Callable[[], Any]] = [lambda: server.infer("narrow_explain", image=images, targets=targets)] * 24
    replies = at_once(calls)
    answered = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status != 200]
    assert answered
    assert refused
    for reply in answered:
        check(reply, expected, merged=True)
    for reply in refused:
        assert (reply.status, "maximum queue size" in reply.document["error"]) == (503, True), reply.document
    check(server.infer("narrow_explain", image=images, targets=targets), expected)


@pytest.mark.parametrize(
    ("feed", "status", "message"),
    [
        ({"image": encoded_batch(MAX_BATCH + 1)}, 400, "batch-size must be <= 4"),
        ({"image": encoded_batch(1)[:, :, :8]}, 400, "unexpected shape for input 'image'"),
        ({"image": encoded_batch(1)[0, :2]}, 400, "unexpected shape for input 'image'"),
        ({"image": encoded_batch(1).astype(np.int64)}, 400, "data-type"),
        ({}, 400, "expected 1 inputs but got 0 inputs|at least one input"),
        ({"image": encoded_batch(1), "targets": np.array([[0]])}, 400, "expected 1 inputs|unexpected inference input"),
        ({"picture": encoded_batch(1)}, 400, "unexpected inference input 'picture'|expected"),
    ],
    ids=["batch", "shape", "axes", "type", "no input", "targets", "name"],
)
def test_wrong_requests_are_refused_with_a_reason(server: TritonServer, feed: Any, status: int, message: str) -> None:
    reply = server.infer("small", **feed)
    assert reply.status == status, reply.document
    assert re.search(message, reply.document["error"]), reply.document
    assert server.is_ready()


def test_a_server_that_is_killed_and_restarted_gives_no_wrong_answer(tmp_path: Path, computed: InProcess) -> None:
    """Callers go on calling. They get errors of the connection while the server is away, then answers again."""
    write(tmp_path / "models", small_bundle())
    images, targets = encoded_batch(8), np.array([[0, -1]])
    expected = [computed(image=images[place : place + 1], targets=targets) for place in range(8)]
    assert distinct(expected)
    stop = threading.Event()
    answers, failures = [0] * 8, [0] * 8

    def call_until_stopped(place: int, server: TritonServer) -> None:
        while not stop.is_set():
            try:
                reply = server.infer("small_explain", image=images[place : place + 1], targets=targets)
            except (OSError, http.client.HTTPException):
                failures[place] += 1
                stop.wait(0.02)
                continue
            check(reply, expected[place], merged=True)
            answers[place] += 1

    def wait_for(condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition() or any(one.done() and one.exception() for one in callers):
                return
            stop.wait(0.02)
        raise AssertionError(f"answers {answers}, failures {failures}")

    with running_triton(tmp_path / "models") as server, ThreadPoolExecutor(8) as pool:
        callers = [pool.submit(call_until_stopped, place, server) for place in range(8)]
        try:
            wait_for(lambda: min(answers) >= 5)
            server.kill()
            wait_for(lambda: min(failures) >= 1)
            server.start()
            before = list(answers)
            wait_for(lambda: all(now >= old + 5 for now, old in zip(answers, before, strict=True)))
        finally:
            stop.set()
        for one in callers:
            one.result()
