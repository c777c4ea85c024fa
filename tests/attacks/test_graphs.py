"""Hostile ONNX files in a bundle whose hashes are right: each is refused before a runtime parses it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attacks import attack, no_attack
from support.bundles import copy_of, edit_manifest, random_pixels, sign_again, small_bundle
from support.export_extra import onnx

from bcos_sdk import Client
from bcos_sdk.bundle import GateError, check_graph, open_bundle
from bcos_sdk.errors import BundleError

pytestmark = pytest.mark.needs_torch


def external(model: Any) -> Any:
    """The first tensor of the graph with external data."""
    return next(tensor for tensor in model.graph.initializer if tensor.external_data)


def set_place(model: Any, **place: str) -> None:
    tensor = external(model)
    for entry in tensor.external_data:
        entry.value = place.pop(entry.key, entry.value)
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)


def add_node(model: Any, operator: str, **options: Any) -> None:
    model.graph.node.append(onnx.helper.make_node(operator, ["image"], [f"attack_{operator}"], **options))


def body() -> Any:
    return onnx.helper.make_graph([], "body", [], [])


def endless_loop(model: Any) -> None:
    model.graph.initializer.append(onnx.helper.make_tensor("often", onnx.TensorProto.INT64, [], [2**62]))
    model.graph.node.append(onnx.helper.make_node("Loop", ["often", "", "image"], ["attack"], body=body()))


def functions_that_double(model: Any) -> None:
    """Each function calls the next one twice: forty of them stand for 2^40 nodes."""
    opset = [onnx.helper.make_opsetid("", 18)]
    for level in range(40):
        call = onnx.helper.make_node(f"f{level + 1}", ["x"], ["y"], domain="attack")
        model.functions.append(onnx.helper.make_function("attack", f"f{level}", ["x"], ["y"], [call, call], opset))
    add_node(model, "f0", domain="attack")


def sparse(model: Any) -> None:
    values = onnx.helper.make_tensor("values", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = onnx.helper.make_tensor("indices", onnx.TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [1 << 40]))


def huge_shape(model: Any) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="huge", data_type=1, dims=[1 << 40, 1 << 40]))


def second_place(model: Any) -> None:
    external(model).external_data.add(key="location", value="/etc/passwd")


def unknown_type(model: Any) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="text", data_type=8, dims=[1], string_data=[b"x"]))


def tensor_attribute(model: Any) -> None:
    value = onnx.TensorProto(data_type=1, dims=[1], data_location="EXTERNAL")
    value.external_data.add(key="location", value="/etc/passwd")
    add_node(model, "Reshape", value=value)


GRAPHS: dict[str, tuple[Callable[[Any], object], str]] = {
    "memory address as external data": (
        lambda model: set_place(model, location="*/_ORT_MEM_ADDR_/*", offset="4096"),
        "refers to '*/_ORT_MEM_ADDR_/*'",
    ),
    "external data in another file": (
        lambda model: set_place(model, location="/etc/passwd"),
        "refers to '/etc/passwd'",
    ),
    "external data outside the folder": (lambda model: set_place(model, location="../weights.bin"), "refers to '../"),
    "external data with two places": (second_place, "the key 'location' twice"),
    "external data behind the end": (lambda model: set_place(model, offset="99999999999"), "but weights.bin has"),
    "external data of negative offset": (lambda model: set_place(model, offset="-64"), "at offset '-64'"),
    "external data of another length": (lambda model: set_place(model, length="4"), "with length 4"),
    "external data with a checksum": (lambda model: set_place(model, checksum="00"), "refers to"),
    "a loop of 2^62 rounds": (endless_loop, "a tensor has the field 7|the operator 'Loop'"),
    "a condition": (lambda model: add_node(model, "If", then_branch=body(), else_branch=body()), "the operator 'If'"),
    "a scan": (lambda model: add_node(model, "Scan", body=body(), num_scan_inputs=1), "the operator 'Scan'"),
    "a subgraph in a known operator": (
        lambda model: add_node(model, "Relu", body=body()),
        "an attribute has the field 6",
    ),
    "a tensor in an attribute": (tensor_attribute, "an attribute has the field 5"),
    "functions that inline to 2^40 nodes": (functions_that_double, "field 25|the domain 'attack'|the operator 'f0'"),
    "a custom domain": (lambda model: add_node(model, "Relu", domain="com.microsoft"), "the domain 'com.microsoft'"),
    "a custom operator set": (
        lambda model: model.opset_import.append(onnx.helper.make_opsetid("com.attack", 1)),
        "the domain 'com.attack'",
    ),
    "an operator that is never exported": (lambda model: add_node(model, "RandomNormalLike"), "'RandomNormalLike'"),
    "a sparse tensor": (sparse, "the graph has the field 15"),
    "a tensor of 2^80 elements": (huge_shape, "a tensor has the shape"),
    "a tensor of strings": (unknown_type, "a tensor has the field 6"),
    "training information": (lambda model: model.training_info.add(), "the model has the field 20"),
}


@attack(
    "graphs",
    "a graph with memory addresses, foreign files, loops, functions or huge tensors",
    before="was not refused: some crashed the process, hung it, or read its memory",
)
@pytest.mark.parametrize("case", GRAPHS)
def test_a_hostile_graph_is_refused(case: str, tmp_path: Path) -> None:
    change, reason = GRAPHS[case]
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    path = folder / "explain.onnx"
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    sign_again(folder)
    with pytest.raises(BundleError, match=rf"explain\.onnx is refused: .*(?:{reason.replace('*', '[*]')})"):
        open_bundle(folder)


@attack("graphs", "a manifest that names a file for another parser", before="the file was parsed")
@pytest.mark.parametrize("name", ["explain.ort", "explain.xml", "explain", "explain.onnx.ort"])
def test_the_manifest_cannot_choose_another_parser(name: str, tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    (folder / "explain.onnx").rename(folder / name)

    def change(document: dict[str, Any]) -> None:
        document["explain_graph"] = name
        document["files"][name] = document["files"].pop("explain.onnx")

    edit_manifest(folder, change)
    with pytest.raises(BundleError, match=rf"{name} is not an ONNX file"):
        open_bundle(folder)


@attack("bundles", "a file that the manifest does not list", before="the file was ignored")
def test_a_file_that_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    (folder / "libevil.so").touch()
    with pytest.raises(BundleError, match=r"does not list libevil\.so"):
        open_bundle(folder)


@attack("bundles", "a named pipe in place of a file", before="opening the bundle blocked")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["manifest.json", "weights.bin", "explain.onnx"])
def test_a_named_pipe_does_not_block(name: str, tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(BundleError, match="is not a regular file"):
        open_bundle(folder)


@attack("bundles", "a sparse file of many gigabytes", before="the file was hashed for minutes")
def test_a_sparse_giant_is_refused(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    with (folder / "weights.bin").open("ab") as file:
        file.truncate(4 << 30)
    with pytest.raises(BundleError, match="is a sparse file"):
        open_bundle(folder)
    with (folder / "weights.bin").open("ab") as file:
        file.truncate(64 << 30)
    with pytest.raises(BundleError, match="the limit is"):
        open_bundle(folder)


@attack("bundles", "a file replaced after its hash was checked", before="the replaced file was loaded")
@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_files_that_are_replaced_after_the_hashes_were_checked_have_no_effect(device: str, tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    image = random_pixels(1)[0]
    with Client(small_bundle().path, device=device) as client:
        expected = client.explain(image, weights=True)
    with Client(folder, device=device) as client:  # graphs are loaded on first use
        for path in list(folder.iterdir()):
            path.unlink()
            path.write_bytes(b"replaced")
        assert client.explain(image, weights=True) == expected


def gate_of(contents: bytes) -> None:
    bundle = small_bundle()
    check_graph(memoryview(contents), weights=bundle.manifest.weights, weights_size=len(bundle.weights))


@no_attack
@given(place=st.integers(0, 1 << 20), flip=st.integers(1, 255), cut=st.integers(0, 1 << 20))
def test_the_gate_raises_nothing_but_its_own_error(place: int, flip: int, cut: int) -> None:
    contents = bytearray(small_bundle().graph_contents(small_bundle().explain_graph))
    contents[place % len(contents)] ^= flip
    for damaged in (bytes(contents), bytes(contents[: cut % len(contents)])):
        with contextlib.suppress(GateError):
            gate_of(damaged)


@no_attack
@given(st.binary(max_size=200))
def test_the_gate_reads_any_bytes(contents: bytes) -> None:
    with contextlib.suppress(GateError):
        gate_of(contents)
