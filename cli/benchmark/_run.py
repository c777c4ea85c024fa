"""`run_benchmark`: everything that can be refused is refused first, then one model after the other is measured."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bcos_sdk._extras import require
from bcos_sdk.backends import open_backend, parse_device
from bcos_sdk.cli.benchmark._contenders import (
    conventional_contenders,
    our_contenders,
    reference_contenders,
    without_comparison,
)
from bcos_sdk.cli.benchmark._folder import measure_folder
from bcos_sdk.cli.benchmark._machine import describe_machine
from bcos_sdk.cli.benchmark._probes import cold_start_seconds, measure_import, our_peak_memory, reference_peak_memory
from bcos_sdk.cli.benchmark._race import Contender, race
from bcos_sdk.cli.benchmark._report import Comparison, DeviceRecord, FolderRecord, ModelRecord, Report, Timing
from bcos_sdk.cli.benchmark._samples import sample_images, top_targets
from bcos_sdk.cli.benchmark._subjects import Subject, check_subject, prepare_subject
from bcos_sdk.errors import DeviceUnavailableError

__all__ = ["Options", "run_benchmark"]

logger = logging.getLogger("bcos_sdk")

_PHOTOGRAPH = (375, 500)
_NEEDS: dict[Comparison, tuple[str, ...]] = {
    "reference": ("torch", "bcos", "einops", "torchvision"),
    "conventional": ("torch", "onnx", "onnxruntime", "onnxscript", "torchvision"),
}
_PURPOSES: dict[Comparison, str] = {
    "reference": "Comparing with the reference package",
    "conventional": "Comparing with conventional networks",
}


@dataclass(frozen=True)
class Options:
    """What is measured, and how often."""

    models: tuple[str, ...]
    threads: int
    batches: tuple[int, ...] = (1, 8)
    against: tuple[Comparison, ...] = ("reference", "conventional")
    devices: tuple[str, ...] = ("cpu",)
    rounds: int = 10
    folder_images: int = 500
    """How many JPEGs the folder holds; 0 leaves that measurement out."""

    def check(self) -> None:
        """Raise what would stop the run, before it takes any time."""
        for comparison in self.against:
            require(*_NEEDS[comparison], purpose=_PURPOSES[comparison])
        bundles = [check_subject(model, max(self.batches)) for model in self.models]
        if None in bundles:
            require("torch", "onnx", "onnxruntime", purpose="Exporting")
        for name in self.devices:
            device = parse_device(name)
            if device is None:
                raise DeviceUnavailableError(
                    "a benchmark names its devices", source=name, hint="Write for example --device cpu."
                )
            device.require()


def run_benchmark(
    options: Options,
    progress: Callable[[str], None] = lambda _stage: None,
    keep: Callable[[Report], None] = lambda _report: None,
) -> Report:
    """Measure all models; `progress` is told each stage as it begins, `keep` is given the report after each model."""
    options.check()
    machine = describe_machine()
    if machine.is_busy:
        logger.warning("the machine is busy (load %.1f): ratios of this run say little", machine.load)
    progress("import bcos_sdk")
    imported = measure_import()
    report = Report(
        machine=machine,
        threads=options.threads,
        rounds=options.rounds,
        batches=options.batches,
        devices=options.devices,
        against=options.against,
        imported=imported,
        models=(),
    )
    for model in options.models:
        with _torch_threads(options), tempfile.TemporaryDirectory(prefix="bcos-sdk-benchmark-") as workspace:
            measured = _measure(model, options, Path(workspace), partial(_about, model, progress))
        report = report.model_copy(update={"models": (*report.models, measured)})
        keep(report)
    return report


@contextmanager
def _torch_threads(options: Options) -> Iterator[None]:
    """Torch computes with as many threads as everyone else, and with its own number afterwards."""
    if not options.against:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _about(model: str, progress: Callable[[str], None], stage: str) -> None:
    progress(f"{model}: {stage}")


def _measure(model: str, options: Options, workspace: Path, progress: Callable[[str], None]) -> ModelRecord:
    subject = prepare_subject(model, workspace / "bundle", max(options.batches), progress)
    obstacles = {comparison: without_comparison(subject, comparison) for comparison in options.against}
    compared = [comparison for comparison, obstacle in obstacles.items() if obstacle is None]
    timings = _side_by_side(subject, compared, options, workspace, progress)
    manifest, batch = subject.bundle.manifest, max(options.batches)
    theirs = None
    if "reference" in compared and subject.spec is not None:
        progress("memory of the reference")
        theirs = reference_peak_memory(subject.spec.name, manifest.input.size, options.threads, batch)
    return ModelRecord(
        name=subject.name,
        architecture=subject.spec.name if subject.spec else None,
        input_size=manifest.input.size,
        precision=manifest.precision,
        export_seconds=subject.export_seconds,
        timings=tuple(timings),
        devices={device: _alone(subject, device, options, workspace, progress) for device in options.devices},
        reference_peak_memory_mb=theirs,
        notes=tuple(obstacle for obstacle in obstacles.values() if obstacle is not None),
    )


def _side_by_side(
    subject: Subject, compared: list[Comparison], options: Options, workspace: Path, progress: Callable[[str], None]
) -> list[Timing]:
    progress("opening everything that is timed")
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for device in options.devices:
            contenders += our_contenders(subject, device, options.threads, options.batches, stack)
        if "conventional" in compared:
            contenders += conventional_contenders(subject, options.devices, options.threads, options.batches, workspace)
        if "reference" in compared:
            contenders += reference_contenders(subject, options.batches)
        timings = []
        for batch in options.batches:
            progress(f"batch {batch}, {options.rounds} rounds")
            timings += race([contender for contender in contenders if contender.batch == batch], options.rounds)
    return timings


def _picture_size(subject: Subject) -> tuple[int, int]:
    """Height and width of a photograph, or of the network's input where nothing is resized."""
    spec = subject.bundle.manifest.input
    return spec.size if spec.resize is None else _PHOTOGRAPH


def _alone(
    subject: Subject, device: str, options: Options, workspace: Path, progress: Callable[[str], None]
) -> DeviceRecord:
    """What is measured in a process of its own, while this one waits."""
    path, batch, threads = subject.bundle.path.resolve(), max(options.batches), options.threads
    progress(f"memory and cold start on {device}")
    peak = our_peak_memory(str(path), device, threads, batch)
    start = cold_start_seconds(str(path), device, threads)
    folder: FolderRecord | None = None
    if options.folder_images:
        progress(f"a folder of {options.folder_images} JPEGs on {device}")
        backend = open_backend(subject.bundle, device, threads=threads)
        images = sample_images(batch, subject.bundle.manifest.input.size)
        try:
            folder = measure_folder(
                path,
                device,
                threads=threads,
                batch=batch,
                images=options.folder_images,
                picture_size=_picture_size(subject),
                cold_start_seconds=start,
                bare=lambda: backend.explain(images, top_targets(batch), weights=False),
                workspace=workspace,
            )
        finally:
            backend.close()
    return DeviceRecord(cold_start_seconds=start, peak_memory_mb=peak, folder=folder)
