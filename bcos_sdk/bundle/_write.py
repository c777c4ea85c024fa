"""Writing a bundle: aside first, and renamed into place when it is complete."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from bcos_sdk._hashing import sha256_of
from bcos_sdk.bundle._bundle import MANIFEST, Bundle, open_bundle
from bcos_sdk.bundle.manifest import FileRecord, Manifest
from bcos_sdk.errors import BundleExistsError

__all__ = ["BundleWriter"]


class BundleWriter:
    """`with BundleWriter(target) as writer:` write files into `writer.folder`, then `writer.finish(manifest)`.

    Without `finish` nothing remains. What an earlier, killed process left beside the target is removed.
    """

    def __init__(self, target: Path | str, *, force: bool = False) -> None:
        self.target = Path(target)
        self.force = force
        self.folder = self.target.with_name(f".{self.target.name}.partial-{os.getpid()}")
        self._refuse_to_overwrite()

    def __enter__(self) -> BundleWriter:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        self.folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def records(self) -> dict[str, FileRecord]:
        """Size and hash of every file written so far."""
        return {
            path.name: FileRecord(sha256=sha256_of(path), size=path.stat().st_size)
            for path in sorted(self.folder.iterdir())
        }

    def finish(self, manifest: Manifest) -> Bundle:
        """Write the manifest, check the whole as a reader would, and move it to the target."""
        (self.folder / MANIFEST).write_text(manifest.to_json(), "utf-8")
        open_bundle(self.folder)
        self._refuse_to_overwrite()
        if self.target.exists():
            replaced = self.folder.with_name(f"{self.folder.name}-replaced")
            self.target.rename(replaced)
            self.folder.rename(self.target)
            shutil.rmtree(replaced)
        else:
            self.folder.rename(self.target)
        return Bundle(self.target, manifest)

    def _refuse_to_overwrite(self) -> None:
        if not self.target.exists():
            return
        is_bundle = (
            (self.target / MANIFEST).is_file() or not any(self.target.iterdir()) if self.target.is_dir() else False
        )
        if not (self.force and is_bundle):
            reason = "exists already" if is_bundle else "exists and is not a bundle"
            raise BundleExistsError(
                f"{self.target} {reason}",
                source=str(self.target),
                hint="Pass --force (force=True) to replace it." if is_bundle else "Choose another folder.",
            )

    def _remove_leftovers(self) -> None:
        pattern = re.compile(re.escape(f".{self.target.name}.partial-") + r"(\d+)(-replaced)?")
        for path in self.target.parent.iterdir():
            match = pattern.fullmatch(path.name)
            if match and (int(match[1]) == os.getpid() or not _is_running(int(match[1]))):
                shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
