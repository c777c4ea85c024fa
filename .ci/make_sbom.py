"""Write sbom.cdx.json: what the wheel contains and what it needs, as a CycloneDX 1.6 SBOM. Part of `make lock`."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
Entry = dict[str, Any]
SBOM = ROOT / "sbom.cdx.json"
MODELS = {  # description, its accuracy in training.json, data, terms of the data
    "cifar10_resnet18_w16": (
        "B-cos ResNet-18 for ten classes",
        "test_accuracy",
        "CIFAR-10",
        "50,000 images (Krizhevsky, 2009); the authors state no licence; not part of the package",
    ),
    "pets37_resnet18_w32": (
        "B-cos ResNet-18 for 37 breeds of cats and dogs",
        "breed_accuracy",
        "Oxford-IIIT Pet",
        "6,126 photographs (Parkhi et al., 2012) under CC-BY-SA-4.0; not part of the package",
    ),
}
NOT_IN_SBOM = {"dev"}
ONNXRUNTIME_WEB = "bcos_sdk/web/onnxruntime-web.json"
LICENCES = {  # of the packages that pyproject.toml names
    "bcos": "Apache-2.0",
    "captum": "BSD-3-Clause",
    "click": "BSD-3-Clause",
    "cryptography": "Apache-2.0 OR BSD-3-Clause",
    "cuda-bindings": "Apache-2.0",
    "einops": "MIT",
    "fastapi": "MIT",
    "filelock": "MIT",
    "fsspec": "BSD-3-Clause",
    "grpcio": "Apache-2.0",
    "httptools": "MIT",
    "matplotlib": "Matplotlib licence",
    "model-signing": "Apache-2.0",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "onnx": "Apache-2.0",
    "onnxruntime": "MIT",
    "onnxruntime-gpu": "MIT",
    "onnxscript": "MIT",
    "openvino": "Apache-2.0",
    "pandas": "BSD-3-Clause",
    "pillow": "MIT-CMU",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "pyarrow": "Apache-2.0",
    "pydantic": "MIT",
    "pyopenssl": "Apache-2.0",
    "python-multipart": "Apache-2.0",
    "pyyaml": "MIT",
    "ray": "Apache-2.0",
    "safetensors": "Apache-2.0",
    "sigstore-models": "MIT",
    "tensorrt": "NVIDIA proprietary licence",
    "tensorrt-rtx": "NVIDIA proprietary licence",
    "torch": ("Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSD-2-Clause AND BSD-3-Clause AND BSL-1.0 AND MIT"),
    "torchvision": "BSD-3-Clause",
    "typing-extensions": "PSF-2.0",
    "urllib3": "MIT",
    "uvicorn": "BSD-3-Clause",
    "uvloop": "MIT OR Apache-2.0",
}


def licence(text: str) -> list[Entry]:
    """A licence that is no SPDX expression is given by its name."""
    return [{"license": {"name": text}} if "licence" in text else {"expression": text}]


def hashes(path: str) -> list[Entry]:
    return [{"alg": "SHA-256", "content": hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}]


def other_files() -> Iterator[Entry]:
    """The files in the wheel that are not, or not only, under Apache-2.0: the table in LICENSES/README.md."""
    table = (ROOT / "LICENSES" / "README.md").read_text("utf-8")
    for path, text, origin in re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", table, re.MULTILINE):
        described = {"type": "file", "bom-ref": path, "name": path, "description": origin}
        yield described | {"hashes": hashes(path), "licenses": licence(text)}


def browser_library() -> Entry:
    """The package of npm whose files are in the wheel, with the hash of its archive."""
    record = json.loads((ROOT / ONNXRUNTIME_WEB).read_text("utf-8"))
    url = f"pkg:npm/{record['package']}@{record['version']}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": record["package"],
        "version": record["version"],
        "description": "runs the graphs in browsers; six of its files are in bcos_sdk/web/runtime",
        "hashes": [{"alg": "SHA-256", "content": record["sha256"]}],
        "licenses": licence(record["licence"]),
        "purl": url,
    }


def models() -> Iterator[Entry]:
    """The weights of the built-in models and the data that they were trained on."""
    for name, (description, figure, data, terms) in MODELS.items():
        file = f"bcos_sdk/builtin/{name}.safetensors"
        figures = json.loads((ROOT / "bcos_sdk" / "builtin" / f"{name}.training.json").read_text("utf-8"))
        yield {
            "type": "machine-learning-model",
            "bom-ref": file,
            "name": name,
            "description": f"{description}. The bundle in the folder of the same name is its export.",
            "hashes": hashes(file),
            "licenses": licence("Apache-2.0"),
            "modelCard": {
                "modelParameters": {
                    "approach": {"type": "supervised"},
                    "task": "image classification",
                    "architectureFamily": "B-cos ResNet",
                    "datasets": [{"type": "dataset", "name": data, "description": terms}],
                },
                "quantitativeAnalysis": {
                    "performanceMetrics": [{"type": "test accuracy", "value": str(figures[figure])}]
                },
            },
        }


def packages() -> Iterator[Entry]:
    """The packages that pyproject.toml names: the range, the tested version, and the extras that need them."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            pins[pin.name] = str(pin.specifier).removeprefix("==")
    ranges: dict[str, set[str]] = {}
    extras: dict[str, set[str]] = {}
    for requirement in map(Requirement, requires("bcos-sdk") or []):
        extra = re.search(r'extra == "(.+?)"', str(requirement.marker or ""))
        if extra is None or extra[1] not in NOT_IN_SBOM:
            ranges.setdefault(requirement.name, set()).add(str(requirement.specifier))
            extras.setdefault(requirement.name, set()).add(extra[1] if extra else "")
    for name in sorted(ranges):
        (supported,) = ranges[name]
        tested = {"version": pins[name]} if name in pins else {}
        url = f"pkg:pypi/{name}" + (f"@{pins[name]}" if name in pins else "")
        facts = {"bcos-sdk:supported": supported}
        if "" not in extras[name]:
            facts["bcos-sdk:extras"] = ", ".join(sorted(extras[name]))
        yield {
            "type": "library",
            "bom-ref": url,
            "name": name,
            **tested,
            "scope": "required" if "" in extras[name] else "optional",
            "licenses": licence(LICENCES[name]),
            "purl": url,
            "properties": [{"name": key, "value": value} for key, value in facts.items()],
        }


def document() -> Entry:
    package = metadata("bcos-sdk")
    url = f"pkg:pypi/bcos-sdk@{package['Version']}"
    needed = list(packages())
    contained = [*models(), *other_files(), browser_library()]
    described = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": url,
                "name": "bcos-sdk",
                "version": package["Version"],
                "description": package["Summary"],
                "licenses": licence(package["License-Expression"]),
                "purl": url,
                "components": contained,
            }
        },
        "components": needed,
        "dependencies": [
            {"ref": url, "dependsOn": [one["bom-ref"] for one in needed]},
            *({"ref": one["bom-ref"]} for one in needed),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(described, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **described}


if __name__ == "__main__":
    SBOM.write_text(json.dumps(document(), indent=2, ensure_ascii=False) + "\n", "utf-8")
