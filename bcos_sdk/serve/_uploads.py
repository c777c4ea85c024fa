"""Images in requests. Results and errors name them as the caller does."""

from __future__ import annotations

__all__ = ["Upload"]

_LONGEST_NAME = 200


class Upload(bytes):
    """The contents of an image file. The client takes `name` for the source of its result."""

    name: str

    @classmethod
    def of(cls, contents: bytes, name: str) -> Upload:
        """An image that results and errors call `name`."""
        upload = cls(contents)
        upload.name = name[:_LONGEST_NAME]
        return upload
