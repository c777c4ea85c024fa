"""The report: its ratios, and the tables and plots that show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.reports import model_record, sample_report

from bcos_sdk.cli.benchmark import (
    GOALS,
    Report,
    Table,
    describe_timing,
    draw_plot,
    goal_table,
    machine_rows,
    model_title,
    process_table,
    ratio_table,
    timing_table,
)
from bcos_sdk.errors import InputError


def row(table: Table, *beginning: str) -> dict[str, str]:
    header, rows = table
    (found,) = [one for one in rows if tuple(one[: len(beginning)]) == beginning]
    return dict(zip(header, found, strict=True))


def test_json_is_the_same_after_a_round_trip() -> None:
    report = sample_report()
    assert Report.from_json(report.to_json()) == report
    with pytest.raises(InputError, match="models"):
        Report.from_json(report.to_json().replace('"models"', '"model"'))


@pytest.mark.parametrize(
    ("what", "device", "batch", "to_conventional", "reference_to"),
    [
        ("forward", "cpu", 1, 1.3, 2.0),
        ("explain", "cpu", 1, 2.5, 2.0),
        ("client explain", "cpu", 1, 2.6, 50 / 26),
        ("explain with picture", "cpu", 1, 4.0, 1.5),
        ("explain top 5", "cpu", 1, 10.0, None),
        ("forward", "cpu", 8, 9 / 8, None),
        ("explain", "openvino", 8, 10 / 8, 2.8),
    ],
)
def test_ratios(what: str, device: str, batch: int, to_conventional: float, reference_to: float | None) -> None:
    model = model_record()
    timing = model.find("ours", what, device, batch)  # type: ignore[arg-type]
    assert timing is not None
    assert model.to_conventional(timing) == pytest.approx(to_conventional)
    assert model.reference_to(timing) == (None if reference_to is None else pytest.approx(reference_to))


def test_only_our_times_are_compared_with_the_reference() -> None:
    model = model_record()
    timing = model.find("conventional", "forward", "openvino", 1)
    assert timing is not None
    assert model.to_conventional(timing) == 0.5
    assert model.reference_to(timing) is None


def test_the_folder_with_and_without_the_cold_start() -> None:
    folder = model_record().devices["cpu"].folder
    assert folder is not None
    assert (folder.images_per_second, folder.efficiency, folder.efficiency_without_start) == (20.0, 0.8, 1.0)
    assert folder.model_copy(update={"cold_start_seconds": 5.0}).efficiency_without_start is None


def test_tables_show_the_figures() -> None:
    model = model_record()
    assert model_title(model) == "resnet50, 224×224, fp32, exported in 12.3 s"
    assert model_title(model_record(export_seconds=None)) == "resnet50, 224×224, fp32"
    explain = row(timing_table(model), "explain, cpu", "8")
    assert list(explain.values())[2:] == ["20.0", "10.0", "50.0", "2.50", "1.40"]
    assert row(timing_table(model), "conventional forward, ONNX Runtime", "1")["÷ conventional"] == "1.00"
    assert row(timing_table(model), "explain, five classes, cpu", "1")["reference ÷ ours"] == "–"
    alone = row(process_table(model), "cpu")
    assert list(alone.values())[1:] == ["1.00", "300", "0.50", "20.0", "0.80", "1.00"]
    assert row(process_table(model), "reference, torch")["peak MB"] == "600"
    single, eight = row(ratio_table(model), "cpu", "1"), row(ratio_table(model), "cpu", "8")
    assert list(single.values())[2:] == ["1.30", "2.50", "1.92", "1.04", "4.00"]
    assert list(eight.values())[2:] == ["1.12", "2.50", "2.22", "1.05", "–"]


def test_a_busy_machine_is_marked() -> None:
    report = sample_report()
    assert "load before" not in dict(machine_rows(report)), "not every system reports the load"
    for load, shown in ((0.5, "0.5"), (0.6, "0.6: the machine was busy, the ratios are unreliable")):
        machine = report.machine.model_copy(update={"load": load, "cores": 2})
        rows = dict(machine_rows(report.model_copy(update={"machine": machine})))
        assert rows["load before"] == shown


def test_every_case_has_a_unique_name() -> None:
    names = [(describe_timing(timing), timing.batch) for timing in model_record().timings]
    assert len(set(names)) == len(names)


def test_goals_use_the_fp32_figures_of_their_model_on_each_device() -> None:
    report = sample_report(model_record(), model_record("vgg11_bnu"), model_record("densenet121", precision="fp16"))
    table = goal_table(report)
    assert len(table[1]) == len(GOALS) + 1
    shown = {(line[0], line[1]): line[2:] for line in table[1]}
    assert shown["predict ÷ conventional in ONNX Runtime, batch 8", "resnet50"] == [
        "≤ 1.1 on openvino, 1.35 on cpu",
        "1.12, met",
        "–",
    ]
    assert shown["explain ÷ conventional in ONNX Runtime, batch 8", "resnet50"] == [
        "≤ 2.3 on openvino, 2.7 on cpu",
        "2.50, met",
        "1.25, met",
    ]
    batched = "reference's batched explain ÷ explain, batch 8"
    assert shown[batched, "resnet50"] == ["≥ 1.4 on openvino, 1.4 on cpu", "1.40, met", "2.80, met"]
    assert shown["explain ÷ conventional in ONNX Runtime, batch 8", "vgg11_bnu"] == [
        "≤ 2.9 on openvino",
        "2.50",
        "1.25, met",
    ], "without a limit for a device, its figure is not judged"
    assert shown[batched, "densenet121"][1:] == ["–", "–"], "goals are for fp32 only"
    assert shown["five explanations of one image ÷ one", "resnet50"][1] == "4.00, missed"
    assert shown["folder throughput without start ÷ backend", "resnet50"][1] == "1.00, met"
    assert shown["peak memory ÷ reference's batched explain", "resnet50"][1] == "0.50"
    assert shown["`import bcos_sdk`", "–"][1] == "0.25 s, without torch, missed"
    measured = goal_table(report, measured_only=True)[1]
    assert measured == [line for line in table[1] if line[1] in ("resnet50", "vgg11_bnu", "–")]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_plot_of_a_report_is_always_the_same_file(tmp_path: Path, suffix: str) -> None:
    report = sample_report(model_record(), model_record("vgg11_bnu"))
    for name in ("one", "two"):
        draw_plot(report, tmp_path / f"{name}{suffix}")
    drawn = (tmp_path / f"one{suffix}").read_bytes()
    if suffix == ".png":
        assert drawn == (tmp_path / "two.png").read_bytes()
        with Image.open(tmp_path / "one.png") as picture:
            assert min(picture.size) > 500
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 3
    else:
        assert b"<svg" in drawn
        assert b"vgg11_bnu, batch 8" in drawn
    assert {path.name for path in tmp_path.iterdir()} == {f"one{suffix}", f"two{suffix}"}


def test_torch_and_torch_compile_have_names_of_their_own() -> None:
    ours = next(one for one in model_record().timings if one.side == "ours" and one.what == "explain")
    sides = ("ours", "torch", "compiled", "reference")
    names = [describe_timing(ours.model_copy(update={"side": side, "device": "torch"})) for side in sides]
    assert len(set(names)) == len(names)
    assert "explain, our network in torch, torch.compile" in names
