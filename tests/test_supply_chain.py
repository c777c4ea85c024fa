"""What the package is built from: locked packages, archives that anyone can build again, SBOM and licences."""

from __future__ import annotations

import hashlib
import json
import os
import re
import types
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support.building import ROOT, build, copy_sources
from support.scripts import load_script

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
SET_UP = ("", "cpu", "openvino", "export", "trt-rtx", "dev")
"""The extras that set-up installs."""


def script(name: str) -> types.ModuleType:
    return load_script(f".ci/{name}.py")


def pins(path: Path) -> list[Requirement]:
    lines = re.findall(r"^[a-z0-9][^\\\n]*", path.read_text("utf-8"), re.MULTILINE)
    return [Requirement(line.strip()) for line in lines]


def asked_for(*extras: str) -> list[Requirement]:
    """The requirements of the package with these extras."""
    return [
        requirement
        for requirement in map(Requirement, distribution("bcos-sdk").requires or [])
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def test_all_requirements_are_pinned_and_no_index_is_named() -> None:
    pinned = pins(ROOT / "constraints.txt")
    names = {requirement.name.lower() for requirement in asked_for(*SET_UP)}
    assert {"torch", "click", "pytest"} <= names <= {pin.name.lower() for pin in pinned}
    for path in (ROOT / "constraints.txt", *LOCKS):
        assert {one.operator for pin in pins(path) for one in pin.specifier} == {"=="}
        assert not re.search(r"//|--[a-z-]*index|--find-links", path.read_text("utf-8")), path


def test_every_locked_package_has_a_hash() -> None:
    assert len(LOCKS) == 5
    for path in LOCKS:
        packages = re.split(r"\n(?=[a-z])", path.read_text("utf-8").partition("\n")[2])
        assert packages
        for package in packages:
            first, *rest = package.strip().split(" \\\n")
            assert rest, first
            assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in rest), first


def test_the_lock_has_the_required_and_the_pinned_versions() -> None:
    locked = [pin for pin in pins(ROOT / "requirements" / "set-up.txt") if pin.marker is None or pin.marker.evaluate()]
    versions = {pin.name: next(iter(pin.specifier)).version for pin in locked}
    assert len(versions) == len(locked), "two versions of one package"
    for requirement in asked_for(*SET_UP):
        if requirement.name != "torch":  # its hash depends on the index
            name = requirement.name.lower()
            assert requirement.specifier.contains(versions.get(name, "")), f"{requirement}: run `make lock`"
    for pin in pins(ROOT / "constraints.txt"):
        if pin.name in versions and (pin.marker is None or pin.marker.evaluate()):
            assert pin.specifier.contains(versions[pin.name]), f"{pin}: run `make lock`"
    assert not [name for name in versions if name.startswith("nvidia-")], "CUDA belongs to a build of torch"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archives built twice: in two folders, with files of other permissions and times."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second-with-another-name")
    for folder, mask in zip(folders, (0o022, 0o077), strict=True):
        source = copy_sources(folder / "source")
        if mask == 0o077:
            for path in source.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
                os.utime(path, (1_000_000_000, 1_000_000_000))
        before = os.umask(mask)
        try:
            build(source, folder / "out", SOURCE_DATE_EPOCH="1700000000")
        finally:
            os.umask(before)
    return folders[0] / "out", folders[1] / "out"


def test_two_builds_have_the_same_bytes(builds: tuple[Path, Path]) -> None:
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in builds)
    assert sorted(name.rpartition("-")[2] for name in first) == ["0.1.0.tar.gz", "any.whl"]
    assert first.keys() == second.keys()
    assert all(first[name] == second[name] for name in first)


def test_the_wheel_has_an_sbom_that_is_valid_and_up_to_date(builds: tuple[Path, Path]) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    (wheel,) = builds[0].glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if "/sboms/" in one)
        assert re.fullmatch(r"bcos_sdk-[\d.]+\.dist-info/sboms/bcos-sdk\.cdx\.json", name)
        text = archive.read(name).decode()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        sbom = json.loads(text)
        assert sbom == script("make_sbom").document(), "run `make lock`"
        contained = sbom["metadata"]["component"]["components"]
        models, files = ["machine-learning-model"] * 2, ["file"] * 4
        assert [one["type"] for one in contained] == [*models, *files, "library"]
        for one in contained[:-1]:
            found = hashlib.sha256(archive.read(one["bom-ref"])).hexdigest()
            assert one["hashes"] == [{"alg": "SHA-256", "content": found}]
    required = {one["name"] for one in sbom["components"] if one["scope"] == "required"}
    assert required == {requirement.name for requirement in asked_for("")}
    optional = {requirement.name for requirement in asked_for("cpu", "gpu", "export", "trt")}
    assert optional <= {one["name"] for one in sbom["components"]}


def expression_of(entry: dict[str, Any]) -> str | None:
    (licence,) = entry["licenses"]
    expression: str | None = licence.get("expression")
    return expression


def test_the_licence_of_the_package_names_every_licence_of_its_files(builds: tuple[Path, Path]) -> None:
    package = metadata("bcos-sdk")
    stated = package["License-Expression"]
    assert canonicalize_license_expression(stated) == stated
    sbom = script("make_sbom").document()
    contained = [expression_of(one) or "" for one in sbom["metadata"]["component"]["components"]]
    assert set(stated.split(" AND ")) == {"Apache-2.0", *(part for one in contained for part in one.split(" AND "))}
    (wheel,) = builds[0].glob("*.whl")
    texts = {Path(name).stem for name in zipfile.ZipFile(wheel).namelist() if "/licenses/" in name}
    assert texts == {"LICENSE", "README"} | set(stated.split(" AND ")) - {"Apache-2.0"}


def test_the_licences_in_the_sbom_are_those_that_the_packages_state() -> None:
    compared = 0
    for entry in script("make_sbom").document()["components"]:
        expression = expression_of(entry)
        if expression is not None:
            assert canonicalize_license_expression(expression) == expression
        try:
            package = metadata(entry["name"])
        except PackageNotFoundError:  # of an extra that is not installed
            continue
        if package["Version"].partition("+")[0] == entry.get("version") and (stated := package["License-Expression"]):
            assert expression == stated, entry["name"]
            compared += 1
    assert compared >= 5


PYTHONS = ("3.10.18", "3.11.13", "3.12.11", "3.13.7")


def unsupported(constraint: str, requires: str) -> list[str]:
    """The versions of Python for which the constraint chooses a version of a package that does not support them."""
    marker = Requirement(constraint).marker
    chosen = [
        python
        for python in PYTHONS
        if marker is None
        or marker.evaluate({"python_version": ".".join(python.split(".")[:2]), "python_full_version": python})
    ]
    return [python for python in chosen if python not in SpecifierSet(requires)]


def test_the_constraints_choose_only_versions_that_support_the_python() -> None:
    """Checked for the packages that are installed in the version of constraints.txt; `make test-resolve` checks all."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constraints = [line for line in lines if line and not line.startswith("#")]
    checked = []
    for constraint in constraints:
        wanted = Requirement(constraint)
        try:
            found = metadata(wanted.name)
        except PackageNotFoundError:
            continue
        if f"=={found['Version'].partition('+')[0]}" == str(wanted.specifier):
            checked.append(wanted.name)
            assert unsupported(constraint, found["Requires-Python"] or "") == [], constraint
    assert len(checked) > len(constraints) // 2
    assert unsupported("cuda-bindings==13.5.0", ">=3.11") == ["3.10.18"]
    assert unsupported('cuda-bindings==13.5.0; python_version >= "3.11"', ">=3.11") == []


def test_the_gpu_extra_brings_the_libraries_of_cuda() -> None:
    """A machine has the driver only. cuBLAS comes as a dependency of cuDNN."""
    (wanted,) = re.findall(r'^gpu = \["(.+)"\]', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert Requirement(wanted).extras == {"cuda", "cudnn"}
