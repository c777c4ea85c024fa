"""The package as users install it: build the wheel, install it into an empty environment, run it."""

from __future__ import annotations

import ast
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.building import build, copy_sources, run

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "onnx", "onnxruntime", "onnxscript", "safetensors", "openvino", "tensorrt"}
HEAVY |= {"bcos", "matplotlib", "torchvision"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    out = tmp_path_factory.mktemp("wheel")
    build(copy_sources(tmp_path_factory.mktemp("source") / "bcos-sdk"), out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that contains only the wheel and its required packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in required_packages():
        for entry in {file.parts[0] for file in package.files or () if file.parts[0] != ".."}:
            target = Path(str(package.locate_file(entry)))
            if not (site / entry).exists() and entry != "__pycache__":
                (site / entry).symlink_to(target)
    run(sys.executable, "-m", "pip", "--python", str(folder), "install", "--no-deps", "--no-index", str(wheel))
    return folder / "bin"


def required_packages() -> list[Distribution]:
    """Return the packages that `pip install bcos-sdk` installs without extras, including indirect dependencies."""
    found: dict[str, Distribution] = {}
    waiting = ["bcos-sdk"]
    while waiting:
        for line in distribution(waiting.pop()).requires or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                waiting.append(requirement.name)
    return list(found.values())


def test_the_wheel_contains_one_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"bcos_sdk"}
    for expected in (
        "bcos_sdk/models.yaml",
        "bcos_sdk/py.typed",
        "bcos_sdk/registry/labels/imagenet.txt",
        "bcos_sdk/exporters/__init__.py",
        "bcos_sdk/cli/__init__.py",
        "bcos_sdk/cli/predict/report.html",
        "bcos_sdk/pages/page/main.js",
        "bcos_sdk/serve/page/start.js",
        "bcos_sdk/web/bcos/bcos.js",
        "bcos_sdk/web/onnxruntime-web.json",
        "bcos_sdk/web/page/worker.js",
        "bcos_sdk/builtin/cifar10_resnet18_w16.md",
        "bcos_sdk/builtin/pets37_resnet18_w32.md",
        "bcos_sdk/builtin/pets37_resnet18_w32/explain.onnx",
        "bcos_sdk/builtin/cifar10_resnet18_w16/explain.onnx",
    ):
        assert expected in names
    assert zipfile.ZipFile(wheel).read("bcos_sdk/models.yaml") == (ROOT / "models.yaml").read_bytes()


def test_required_packages_are_few_and_light() -> None:
    names = {package.name.lower() for package in required_packages()}
    assert {"numpy", "pydantic", "click", "filelock", "pillow", "pyyaml"} <= names
    assert not names & HEAVY


def test_the_command_runs_in_an_empty_environment(empty_environment: Path) -> None:
    command = str(empty_environment / "bcos-sdk")
    assert "Usage: bcos-sdk" in run(command, "--help")
    assert "resnet152" in run(command, "models")


def test_only_bcos_sdk_is_importable(empty_environment: Path) -> None:
    program = (
        "import importlib.util as u, bcos_sdk, bcos_sdk.cli; assert u.find_spec('bcos_sdk.exporters'); "
        "assert not [m for m in ('exporters', 'cli', 'tests', 'models') if u.find_spec(m)]"
    )
    run(str(empty_environment / "python"), "-I", "-c", program)


@pytest.mark.parametrize(
    "statement",
    [
        "import bcos_sdk.models",
        "from bcos_sdk.weights import load_model",
        "from bcos_sdk.weights import load_weights",
        "from bcos_sdk.weights import read_checkpoint",
    ],
)
def test_imports_that_need_an_extra_name_it(empty_environment: Path, statement: str) -> None:
    program = f"""
import bcos_sdk
try:
    {statement}
except bcos_sdk.BcosError as error:
    assert isinstance(error, ImportError) and error.code == "missing_extra"
    print(error)
"""
    message = run(str(empty_environment / "python"), "-c", program)
    assert "torch" in message
    assert "pip install 'bcos-sdk[export]'" in message


def test_downloading_is_importable_without_extras(empty_environment: Path) -> None:
    program = "from bcos_sdk.weights import download_weights, weights_dir; print(weights_dir())"
    assert "weights" in run(str(empty_environment / "python"), "-c", program)


def test_a_command_that_needs_an_extra_names_it(empty_environment: Path) -> None:
    command = [str(empty_environment / "bcos-sdk"), "export", "resnet18"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error [missing_extra]: " in done.stderr
    assert "pip install 'bcos-sdk[cpu,export]'" in done.stderr


def test_only_the_command_line_imports_click() -> None:
    library = [path for path in (ROOT / "bcos_sdk").rglob("*.py") if "cli" not in path.relative_to(ROOT).parts]
    sources = [*library, *(ROOT / "exporters").rglob("*.py")]
    assert len(sources) > 50
    assert [path.name for path in sources if "click" in imported_packages(path)] == []
    assert "click" in imported_packages(ROOT / "cli" / "_main.py")


def imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)}}


def test_importing_imports_nothing_heavy() -> None:
    program = (
        "import sys, bcos_sdk, bcos_sdk.cli, bcos_sdk.weights; print(*{name.split('.')[0] for name in sys.modules})"
    )
    assert not set(run(sys.executable, "-c", program).split()) & HEAVY
