"""Model repositories of Triton: their configurations agree with their graphs, and they are written whole or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.bundles import LABELS, MAX_BATCH, SIZE, small_bundle
from support.config_text import entries, parse_config
from support.gpu_machine import GpuMachine, install_empty, uninstall

from bcos_sdk.backends.tensorrt import flavour_version
from bcos_sdk.bundle import Manifest
from bcos_sdk.cli import main
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError
from bcos_sdk.triton import RepositorySettings, write_repository

TYPES = {"tensor(float)": "TYPE_FP32", "tensor(int64)": "TYPE_INT64", "tensor(uint8)": "TYPE_UINT8"}
NAMES = ("small", "small_explain")


def written(folder: Path, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configurations in a new repository."""
    models = write_repository(small_bundle(), folder, RepositorySettings(**settings))
    predict, explain = (parse_config((one.path / "config.pbtxt").read_text("ascii")) for one in models)
    return predict, explain


def described(config: dict[str, Any], field: str) -> dict[str, tuple[str, list[int]]]:
    """Type and shape of each input or output as the configuration has them, with the batch axis."""
    return {one["name"][0]: (one["data_type"][0], [-1, *one.get("dims", [])]) for one in config[field]}


def of_graph(values: Any) -> dict[str, tuple[str, list[int]]]:
    """Type and shape of each input or output as ONNX Runtime reads them from the graph."""
    return {
        one.name: (TYPES[one.type], [side if isinstance(side, int) else -1 for side in one.shape]) for one in values
    }


@pytest.mark.parametrize("flavour", ["onnxruntime", "python"])
@pytest.mark.parametrize(("pixels", "weights"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_configuration_has_names_types_and_shapes_of_the_graph(
    tmp_path: Path, flavour: str, pixels: bool, weights: bool
) -> None:
    configs = written(tmp_path / "models", flavour=flavour, pixels=pixels, weights=weights)
    for name, config in zip(NAMES, configs, strict=True):
        version = tmp_path / "models" / name / "1"
        graph = onnxruntime.InferenceSession(str(version / "model.onnx"), providers=["CPUExecutionProvider"])
        assert config["name"] == [name]
        assert described(config, "input") == of_graph(graph.get_inputs())
        assert described(config, "output") == of_graph(graph.get_outputs())
        assert config["backend"] == [flavour]
        assert (version / config["default_model_filename"][0]).is_file()
        for warmup in config["model_warmup"]:
            warmed = {one["key"][0]: one["value"][0] for one in warmup["inputs"]}
            assert warmed.keys() == described(config, "input").keys()
            assert all(min(one["dims"]) > 0 and one["zero_data"] == ["true"] for one in warmed.values())
        assert [one["batch_size"] for one in config["model_warmup"]] == [[1], [MAX_BATCH]]
    assert ("weights" in described(configs[1], "output")) == weights
    assert ("pixels" in described(configs[0], "input")) == pixels


def test_the_manifest_travels_as_a_parameter_of_both_models(tmp_path: Path) -> None:
    for config in written(tmp_path / "models"):
        text = entries(config, "parameters")["bcos_manifest"]["string_value"][0]
        assert text == small_bundle().manifest.to_json()
        assert Manifest.model_validate_json(text).labels == LABELS


def test_limits_and_choices_reach_the_configuration(tmp_path: Path) -> None:
    settings = {
        "name": "other",
        "max_batch": 3,
        "max_targets": 2,
        "instances": 3,
        "threads": 5,
        "queue": 7,
        "queue_delay": 11,
        "timeout": 1.5,
    }
    predict, explain = written(tmp_path / "models", **settings)
    for config in (predict, explain):
        assert config["max_batch_size"] == [3]
        assert config["response_cache"] == [{"enable": ["false"]}]
        assert config["instance_group"] == [{"count": [3], "kind": ["KIND_AUTO"]}]
        (batching,) = config["dynamic_batching"]
        assert batching["max_queue_delay_microseconds"] == [11]
        policy = {"timeout_action": "REJECT", "default_timeout_microseconds": 1_500_000, "max_queue_size": 7}
        (found,) = batching["default_queue_policy"]
        assert {key: found[key][0] for key in policy} == policy
        assert entries(config, "parameters")["intra_op_thread_count"] == {"string_value": ["5"]}
    assert entries(explain, "parameters")["bcos_most_targets"] == {"string_value": ["2"]}
    assert "bcos_most_targets" not in entries(predict, "parameters")
    assert (predict["name"], explain["name"]) == (["other"], ["other_explain"])


@pytest.mark.parametrize(
    ("precision", "tf32", "device", "allowed"),
    [
        ("fp32", False, "auto", "0"),
        ("fp32", True, "gpu", "1"),
        ("fp16", False, "gpu", "1"),
        ("fp32", False, "cpu", None),
    ],
)
def test_a_gpu_rounds_float32_to_tf32_only_if_asked(
    tmp_path: Path, precision: Any, tf32: bool, device: Any, allowed: str | None
) -> None:
    """ONNX Runtime does by default, and 11 bits break the certificate of fp32."""
    settings = RepositorySettings(tf32=tf32, device=device)
    for one in write_repository(small_bundle(precision=precision), tmp_path / "models", settings):
        config = parse_config((one.path / "config.pbtxt").read_text("ascii"))
        if allowed is None:
            assert "optimization" not in config
            continue
        (accelerators,) = config["optimization"][0]["execution_accelerators"]
        (cuda,) = accelerators["gpu_execution_accelerator"]
        assert (cuda["name"], entries(cuda, "parameters")) == (["cuda"], {"use_tf32": allowed})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch": MAX_BATCH + 1}, "the export was checked up to 4"),
        ({"name": "a/b"}, "cannot be the name of a model"),
        ({"name": ".hidden"}, "cannot be the name of a model"),
        ({"name": "small_explain"}, "would be taken for the model that explains 'small'"),
        ({"flavour": "python", "device": "gpu"}, "runs on the CPU only"),
        ({"flavour": "tensorrt", "device": "cpu"}, "does not run on the CPU"),
        ({"input_size": (64, 64)}, "was not exported for an input of 64x64"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_repository(small_bundle(), tmp_path / "models", RepositorySettings(**settings))
    assert not any(tmp_path.iterdir())


def test_plans_are_built_from_the_served_graphs(tmp_path: Path, machine: GpuMachine) -> None:
    """On a simulated machine: the profiles have the shapes of the configuration, and only the plan stays."""
    settings = RepositorySettings(flavour="tensorrt", pixels=True, max_batch=3, max_targets=2)
    models = write_repository(small_bundle(), tmp_path / "models", settings)
    assert {one.tensorrt for one in models} == {flavour_version("tensorrt")}
    jobs = [job for job in machine.jobs if job["task"] == "build"]
    assert [job["tf32"] for job in jobs] == [False, False]
    for one, job in zip(models, jobs, strict=True):
        config = parse_config((one.path / "config.pbtxt").read_text("ascii"))
        assert sorted(path.name for path in (one.path / "1").iterdir()) == ["model.plan"]
        assert config["default_model_filename"] == ["model.plan"]
        assert config["instance_group"] == [{"count": [2], "kind": ["KIND_GPU"], "profile": ["0", "1"]}]
        smallest, everything = job["profiles"]
        inputs = described(config, "input")
        for name, (_, shape) in inputs.items():
            low, usual, high = everything[name]
            assert smallest[name] == [low, low, high], "Triton refuses a profile that ends below its largest batch"
            assert list(low) == [1 if side == -1 else side for side in shape]
            assert high == [3, *(2 if side == -1 else side for side in shape[1:])]
            assert usual == [3, *low[1:]]
        assert smallest.keys() == everything.keys() == inputs.keys()
    assert {name: [shape[0] for shape in shapes] for name, shapes in jobs[1]["profiles"][1].items()} == {
        "pixels": [1, 3, 3], "targets": [1, 3, 3]
    }  # fmt: skip


def test_plans_that_cannot_be_built_leave_nothing(
    tmp_path: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.fails = "out of tactics"
    settings = RepositorySettings(flavour="tensorrt")
    with pytest.raises(EngineError, match="cannot build a plan for Triton: out of tactics"):
        write_repository(small_bundle(), tmp_path / "models", settings)
    uninstall(monkeypatch, "tensorrt")
    install_empty(monkeypatch, "tensorrt_rtx")
    with pytest.raises(InputError, match="only TensorRT for RTX is installed"):
        write_repository(small_bundle(), tmp_path / "models", settings)
    assert not (tmp_path / "models").exists()


def test_without_a_gpu_no_plan_is_built(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailableError, match="on the GPU that runs") as failure:
        write_repository(small_bundle(), tmp_path / "models", RepositorySettings(flavour="tensorrt"))
    hint = failure.value.hint or ""
    assert "flavour onnxruntime" in hint
    assert "compute-capability" not in hint
    assert "trt-rtx" not in hint
    assert not any(tmp_path.iterdir())


def test_the_command_writes_and_says_what(tmp_path: Path) -> None:
    command = ["triton", str(small_bundle().path), str(tmp_path / "models")]
    done = CliRunner().invoke(main, [*command, "--name", "birds", "--pixels", "--weights", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert f"pixels UINT8 [-1, {SIZE[0]}, {SIZE[1]}, 3], targets INT64 [-1, -1]" in done.output
    assert "weights FP32 [-1, -1, 6, 20, 28]" in done.output
    assert f"tritonserver --model-repository={tmp_path / 'models'}" in done.output
    config = parse_config((tmp_path / "models" / "birds_explain" / "config.pbtxt").read_text("ascii"))
    assert config["instance_group"] == [{"count": [2], "kind": ["KIND_CPU"]}]
    again = CliRunner().invoke(main, [*command, "--name", "birds"])
    assert again.exit_code == 2
    assert "--overwrite" in again.output
    assert CliRunner().invoke(main, [*command, "--name", "birds", "--overwrite"]).exit_code == 0
    wrong = CliRunner().invoke(main, [*command, "--flavour", "openvino"])
    assert wrong.exit_code == 2


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labels=st.lists(st.text(max_size=20), min_size=len(LABELS), max_size=len(LABELS)))
def test_every_label_survives_the_text_format(tmp_path: Path, labels: list[str]) -> None:
    manifest = small_bundle().manifest.model_copy(update={"labels": tuple(labels)})
    bundle = replace(small_bundle(), manifest=manifest)
    for one in write_repository(bundle, tmp_path / "models", overwrite=True):
        config = parse_config((one.path / "config.pbtxt").read_text("ascii"))
        text = entries(config, "parameters")["bcos_manifest"]["string_value"][0]
        assert Manifest.model_validate_json(text).labels == tuple(labels)
