"""Run a benchmark: check all options first, then measure one model after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bcos_sdk._extras import require
from bcos_sdk._logs import log
from bcos_sdk.backends import open_backend, parse_device
from bcos_sdk.cli.benchmark._calls import measure_calls
from bcos_sdk.cli.benchmark._cases import (
    conventional_cases,
    our_cases,
    reason_not_compared,
    reference_cases,
    torch_cases,
)
from bcos_sdk.cli.benchmark._child_processes import (
    cold_start_seconds,
    measure_import,
    our_peak_memory,
    reference_peak_memory,
)
from bcos_sdk.cli.benchmark._folder import measure_folder
from bcos_sdk.cli.benchmark._measurements import (
    CallsRecord,
    Comparison,
    DeviceRecord,
    FolderRecord,
    ModelRecord,
    Report,
    Timing,
    describe_machine,
)
from bcos_sdk.cli.benchmark._subject import Subject, check_subject, prepare_subject, sample_images, top_targets
from bcos_sdk.cli.benchmark._timing import Case, time_cases
from bcos_sdk.client import Client
from bcos_sdk.errors import DeviceUnavailableError
from bcos_sdk.registry import Registry, model_registry

__all__ = ["Options", "run_benchmark"]

_PHOTOGRAPH_SIZE = (375, 500)
_SMALL_INPUT = 128
"""The least height and width of an input that is made from photographs, in pixels."""
_PACKAGES_NEEDED: dict[Comparison, tuple[str, ...]] = {
    "reference": ("torch", "bcos", "einops", "torchvision"),
    "conventional": ("torch", "onnx", "onnxruntime", "onnxscript", "torchvision"),
    "torch": ("torch",),
    "compiled": ("torch",),
}
_PURPOSES: dict[Comparison, str] = {
    "reference": "Comparing with the reference package",
    "conventional": "Comparing with conventional networks",
    "torch": "Comparing with our network in torch",
    "compiled": "Comparing with torch.compile",
}


@dataclass(frozen=True)
class Options:
    """The models to measure, the cases and the number of rounds."""

    models: tuple[str, ...]
    threads: int
    batches: tuple[int, ...] = (1, 8)
    against: tuple[Comparison, ...] = ("reference", "conventional")
    devices: tuple[str, ...] = ("cpu",)
    rounds: int = 10
    folder_images: int = 500
    """Number of JPEGs in the folder; 0 skips this measurement."""
    callers: int = 32
    """Number of threads that call one client at once; 0 skips the measurement of calls."""
    registry: Registry = field(default_factory=model_registry)
    """Where the models are looked up by name."""

    def check(self) -> None:
        """Raise an error if a package, model or device of the run is missing."""
        for comparison in self.against:
            require(*_PACKAGES_NEEDED[comparison], purpose=_PURPOSES[comparison])
        bundles = [check_subject(model, max(self.batches), self.registry) for model in self.models]
        if None in bundles:
            require("torch", "onnx", "onnxruntime", purpose="Exporting")
        for name in self.devices:
            device = parse_device(name)
            if device is None:
                raise DeviceUnavailableError(
                    f"a benchmark needs a specific device, got {name!r}",
                    source=name,
                    hint="Write for example --device cpu.",
                )
            device.require()


def run_benchmark(
    options: Options,
    progress: Callable[[str], None] = lambda _stage: None,
    keep: Callable[[Report], None] = lambda _report: None,
) -> Report:
    """Measure all models. `progress` is called at the start of each stage, `keep` with the report after each model."""
    options.check()
    machine = describe_machine()
    if machine.is_busy:
        log.warning("the machine is busy (load %.1f): the ratios of this run are unreliable", machine.load)
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
            measured = _measure(model, options, Path(workspace), partial(_report_stage, model, progress))
        report = report.model_copy(update={"models": (*report.models, measured)})
        keep(report)
    return report


@contextmanager
def _torch_threads(options: Options) -> Iterator[None]:
    """Set the number of threads of torch inside the block."""
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


def _report_stage(model: str, progress: Callable[[str], None], stage: str) -> None:
    progress(f"{model}: {stage}")


def _measure(model: str, options: Options, workspace: Path, progress: Callable[[str], None]) -> ModelRecord:
    subject = prepare_subject(model, workspace / "bundle", max(options.batches), progress, options.registry)
    reasons = {one: reason_not_compared(subject, one, options.devices) for one in options.against}
    compared = [comparison for comparison, reason in reasons.items() if reason is None]
    timings = _time_all(subject, compared, options, workspace, progress)
    manifest, batch = subject.bundle.manifest, max(options.batches)
    theirs = None
    if "reference" in compared and subject.spec is not None:
        progress("peak memory of the reference package")
        theirs = reference_peak_memory(subject.spec.name, manifest.input.size, options.threads, batch)
    return ModelRecord(
        name=subject.name,
        architecture=subject.spec.name if subject.spec else None,
        input_size=manifest.input.size,
        precision=manifest.precision,
        export_seconds=subject.export_seconds,
        timings=tuple(timings),
        devices={device: _measure_alone(subject, device, options, workspace, progress) for device in options.devices},
        reference_peak_memory_mb=theirs,
        notes=tuple(reason for reason in reasons.values() if reason is not None),
    )


def _time_all(
    subject: Subject, compared: list[Comparison], options: Options, workspace: Path, progress: Callable[[str], None]
) -> list[Timing]:
    progress("opening all networks")
    with ExitStack() as stack:
        cases: list[Case] = []
        for device in options.devices:
            cases += our_cases(subject, device, options.threads, options.batches, stack)
        if "conventional" in compared:
            cases += conventional_cases(subject, options.devices, options.threads, options.batches, workspace)
        if "reference" in compared:
            cases += reference_cases(subject, options.batches)
        for side in ("torch", "compiled"):
            if side in compared:
                cases += torch_cases(subject, side, options.devices, options.batches)
        timings = []
        for batch in options.batches:
            progress(f"batch {batch}, {options.rounds} rounds")
            timings += time_cases([case for case in cases if case.batch == batch], options.rounds)
    return timings


def _picture_size(subject: Subject) -> tuple[int, int]:
    """Height and width of the JPEGs: of a photograph, or of the network's input if it is small or does not resize."""
    spec = subject.bundle.manifest.input
    return spec.size if spec.resize is None or min(spec.size) < _SMALL_INPUT else _PHOTOGRAPH_SIZE


def _measure_alone(
    subject: Subject, device: str, options: Options, workspace: Path, progress: Callable[[str], None]
) -> DeviceRecord:
    """Measure peak memory, cold start, the folder and many calls on one device. Nothing else runs meanwhile."""
    path, batch, threads = subject.bundle.path.resolve(), max(options.batches), options.threads
    progress(f"peak memory and cold start on {device}")
    peak = our_peak_memory(str(path), device, threads, batch)
    start = cold_start_seconds(str(path), device, threads)
    folder: FolderRecord | None = None
    calls: CallsRecord | None = None
    images = sample_images(batch, subject.bundle.manifest.input.size)
    with closing(open_backend(subject.bundle, device, threads=threads)) as backend:
        bare = partial(backend.explain, images, top_targets(batch), weights=False)
        if options.folder_images:
            progress(f"a folder of {options.folder_images} JPEGs on {device}")
            folder = measure_folder(
                path,
                device,
                threads=threads,
                batch=batch,
                images=options.folder_images,
                picture_size=_picture_size(subject),
                cold_start_seconds=start,
                bare=bare,
                workspace=workspace,
            )
        if options.callers:
            progress(f"a stream of JPEGs, and {options.callers} callers at once, on {device}")
            with Client(path, device=device, threads=threads, max_batch=batch) as client:
                calls = measure_calls(
                    client, bare, batch=batch, callers=options.callers, picture_size=_picture_size(subject)
                )
    return DeviceRecord(cold_start_seconds=start, peak_memory_mb=peak, folder=folder, calls=calls)
