"""`bcos-sdk doctor`: show what is installed, and test which devices work."""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

import click

from bcos_sdk._extras import installed_version, torch_support
from bcos_sdk._paths import cache_dir, store_dir
from bcos_sdk.backends import check_device, list_devices, probe_driver
from bcos_sdk.bundle import stored_bundles
from bcos_sdk.cli._common import json_option, pairs
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
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Show the installed packages, the NVIDIA driver, and which devices can run a model.

    Exit code 1 if no device works.

    \b
    Example:
      bcos-sdk doctor
    """
    found = examine()
    if as_json:
        print_json(json.dumps(found, indent=2))
    else:
        print_lines(*_lines(found))
    ctx.exit(0 if any(problem is None for problem in found["devices"].values()) else 1)


def examine() -> dict[str, Any]:
    """Collect everything that the command prints."""
    packages = {name: installed_version(name) for name in _PACKAGES}
    driver = probe_driver()
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
        "devices": {str(device): check_device(device) for device in list_devices()},
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
    rows += [
        (f"device {name}", "works" if not problem else f"no: {problem}") for name, problem in found["devices"].items()
    ]
    rows += [("store", f"{store['path']}  ({', '.join(store['models']) or 'empty'})"), ("cache", found["cache"])]
    return [*pairs(rows), *(f"warning: {warning}" for warning in found["warnings"])]
