"""The components of the pages: index.html, and the scripts and styles in its folder `page/`."""

from __future__ import annotations

import html
from importlib.resources import files
from pathlib import Path

__all__ = ["component", "index_page", "media_type", "page_files"]

_INDEX = "index.html"
_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}


def component(name: str) -> str:
    """The text of one component, by its file name."""
    return (_folder("bcos_sdk.pages") / name).read_text("utf-8")


def page_files(package: str) -> dict[str, bytes]:
    """The files that index.html expects in `page/`, by name: the shared ones, and those in `page/` of this package.

    The package has `start.js`, which starts the page with its model.
    """
    folders = (_folder("bcos_sdk.pages"), _folder(package))
    found = {file.name: file.read_bytes() for folder in folders for file in folder.iterdir() if file.is_file()}
    del found[_INDEX]
    return found


def index_page(policy: str, footer: str = "") -> bytes:
    """index.html with its content security policy. `footer` is HTML."""
    page = component(_INDEX).replace("{{policy}}", html.escape(policy)).replace("{{footer}}", footer)
    return page.encode("utf-8")


def _folder(package: str) -> Path:
    return Path(str(files(package))) / "page"


def media_type(name: str) -> str:
    """The media type of a file of the page."""
    return _TYPES[Path(name).suffix]
