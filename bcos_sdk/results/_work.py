"""What decides the result of an image. A run that is continued compares it with what was recorded."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict

__all__ = ["Work", "record_key"]


class Work(BaseModel):
    """What decides the result of an image besides its content. Device and threads do not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str
    """The digest of the bundle's manifest."""
    explain: bool
    targets: tuple[str, ...]
    """As they were given."""
    top_k: int
    tf32: bool
    outputs: tuple[str, ...]
    """The kinds of files that were asked for: pictures, "npz", "report"."""

    def difference(self, done: Work) -> str | None:
        """Why results of the work `done` are not those of this work; None if they are. More outputs do no harm."""
        reasons = {
            "another model": self.model != done.model,
            "with explanations" if self.explain else "without explanations": self.explain != done.explain,
            "other targets": self.targets != done.targets,
            "another number of classes": self.top_k != done.top_k,
            "another --tf32": self.tf32 != done.tf32,
            "other outputs": not set(self.outputs) <= set(done.outputs),
        }
        return next((reason for reason, differs in reasons.items() if differs), None)


def record_key(image_sha256: str | None, work: Work | None) -> str:
    """The hash of everything that decided a result: the content of the image and the work."""
    text = "" if work is None else work.model_dump_json()
    return hashlib.sha256(f"{image_sha256}\n{text}".encode()).hexdigest()
