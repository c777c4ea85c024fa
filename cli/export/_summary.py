"""What `export` prints: where the model comes from, what was assumed, how exact the graphs are, and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bcos_sdk.backends.tensorrt import EngineRecord
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._common import columns, pairs
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.cli.export._assumptions import Check, assumption_lines
from bcos_sdk.cli.export._source import Source

if TYPE_CHECKING:
    from bcos_sdk.exporters import Agreement

__all__ = ["print_agreement", "print_bundle", "print_source"]


def print_agreement(agreement: Agreement, file: object) -> None:
    difference = f"largest difference {agreement.difference:.1e} of their spread"
    if agreement.is_close:
        print_lines(f"The logits agree with those in {file} ({difference}).")
    else:
        print_lines(
            f"The logits are near those in {file} ({difference}), but rounding in float32 gives less than 1e-04.",
            "TF32 on a GPU explains it, and so does a slightly wrong value, such as an epsilon: "
            "all values stay listed.",
        )


def print_source(source: Source, agreement: Agreement | None) -> None:
    if source.facts:
        print_lines(*pairs(list(source.facts)))
    if lines := assumption_lines(source.assumed, _compared(agreement), advise=agreement is None):
        print_lines(*lines, "")


def print_bundle(bundle: Bundle, bias_share: float, engines: list[tuple[str, EngineRecord]], name: str) -> None:
    from bcos_sdk.exporters import parity_table

    header, *rows = parity_table(bundle.manifest.parity, bundle.manifest.parity_limits)
    print_lines("Difference from the module in torch (float64):", *columns(header, rows))
    print_lines(f"Bias share: {bias_share:.0%} of what speaks for a class are bias terms, the rest belongs to pixels.")
    if bundle.manifest.float_layers:
        print_lines(f"In float32: {', '.join(bundle.manifest.float_layers)}")
    print_lines("", str(bundle.path))
    width = max(18, *map(len, bundle.manifest.files))
    for file, record in bundle.manifest.files.items():
        print_lines(f"  {file:<{width}} {record.size / 1e3:>10,.0f} kB")
    if engines:
        titles = ["ENGINE", "MB", "SECONDS", "PEAK MB", "BUILT WITH"]
        print_lines("", *columns(titles, [*map(_engine_row, engines)]))
        extra = " --tf32" if engines[0][1].key.tf32 else ""
        command = f"bcos-sdk validate {name} --device tensorrt{extra}"
        print_lines(f"The engines were built but not run. Test them on the GPU with: {command}")
        print_lines("On another machine, or as another user, add --trust-engines.")
    print_lines("", "Next:", f"  bcos-sdk predict IMAGES --explain --report --model {name}")
    if bundle.manifest.layer_records and bundle.manifest.map is None:
        layers = ",".join(one.path for one in bundle.manifest.layer_records)
        print_lines(f"  bcos-sdk concepts IMAGES --layer {layers} --class CLASS -o sheet --model {name}")


def _compared(agreement: Agreement | None) -> set[Check]:
    if agreement is None or not agreement.is_close:
        return set()
    steps: list[tuple[bool, Check]] = [
        (True, "input"),
        (agreement.is_photograph, "photograph"),
        (agreement.resampled, "resized"),
    ]
    return {check for was_compared, check in steps if was_compared}


def _engine_row(engine: tuple[str, EngineRecord]) -> tuple[str, ...]:
    name, record = engine
    peak = "-" if record.peak_memory is None else f"{record.peak_memory / 1e6:.0f}"
    return name, f"{record.size / 1e6:.1f}", f"{record.seconds:.1f}", peak, f"{record.key.flavour} {record.key.version}"
