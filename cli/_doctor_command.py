"""`bcos-sdk doctor`: show what is installed, and test which devices work."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import click

from bcos_sdk._extras import installed_version, torch_support
from bcos_sdk._files import output_file
from bcos_sdk._paths import cache_dir, store_dir
from bcos_sdk.backends import examine_device, list_devices, probe_driver
from bcos_sdk.bundle import builtin_bundle, find_bundle, open_bundle, stored_bundles
from bcos_sdk.cli._common import json_option, pairs
from bcos_sdk.cli._device_report import measure_devices, report_table
from bcos_sdk.cli._terminal import print_json, print_lines

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


@click.command()
@json_option
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also run a model on each device: print residuals and timings as a table, and write all to FILE as JSON.",
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
    found = examine()
    if report_file is not None:
        found["measured"] = measure_devices([open_bundle(builtin_bundle()), *bundles])
        with output_file(report_file) as partial:
            partial.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    if as_json:
        print_json(json.dumps(found, indent=2))
    else:
        print_lines(*_lines(found))
        if report_file is not None:
            print_lines("", *report_table(found["measured"]), "", f"written to {report_file}")
    ctx.exit(0 if any(problem is None for problem in found["devices"].values()) else 1)


def examine() -> dict[str, Any]:
    """Collect everything that the command prints."""
    packages = {name: installed_version(name) for name in _PACKAGES}
    driver = probe_driver()
    outcomes = {str(device): examine_device(device) for device in list_devices()}
    warnings = []
    if packages["onnxruntime"] and packages["onnxruntime-gpu"]:
        warnings.append(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: uninstall both, "
            "then install either 'bcos-sdk[cpu]' or 'bcos-sdk[gpu]'"
        )
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "packages": packages,
        "torch_support": torch_support(packages["torch"]) if packages["torch"] else None,
        "driver": driver.model_dump(mode="json"),
        "devices": {name: outcome.problem for name, outcome in outcomes.items()},
        "precisions": {name: outcome.precision for name, outcome in outcomes.items()},
        "store": {"path": str(store_dir()), "models": stored_bundles()},
        "cache": str(cache_dir()),
        "warnings": warnings,
    }


def _lines(found: dict[str, Any]) -> list[str]:
    driver, store = found["driver"], found["store"]
    rows = [("python", f"{found['python']}  {found['executable']}"), ("platform", found["platform"])]
    packages = {name: version or "not installed" for name, version in found["packages"].items()}
    if found["torch_support"]:
        packages["torch"] += f", {found['torch_support']}"
    rows += packages.items()
    gpus = [f"{gpu['name']} ({gpu['capability']})" for gpu in driver["gpus"]]
    rows += [("driver", driver["problem"] or f"{driver['version']}, CUDA {driver['cuda']}: {', '.join(gpus)}")]
    for name, problem in found["devices"].items():
        precision = found["precisions"][name]
        rows += [(f"device {name}", f"no: {problem}" if problem else f"works, products in {precision}")]
    rows += [("store", f"{store['path']}  ({', '.join(store['models']) or 'empty'})"), ("cache", found["cache"])]
    return [*pairs(rows), *(f"warning: {warning}" for warning in found["warnings"])]
