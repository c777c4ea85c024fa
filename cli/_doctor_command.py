"""`bcos-sdk doctor`: show what is installed, and test which devices work."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bcos_sdk._extras import installed_version, torch_support
from bcos_sdk._files import output_file
from bcos_sdk._paths import cache_dir, store_dir
from bcos_sdk.backends import list_devices, probe_driver
from bcos_sdk.bundle import BUILTIN_SHA256, builtin_bundle, find_bundle, open_bundle, stored_bundles
from bcos_sdk.cli._common import json_option, pairs
from bcos_sdk.cli._device_process import examine_device
from bcos_sdk.cli._device_report import measured_rows, report_table
from bcos_sdk.cli._terminal import print_json, print_lines, print_message

__all__ = ["doctor"]

_PACKAGES = (
    "bcos-sdk",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "torch",
    "onnx",
    "onnxscript",
    "tensorrt",
    "tensorrt-rtx",
    "cuda-bindings",
    "model-signing",
)
_VARIANTS = ("tensorrt-cu12", "tensorrt-cu12-bindings", "tensorrt-cu13", "tensorrt-cu13-bindings")
"""Packages that bring `tensorrt` for one version of CUDA. They are shown if they are installed."""

_PRODUCTS = {"fp32": "products in fp32", "tf32": "products in tf32", "fp16": "fp16 only: it runs models in fp16"}
"""What is said about a device that works, by the precision of its probe."""


@click.command()
@json_option
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also run the built-in models on each device: print residuals and timings as a table, and write all to FILE "
    "as JSON, after each step.",
)
@click.option("--model", "models", multiple=True, metavar="DIR|NAME", help="A further model for --report.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, report_file: Path | None, models: tuple[str, ...]) -> None:
    """Show the installed packages, the NVIDIA driver, and which devices can run a model.

    Exit code 1 if no device works.

    \b
    Example:
      bcos-sdk doctor
      bcos-sdk doctor --report report.json
    """
    if models and report_file is None:
        raise click.UsageError("--model needs --report")
    bundles = [find_bundle(model) for model in models]

    def keep(found: dict[str, Any]) -> None:
        """Write what is known so far: whatever ends this process later, the report exists."""
        if report_file is not None:
            with output_file(report_file) as partial:
                partial.write_text(json.dumps(found, indent=2) + "\n", "utf-8")

    found = examine(keep)
    if report_file is not None:
        found["measured"] = []
        print_message("each device is measured in a process of its own; this takes minutes", label="note:")
        for row in measured_rows([*map(open_bundle, map(builtin_bundle, BUILTIN_SHA256)), *bundles]):
            found["measured"].append(row)
            keep(found)
    if as_json:
        print_json(json.dumps(found, indent=2))
    else:
        print_lines(*_lines(found))
        if report_file is not None:
            print_lines("", *report_table(found["measured"]), "", f"written to {report_file}")
    ctx.exit(0 if any(problem is None for problem in found["devices"].values()) else 1)


def examine(keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Collect everything that the command prints. `keep` gets it after each device."""
    packages = {name: installed_version(name) for name in (*_PACKAGES, *_VARIANTS)}
    driver = probe_driver()
    warnings = []
    if packages["onnxruntime"] and packages["onnxruntime-gpu"]:
        warnings.append(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: uninstall both, "
            "then install either 'bcos-sdk[cpu]' or 'bcos-sdk[gpu]'"
        )
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "packages": packages,
        "torch_support": torch_support(packages["torch"]) if packages["torch"] else None,
        "driver": driver.model_dump(mode="json"),
        "devices": {},
        "precisions": {},
        "store": {"path": str(store_dir()), "models": stored_bundles()},
        "cache": str(cache_dir()),
        "warnings": warnings,
    }
    keep(found)
    for device in list_devices():
        outcome = examine_device(device)
        found["devices"][str(device)] = outcome.problem
        found["precisions"][str(device)] = outcome.precision
        keep(found)
    return found


def _lines(found: dict[str, Any]) -> list[str]:
    driver, store = found["driver"], found["store"]
    rows = [("python", f"{found['python']}  {found['executable']}"), ("platform", found["platform"])]
    versions = found["packages"]
    variants = [name for name in _VARIANTS if versions[name]]
    hidden = {*_VARIANTS} - {*variants} | ({"tensorrt"} if variants and not versions["tensorrt"] else set())
    packages = {name: version or "not installed" for name, version in versions.items() if name not in hidden}
    if found["torch_support"]:
        packages["torch"] += f", {found['torch_support']}"
    rows += packages.items()
    gpus = [f"{gpu['name']} ({gpu['capability']})" for gpu in driver["gpus"]]
    rows += [("driver", driver["problem"] or f"{driver['version']}, CUDA {driver['cuda']}: {', '.join(gpus)}")]
    for name, problem in found["devices"].items():
        precision = found["precisions"][name]
        rows += [(f"device {name}", f"no: {problem}" if problem else f"works, {_PRODUCTS[precision]}")]
    rows += [("store", f"{store['path']}  ({', '.join(store['models']) or 'empty'})"), ("cache", found["cache"])]
    return [*pairs(rows), *(f"warning: {warning}" for warning in found["warnings"])]
