"""The graphs in a model repository compute what those of the bundle do, whatever other callers send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from support.bundles import LABELS, MAX_BATCH, SIZE, encoded_batch, small_bundle

from bcos_sdk import Client
from bcos_sdk.backends import Encoding, with_only_pixels
from bcos_sdk.contract import CHANNEL_COUNTS
from bcos_sdk.errors import InputError
from bcos_sdk.images import encode
from bcos_sdk.triton import RepositorySettings, write_repository

CLASSES = len(LABELS)


def session(path: Path | bytes, folder: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return onnxruntime.InferenceSession(
        path if isinstance(path, bytes) else str(path), options, providers=["CPUExecutionProvider"]
    )


def run(opened: Any, **feed: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    names = [one.name for one in opened.get_outputs()]
    return dict(zip(names, opened.run(names, feed), strict=True))


def served(folder: Path, **settings: Any) -> tuple[Any, Any]:
    """The graphs that predict and explain, opened from a repository by path, as Triton opens them."""
    models = write_repository(small_bundle(), folder / "repository", RepositorySettings(**settings))
    predict, explain = (session(one.path / "1" / "model.onnx") for one in models)
    return predict, explain


@pytest.fixture(scope="module")
def original() -> tuple[Any, Any]:
    return session(small_bundle().predict_graph), session(small_bundle().explain_graph)


def test_results_are_those_of_the_bundle_bit_for_bit(tmp_path: Path, original: tuple[Any, Any]) -> None:
    images, targets = encoded_batch(3), np.array([[0, -1, CLASSES], [2, -CLASSES, 3], [-2, 6, 6]])
    predict, explain = served(tmp_path, weights=True)
    assert np.array_equal(run(predict, image=images)["logits"], run(original[0], image=images)["logits"])
    expected = run(original[1], image=images, targets=targets)
    got = run(explain, image=images, targets=targets)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(got[name], value), name


def test_weights_are_left_out_unless_asked_for(tmp_path: Path, original: tuple[Any, Any]) -> None:
    images, targets = encoded_batch(1), np.array([[4, -3]])
    got = run(served(tmp_path)[1], image=images, targets=targets)
    expected = run(original[1], image=images, targets=targets)
    assert expected.keys() - got.keys() == {"weights"}
    assert all(np.array_equal(got[name], expected[name]) for name in got)


def test_pixels_give_the_same_bits_as_the_preprocessing_of_the_client(
    tmp_path: Path, original: tuple[Any, Any]
) -> None:
    pixels = (np.arange(3 * SIZE[0] * SIZE[1] * 3) * 37 % 256).astype(np.uint8).reshape(3, *SIZE, 3)
    assert set(pixels.ravel().tolist()) == set(range(256))
    images, targets = np.stack([encode(one) for one in pixels]), np.array([[0, -1]] * 3)
    predict, explain = served(tmp_path, pixels=True, weights=True)
    assert [(one.name, one.type) for one in predict.get_inputs()] == [("pixels", "tensor(uint8)")]
    assert np.array_equal(run(predict, pixels=pixels)["logits"], run(original[0], image=images)["logits"])
    expected = run(original[1], image=images, targets=targets)
    for name, value in run(explain, pixels=pixels, targets=targets).items():
        assert np.array_equal(value, expected[name]), name


def test_pixels_of_a_photograph_give_the_logits_of_the_client(tmp_path: Path, photograph: Path) -> None:
    """From the file to the logits: the client crops the pixels, the graph encodes them."""
    with Client(small_bundle().path, device="cpu") as client:
        (result,) = client.explain(photograph, top_k=CLASSES)
    predict, _ = served(tmp_path, pixels=True)
    pixels = result.explanations[0].image
    assert pixels.shape == (*SIZE, 3)
    assert pixels.dtype == np.uint8
    logits = run(predict, pixels=pixels[None])["logits"][0]
    assert {one.index: one.logit for one in result.prediction.classes} == dict(enumerate(logits.tolist()))


@pytest.mark.parametrize(
    ("channels", "encoding"),
    [
        ("rgb+complement", Encoding(3, complement=True)),
        ("rgb", Encoding(3, complement=False)),
        ("grey+complement", Encoding(1, complement=True)),
        ("grey", Encoding(1, complement=False)),
    ],
)
def test_every_kind_of_channels_is_encoded_as_by_the_client(channels: Any, encoding: Encoding) -> None:
    from support.export_extra import onnx

    helper = onnx.helper
    depth = CHANNEL_COUNTS[channels]
    tensors = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", depth, 8, 32]) for name in ("image", "y")
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["image"], ["y"])], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    changed = with_only_pixels(model.SerializeToString(), encoding)
    colours = np.arange(2 * 256 * encoding.channels).reshape(2, 8, 32, -1) // encoding.channels % 256
    pixels = colours.astype(np.uint8)
    pixels[..., -1] = pixels[..., -1][:, ::-1, ::-1]  # so that the colours differ
    expected = np.stack([encode(np.repeat(one, 3 // encoding.channels, axis=-1), channels) for one in pixels])
    got = run(session(changed), pixels=pixels)["y"]
    assert got.dtype == np.float32
    assert np.array_equal(got, expected)


def test_targets_that_do_not_exist_explain_nothing_and_fail_nobody(tmp_path: Path, original: tuple[Any, Any]) -> None:
    """One caller's wrong rank would be an index out of range, which fails the run of everybody in the batch."""
    images = encoded_batch(3)
    targets = np.array([[0, -1], [-CLASSES - 1, CLASSES + 1], [-(2**63), 2**63 - 1]])
    with pytest.raises(Exception, match=r"out of data bounds|GatherElements"):
        run(original[1], image=images, targets=targets)
    got = run(served(tmp_path)[1], image=images, targets=targets)
    expected = run(original[1], image=images, targets=np.array([[0, -1]] * 3))
    assert np.array_equal(got["logits"], expected["logits"])
    for name in ("classes", "contributions", "bias"):
        assert np.array_equal(got[name][0], expected[name][0]), name
    assert (got["classes"][1:] > CLASSES).all()
    assert not got["contributions"][1:].any()
    assert not got["bias_terms"][1:].any()


@pytest.mark.parametrize("most", [1, 3, None])
def test_more_targets_than_the_limit_are_refused(tmp_path: Path, most: int | None) -> None:
    _, explain = served(tmp_path, max_targets=most)
    limit = MAX_BATCH if most is None else most
    images = encoded_batch(2)
    assert run(explain, image=images, targets=np.zeros((2, limit), np.int64))["bias"].shape == (2, limit)
    for count in (limit + 1, 10 * limit):
        with pytest.raises(Exception, match=f"at_most_{limit}_targets"):
            run(explain, image=images, targets=np.zeros((2, count), np.int64))


def test_a_model_of_arrays_takes_no_pixels(tmp_path: Path) -> None:
    from support.export_extra import export, torch

    from bcos_sdk.contract import InputSpec

    torch.manual_seed(0)
    layers = torch.nn.Conv2d(5, 3, 3, bias=False), torch.nn.Flatten(), torch.nn.Linear(27, 3, bias=False)
    module = torch.nn.Sequential(*layers).eval()
    bundle = export(module, tmp_path / "bundle", preprocessing=InputSpec.arrays(5, (5, 5)), max_batch=2)
    with pytest.raises(InputError, match="takes arrays, not pictures"):
        write_repository(bundle, tmp_path / "repository", RepositorySettings(pixels=True))
    assert not (tmp_path / "repository").exists()
    predict, explain = write_repository(bundle, tmp_path / "repository")
    assert predict.inputs[0].dims == (5, 5, 5)
    assert [(one.name, one.type) for one in session(predict.path / "1" / "model.onnx").get_inputs()] == [
        ("image", "tensor(float)")
    ]
    assert explain.outputs[-1].dims == (-1, len(bundle.manifest.bias_terms))
