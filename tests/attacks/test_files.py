"""Hostile files and values other than images and graphs: each has a typed error, within bounds of time and memory."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attacks import HELD, attack, no_attack
from support.bundles import copy_of, edit_manifest, random_pixels, sign_again, small_bundle
from support.export_extra import onnx, torch
from support.mutations import deep
from support.predicting import add_image, records, run
from support.registries import ENTRY

from bcos_sdk import Client, read_explanation, read_results
from bcos_sdk.bundle import BundleWriter, Golden, list_store, open_bundle
from bcos_sdk.cli import main
from bcos_sdk.errors import BcosError, BundleError, InputError, RegistryError, UnknownTargetError
from bcos_sdk.registry import builtin_registry, derive, load_registry, model_registry, parse_settings, read_labels
from bcos_sdk.testing import FakeClient

HUGE = 10**5000  # Python refuses to write a decimal number of so many digits

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
needs_zero = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")

# --------------------------------------------------------------------------------------------- manifest of a bundle


def set_input(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["input"].update(fields)


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "fewer labels than classes": (lambda manifest: manifest.update(labels=["a"]), "1 labels for 7 classes"),
    "more ranks than classes": (lambda manifest: manifest.update(ranks=9), "'ranks' is 9"),
    "ranks without end": (lambda manifest: manifest.update(ranks=10**400), "ranks: Input should be less than"),
    "a bias term twice": (
        lambda manifest: manifest.update(bias_terms=[manifest["bias_terms"][0]] * len(manifest["bias_terms"])),
        "two bias terms have the same name",
    ),
    "no limits for the self-test": (lambda manifest: manifest.update(parity_limits={}), "no limit of logits"),
    "an opset of 400 digits": (lambda manifest: manifest.update(opset=10**400), "opset: Input should be less than"),
    "a resize of 400 digits": (set_input(resize=10**400), "input.resize: Input should be less than"),
    "an input of 10^18 pixels": (set_input(size=[10**9, 10**9], crop=None), "input.size.0: Input should be less"),
    "half of a surrogate pair": (lambda manifest: manifest["model"].update(name="\ud800"), "half of a surrogate pair"),
    "a version of a million letters": (
        lambda manifest: manifest.update(versions={"torch": "x" * 10**6}),
        "versions.torch: String should have at most",
    ),
    "a tolerance of 10^300": (lambda manifest: manifest.update(tolerance=1e300), "tolerance: Input should be less"),
    "nesting of 10^5 levels": (lambda manifest: manifest.update(versions=None), "versions: Input should be a valid"),
}


@attack(
    "files",
    "a manifest with values that contradict each other or are out of bounds",
    before="it was opened, and a call failed with an IndexError, KeyError or UnicodeEncodeError, or used the value",
)
@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_out_of_bounds_is_refused(case: str, tmp_path: Path) -> None:
    change, message = MANIFESTS[case]
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    edit_manifest(folder, change)
    if "nesting" in case:
        text = (folder / "manifest.json").read_text("utf-8")
        (folder / "manifest.json").write_text(text.replace('"versions": null', '"versions": ' + "[" * 10**5), "utf-8")
        message = "nested too deeply"
    with pytest.raises(BundleError, match=message):
        open_bundle(folder)


@attack("files", "a manifest with other bias terms than the graph", before="the call failed with a ValueError of zip()")
def test_a_graph_with_other_outputs_than_the_manifest_is_refused(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    edit_manifest(folder, lambda manifest: manifest.update(bias_terms=["only one"]))
    with Client(folder, device="cpu") as client, pytest.raises(BcosError, match="the graph returned bias_terms as"):
        client.explain(random_pixels(1)[0])


@attack("files", "an export in the store that was written in the year 100,000", before="a ValueError was raised")
def test_a_date_that_python_cannot_write_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path))
    folder = copy_of(small_bundle(), tmp_path / "small")
    try:
        os.utime(folder / "manifest.json", (0, 3_093_527_980_800))
    except (OSError, OverflowError):
        pytest.skip("the file system has no such dates")
    if (folder / "manifest.json").stat().st_mtime < 3e12:
        pytest.skip("the file system has no such dates")
    assert [entry.name for entry in list_store()] == ["small"]


@attack("files", "a left-over folder with an impossible process number", before="an OverflowError was raised")
def test_a_left_over_folder_of_an_impossible_process_is_removed(tmp_path: Path) -> None:
    left_over = tmp_path / f".model.partial-{10**30}"
    left_over.mkdir()
    with BundleWriter(tmp_path / "model"):
        assert not left_over.exists()


# ------------------------------------------------------------------------------------------------- archives of arrays


def npy(header: str, body: bytes = b"") -> bytes:
    encoded = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(encoded).to_bytes(2, "little") + encoded + body


def plain(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, contents in members.items():
            made.writestr(f"{name}.npy", contents)
    return file.getvalue()


def golden_arrays() -> dict[str, bytes]:
    golden = small_bundle().golden()
    arrays = {"pixels": golden.pixels, "target": np.int64(golden.target), "logits": golden.logits}
    return {name: plain(array) for name, array in {**arrays, "weights": golden.weights}.items()}


MEMBERS: dict[str, bytes] = {
    "an open bracket as header": npy("(((\n"),
    "a shape of 400 digits": npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**400},), }}\n"),
    "a shape of 10^11 values": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }\n"),
    "a shape that is a truth value": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (True, -1), }\n"),
    "no array": b"text",
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n", b"\x80\x04."),
    "a gigabyte of zeros": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }\n", bytes(64 << 20)),
}


@attack(
    "files",
    "a golden record with a hostile array",
    before="some of them raised a TokenError, OverflowError or AttributeError",
)
@pytest.mark.parametrize("member", MEMBERS)
def test_a_hostile_golden_record_is_refused(member: str) -> None:
    contents = archive(**(golden_arrays() | {"logits": MEMBERS[member]}))
    with pytest.raises(BundleError, match="golden record of the bundle is not usable"):
        Golden.read(memoryview(contents), small_bundle().manifest.sizes)


@attack("files", "a golden record with NaN", before="the self-test failed as if the device were wrong")
@pytest.mark.parametrize("name", ["logits", "weights"])
def test_a_golden_record_that_is_not_finite_is_refused(name: str, tmp_path: Path) -> None:
    golden = small_bundle().golden()
    array = getattr(golden, name).copy()
    array.flat[0] = np.nan
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    (folder / "golden.npz").write_bytes(archive(**(golden_arrays() | {name: plain(array)})))
    sign_again(folder)
    with pytest.raises(BundleError, match="values that are not finite"):
        open_bundle(folder).golden()


@attack(
    "files",
    "a saved explanation with a hostile array",
    before="some of them raised a TokenError, OverflowError or RecursionError",
)
@pytest.mark.parametrize("member", [*MEMBERS, "metadata that are nested deeply"])
def test_a_hostile_explanation_is_refused(member: str, tmp_path: Path) -> None:
    with FakeClient(input_size=8) as client:
        explanation = client.explain(random_pixels(1)[0])[0].explanations[0]
    arrays = {"metadata": plain(np.array(explanation.to_json(arrays="omit")))}
    arrays["contributions"] = MEMBERS.get(member, plain(explanation.contributions))
    if member not in MEMBERS:
        arrays["metadata"] = plain(np.array("[" * 10**5))
    path = tmp_path / "explanation.npz"
    path.write_bytes(archive(**arrays))
    with pytest.raises(InputError, match="is not a saved explanation"):
        read_explanation(path)


@attack(
    "files", "hostile logits for `export --expect`", before="some of them raised a TokenError, MemoryError or TypeError"
)
@pytest.mark.needs_torch
@pytest.mark.parametrize("member", MEMBERS)
def test_hostile_expected_logits_are_refused(member: str, tmp_path: Path) -> None:
    from bcos_sdk.exporters.verify import read_expectation

    path = tmp_path / "expected.npz"
    path.write_bytes(archive(image=plain(random_pixels(1)[0]), logits=MEMBERS[member]))
    with pytest.raises(InputError):
        read_expectation(path)


# ----------------------------------------------------------------------------------------------------------- inspect


def graph_with(change: Callable[[Any], object]) -> bytes:
    model = onnx.load(small_bundle().explain_graph, load_external_data=False)
    change(model)
    return bytes(model.SerializeToString())


def set_bias_terms(text: str) -> Callable[[Any], object]:
    return lambda model: model.metadata_props.add(key="bcos.explain", value=text)


GRAPHS: dict[str, Callable[[Any], object]] = {
    "no operator set": lambda model: model.ClearField("opset_import"),
    "no graph": lambda model: model.ClearField("graph"),
    "bias terms that are no JSON": set_bias_terms("{"),
    "bias terms that are a number": set_bias_terms("1"),
    "bias terms that are missing": set_bias_terms("{}"),
    "bias terms that are no names": set_bias_terms('{"bias_terms": [1]}'),
    "bias terms that are half a surrogate pair": set_bias_terms('{"bias_terms": ["\\ud800"]}'),
    "bias terms that are nested deeply": set_bias_terms("[" * 10**5),
}


@attack("files", "`inspect` of a hostile ONNX file", before="a traceback of IndexError, KeyError, TypeError or others")
@pytest.mark.needs_torch
@pytest.mark.parametrize("case", GRAPHS)
def test_inspect_refuses_a_hostile_graph(case: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_with(GRAPHS[case]))
    assert_refused("inspect", path)


@attack("files", "`inspect` of an ONNX file with an unknown data type", before="a traceback of ValueError")
@pytest.mark.needs_torch
def test_inspect_shows_an_unknown_type_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_with(lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 99)))
    assert "type 99[" in output_of("inspect", path)


@attack("files", "`inspect` of what is no file of a graph", before="a traceback, or no end")
@pytest.mark.needs_torch
@pytest.mark.parametrize("kind", ["empty", "folder", pytest.param("pipe", marks=needs_pipes)])
def test_inspect_refuses_what_is_no_graph(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    make: dict[str, Callable[[], object]] = {"empty": path.touch, "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}
    make[kind]()
    assert_refused("inspect", path)


def output_of(*arguments: object) -> str:
    from click.testing import CliRunner

    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False).output


def assert_refused(*arguments: object) -> None:
    """Both as text and as JSON, the command prints a typed error and nothing else."""
    for more in ([], ["--json"]):
        assert output_of(*arguments, *more).startswith("error [bundle_invalid]: cannot read")


# -------------------------------------------------------------------------------------------------------------- YAML


def bomb(kind: str) -> str:
    """Nine anchors inside each other, each used nine times: 9^9 values."""
    lines = ["schema: 1", "shared:", "  k0: &k0 {a: 1}"]
    for level in range(1, 10):
        names = ", ".join([f"*k{level - 1}"] * 9)
        lines.append(f"  k{level}: &k{level} " + {"alias": f"[{names}]", "merge": f"{{<<: [{names}]}}"}[kind])
    return "\n".join([*lines, "models: {mine: {labels: *k9}}"])


def matrix(axes: int) -> str:
    name = "m" + "".join(f"_{{a{axis}}}" for axis in range(axes))
    values: dict[str, Any] = {str(value): {} for value in range(10)}
    return json.dumps(
        {"schema": 1, "models": {name: {**ENTRY, "matrix": {f"a{axis}": values for axis in range(axes)}}}}
    )


def many_matrices() -> str:
    entry = {**ENTRY, "matrix": {"a": {str(value): {} for value in range(900)}}}
    return json.dumps({"schema": 1, "models": {f"{letter}_{{a}}": entry for letter in "ab"}})


REGISTRIES: dict[str, tuple[str, str]] = {
    "aliases that multiply": (bomb("alias"), "stands for more than 200,000 values"),
    "merges that multiply": (bomb("merge"), "stands for more than 200,000 values"),
    "a matrix of 10^8 models": (matrix(8), "multiply to more than 1,000 models"),
    "matrices of 1,800 models": (many_matrices(), "has more than 1,000 models"),
    "two million bytes": ("# " + "x" * 2_000_000, "more than 1,048,576 bytes"),
    "a number of 10,000 digits": ("schema: 0x" + "f" * 9000, "must be 1, got a value of type int that cannot be shown"),
    "a home folder of nobody": (
        "schema: 1\nmodels: {m: {base: resnet18, weights: {file: ~nobody-at-all/w.pth}}}",
        "there is no such user",
    ),
}


@attack("files", "a registry file that stands for too much", before="memory or time without end, or a raw exception")
@pytest.mark.parametrize("case", REGISTRIES)
def test_a_registry_that_stands_for_too_much_is_refused(case: str, tmp_path: Path) -> None:
    text, message = REGISTRIES[case]
    path = tmp_path / "models.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(RegistryError, match=message):
        load_registry(path)


@attack("files", "a pipe or a device as a registry or a labels file", before="reading it did not end")
@pytest.mark.parametrize("kind", [pytest.param("pipe", marks=needs_pipes), pytest.param("zero", marks=needs_zero)])
def test_a_pipe_or_device_ends(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(RegistryError):
        load_registry(path)
    with pytest.raises(InputError):
        read_labels(path)


@attack("files", "`--set` with a number of 10,000 digits", before="a ValueError was raised")
def test_a_setting_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="that cannot be shown"):
        derive(builtin_registry()["resnet18"], settings=parse_settings(["b=0x" + "f" * 9000]))


@attack("files", "an environment variable with the home of nobody", before="a RuntimeError was raised")
@pytest.mark.parametrize("variable", ["BCOS_SDK_STORE", "BCOS_SDK_CACHE", "BCOS_SDK_REGISTRY", "XDG_DATA_HOME"])
def test_a_home_folder_of_nobody_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bcos_sdk._paths import cache_dir

    monkeypatch.delenv("BCOS_SDK_STORE")
    monkeypatch.setenv(variable, "~nobody-at-all/x")
    uses: dict[str, Callable[[], object]] = {"BCOS_SDK_CACHE": cache_dir, "BCOS_SDK_REGISTRY": model_registry}
    with pytest.raises(InputError, match="there is no such user"):
        uses.get(variable, list_store)()


# ------------------------------------------------------------------------------------------------------- checkpoints


def shared_dicts() -> dict[str, Any]:
    """Four levels with 100 places each for one dict: 10^8 places in a file of some kilobytes."""
    node: dict[str, Any] = {f"k{key}": torch.zeros(1) for key in range(100)}
    for _ in range(3):
        node = dict.fromkeys(map(str, range(100)), node)
    return node


def recursive_dict() -> dict[str, Any]:
    node: dict[str, Any] = {"weight": torch.zeros(1)}
    return node | {"self": node, "other": {"self": node}}


CHECKPOINTS: dict[str, tuple[Callable[[], Any], str]] = {
    "dicts in 10^8 places": (shared_dicts, "more than 100,000 entries"),
    "a million keys in one dict": (lambda: dict.fromkeys(range(10**6)), "more than 100,000 entries"),
    "dots without end in a key": (
        lambda: {"a." * 50_000 + str(key): torch.zeros(1) for key in range(9)},
        "does not contain the weights",
    ),
    "a key of 5,000 digits": (lambda: {HUGE: {"weight": torch.zeros(1)}}, "does not contain the weights"),
    "nesting of 10,000 levels": (lambda: deep(10_000) | {"weight": torch.zeros(1)}, "does not contain the weights"),
    "a dict in itself": (recursive_dict, "does not contain the weights"),
}


@attack("files", "a weights file of hostile dicts", before="some of them hung for hours or raised a ValueError")
@pytest.mark.needs_torch
@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_of_hostile_dicts_is_refused(case: str) -> None:
    from bcos_sdk.weights import load_weights

    make, message = CHECKPOINTS[case]
    network = torch.nn.Linear(3, 2)
    with pytest.raises(BcosError, match=message):
        load_weights(network, "weights.pth", name="a network", checkpoint=make())


NAMES: dict[str, Any] = {
    "containers as indices": {"a": {}, "b": []},
    "an index of 5,000 digits": {"a": HUGE, "b": 1},
    "an index of 5,000 digits as text": {"9" * 5000: "a", "1": "b"},
    "an index of 5,000 digits as key": {HUGE: "a"},
    "truth values as indices": {"a": True, "b": False},
    "a negative index": {"a": -1},
}


@attack("files", "hostile names of classes in a weights file", before="most of them raised a TypeError or ValueError")
@pytest.mark.needs_torch
@pytest.mark.parametrize("case", NAMES)
def test_hostile_names_of_classes_are_not_used(case: str) -> None:
    from bcos_sdk.weights import find_labels

    assert find_labels({"class_to_idx": NAMES[case]}, len(NAMES[case])) == (None, None)


# ------------------------------------------------------------------------------------------- lists, targets, results


@attack("files", "a list of images that never ends", before="memory or time without end")
@needs_zero
@pytest.mark.parametrize("null", [True, False])
def test_a_list_that_never_ends_is_refused(null: bool, tmp_path: Path) -> None:
    result = run("@/dev/zero", *(["-0"] if null else []))
    assert result.exit_code == 1
    assert "/dev/zero" in result.output


@attack("files", "a list of images with one line of many megabytes", before="the line was kept in memory as a name")
def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"x" * (10 << 20))
    result = run(f"@{path}")
    assert "text with a line of more than 65,536 bytes" in result.output
    assert len(result.output) < 2000


@attack("files", "a pipe without a writer as a list of images", before="the command did not end")
@needs_pipes
def test_a_list_in_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "list"
    os.mkfifo(path)
    assert "found no images" in run(f"@{path}").output


@attack("files", "a target of 5,000 digits", before="a ValueError was raised")
@pytest.mark.parametrize("targets", [HUGE, -HUGE, [HUGE], [[HUGE]]], ids=["one", "negative", "a list", "per image"])
def test_a_target_of_many_digits_is_refused(targets: Any) -> None:
    with FakeClient(input_size=8) as client, pytest.raises(UnknownTargetError, match="there is no class a value"):
        client.explain(random_pixels(1)[0], targets=targets)


@attack("files", "a target or a size of 5,000 digits on the command line", before="a traceback of ValueError")
def test_numbers_of_many_digits_on_the_command_line_are_refused(images: Path) -> None:
    assert "[unknown_target]: there is no class" in run(images, "--target", "9" * 5000).output
    assert "is not a size" in output_of("export", "resnet18", "--input-size", "9" * 5000)


@attack("files", "a results file with half of a surrogate pair", before="to_json raised PydanticSerializationError")
def test_half_of_a_surrogate_pair_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(
        '{"source": "\\ud800", "model": "m", "classes": []}\n{"source": "a", "model": "m", "classes": []}\n'
    )
    assert [result.source for result in read_results(path, on_error="skip")] == ["a"]
    with pytest.raises(InputError, match="half of a surrogate pair"):
        list(read_results(path))


# ------------------------------------------------------------------------------------------------- records of a run

RECORD_LINES = {
    "a number of 5,000 digits": '{"name": ' + "1" * 5000 + "}",
    "another version": '{"name": "a", "kind": "Prediction", "result": {"schema_version": 9}}',
    "nesting of 10^5 levels": "[" * 10**5,
    "NaN and a path outside": '{"name": "../x", "files": ["../../etc/passwd"], "kind": NaN}',
}


@attack("files", "a hostile line in the record that --resume continues", before=HELD)
@pytest.mark.parametrize("case", RECORD_LINES)
def test_a_hostile_line_of_a_record_is_skipped(case: str, images: Path) -> None:
    assert run(images, "--out", "out").exit_code == 0
    path = Path("out/results.jsonl")
    valid = path.read_text("utf-8")
    path.write_text(f"{valid}{RECORD_LINES[case]}\n", "utf-8")
    result = run(images, "--out", "out", "--resume")
    assert result.exit_code == 0, result.output
    assert "line 3 of" in result.output
    assert "is damaged and skipped" in result.output
    assert len(records()) == 2


@attack("files", "a record of a name with half of a surrogate pair", before="a UnicodeEncodeError was raised")
@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_a_record_with_half_of_a_surrogate_pair_is_skipped(option: str, images: Path) -> None:
    assert run(images, "--out", "out").exit_code == 0
    record = records()[0] | {"name": "\ud800/a.png", "files": ["\ud800/a.png.1.overlay.png"]}
    with Path("out/results.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(record)}\n")
    assert run(images, "--out", "out", option).exit_code == 0
    assert len(records()) == 2


@attack("files", "a record that is a pipe or a device", before="a search for images did not end")
@pytest.mark.parametrize("name", ["results.jsonl", ".bcos-sdk.writing"])
@pytest.mark.parametrize("kind", [pytest.param("pipe", marks=needs_pipes), pytest.param("zero", marks=needs_zero)])
def test_a_record_that_is_no_regular_file_is_ignored(name: str, kind: str, images: Path) -> None:
    path = images / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert run(images).exit_code == 0


@attack("files", "a record to continue that is a pipe", before="the command did not end")
@needs_pipes
def test_a_record_to_continue_must_be_a_regular_file(images: Path) -> None:
    Path("out").mkdir()
    os.mkfifo("out/results.jsonl")
    result = run(images, "--out", "out", "--resume")
    assert result.exit_code == 2
    assert "is not a regular file" in result.output


@attack("files", "a model that is named like a placeholder of the report page", before=HELD)
@pytest.mark.parametrize("name", ["{{entries}}", "{{title}}", "{{policy}}", "%s", "\\1"])
def test_a_model_named_like_a_placeholder_is_shown_by_its_name(name: str, tmp_path: Path) -> None:
    from bcos_sdk.cli.predict._report import write_report

    page = tmp_path / "report.html"
    write_report(page, f"{name}: 1 image", [{"name": name, "source": name}])
    text = page.read_text("utf-8")
    assert f"<title>{name}: 1 image" in text
    assert json.dumps({"name": name, "source": name}) in text


@no_attack
def test_a_list_in_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    image = add_image(tmp_path / "a.png")
    read, write = os.pipe()
    os.write(write, f"{image}\n".encode())
    os.close(write)
    try:
        assert run(f"@/dev/fd/{read}", "--model", small_bundle().path).exit_code == 0
    finally:
        os.close(read)


@no_attack
def test_labels_in_a_pipe_are_read() -> None:
    read, write = os.pipe()
    os.write(write, b"cat\r\ndog\n")
    os.close(write)
    try:
        assert read_labels(f"/dev/fd/{read}") == ("cat", "dog")
    finally:
        os.close(read)
