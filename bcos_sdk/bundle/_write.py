"""Write a bundle atomically: into a folder beside the target, which is renamed when it is complete."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import store_dir
from bcos_sdk._private_folders import private_store
from bcos_sdk._processes import is_running
from bcos_sdk.bundle._bundle import Bundle
from bcos_sdk.bundle._graph_metadata import add_metadata
from bcos_sdk.bundle._manifest import FileRecord, Manifest, binding_digest
from bcos_sdk.bundle._open import MANIFEST, is_replaceable, open_bundle
from bcos_sdk.contract import MANIFEST_METADATA
from bcos_sdk.errors import BundleError, BundleExistsError, OutputError

__all__ = ["BundleWriter"]

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.partial-(?P<process>\d+)(?P<replaced>-replaced)?")


class BundleWriter:
    """`with BundleWriter(target) as writer:` write files into `writer.folder`, then call `writer.finish(manifest)`.

    Without `finish` nothing remains. Folders that an earlier, killed process left beside the target are removed.
    """

    def __init__(self, target: Path | str, *, force: bool = False) -> None:
        self.target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow the links refused below
        self.force = force
        self._refuse_to_overwrite()
        self.folder = self.target.with_name(f".{self.target.name}.partial-{os.getpid()}")
        self._replaced = self.folder.with_name(f"{self.folder.name}-replaced")

    def __enter__(self) -> BundleWriter:
        try:
            if self._in_store:
                private_store()
            else:
                self.target.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            self.folder.mkdir(0o755 if self._in_store else 0o777)
        except OSError as error:
            raise BundleError(
                f"cannot write beside {self.target}: {error}",
                source=str(self.target),
                hint="Choose another folder, or check the permissions and the free space of its parent folder.",
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._replaced.exists():  # the bundle was being replaced
            if self.target.exists():
                shutil.rmtree(self._replaced, ignore_errors=True)
            else:
                self._replaced.rename(self.target)
        if isinstance(error, OSError):
            raise OutputError(
                f"cannot write the bundle {self.target}: {error.strerror or error}",
                source=str(self.target),
                hint="No bundle was written. Free some space or choose another folder, then export again.",
            ) from error

    def finish(self, manifest: Manifest) -> Bundle:
        """Bind manifest and graphs, write the manifest, verify the bundle by opening it, and move it to the target.

        `manifest.files` is filled in here: the graphs get the digest of the manifest before they are hashed.
        """
        digest = binding_digest(manifest.model_dump(mode="json"))
        for graph in Bundle(self.folder, manifest).graphs:
            add_metadata(graph, MANIFEST_METADATA, digest)
        manifest = manifest.model_copy(update={"files": self._records()})
        (self.folder / MANIFEST).write_bytes(manifest.to_json().encode("utf-8"))
        opened = open_bundle(self.folder)
        self._refuse_to_overwrite()
        if self.target.exists():
            self.target.rename(self._replaced)
            self.folder.rename(self.target)
            shutil.rmtree(self._replaced)
        else:
            self.folder.rename(self.target)
        return replace(opened, path=self.target)

    @property
    def _in_store(self) -> bool:
        return self.target.parent == store_dir().absolute()

    def _records(self) -> dict[str, FileRecord]:
        """Size and hash of every file in the folder, by name."""
        return {
            path.name: FileRecord(sha256=sha256_of(path), size=path.stat().st_size)
            for path in sorted(self.folder.iterdir())
        }

    def _refuse_to_overwrite(self) -> None:
        if self.target.is_symlink() or not self.target.name:
            reason = "is a symbolic link" if self.target.is_symlink() else "has no name"
            raise BundleExistsError(
                f"cannot write a bundle to {self.target}: it {reason}",
                source=str(self.target),
                hint="Choose another folder.",
            )
        if not self.target.exists():
            return
        replaceable = is_replaceable(self.target)
        if not (self.force and replaceable):
            reason = "exists already" if replaceable else "exists and is not a bundle"
            raise BundleExistsError(
                f"{self.target} {reason}",
                source=str(self.target),
                hint="Pass --force (force=True) to replace it." if replaceable else "Choose another folder.",
            )

    def _remove_leftovers(self) -> None:
        """Clean up after killed processes: remove partial bundles, and restore bundles that were being replaced.

        In the store this is done for bundles of all names, elsewhere only for those of the target.
        """
        for path in list(self.target.parent.iterdir()):
            match = _LEFTOVER.fullmatch(path.name)
            if match is None or not (self._in_store or match["name"] == self.target.name):
                continue
            process, target = int(match["process"]), path.with_name(match["name"])
            if process != os.getpid() and is_running(process):
                continue
            if match["replaced"] and not target.exists():
                path.rename(target)
            else:
                shutil.rmtree(path, ignore_errors=True)
        self._refuse_to_overwrite()
