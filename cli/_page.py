"""What all pages share: the style of the report, the content security policy, texts without effect."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

from bcos_sdk._plain_text import plain
from bcos_sdk.pages import component

__all__ = ["content_security_policy", "plain_texts", "report_style", "report_template"]

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def report_template() -> str:
    """The report page of `predict`, with places for its data. It contains the components that it shares."""
    page = files("bcos_sdk.cli.predict").joinpath("report.html").read_text("utf-8")
    words = re.sub(r"^export ", "", component("words.js"), flags=re.MULTILINE)
    return page.replace("{{base}}", component("base.css")).replace("{{words}}", words)


def report_style() -> str:
    """The style sheet of the report page."""
    return _STYLE.findall(report_template())[0]  # type: ignore[no-any-return]


def content_security_policy(page: str) -> str:
    """Allow the page its own style, its own script and pictures inside it; nothing else."""
    allowed = [f"style-src 'sha256-{_digest(text)}'; " for text in _STYLE.findall(page)[:1]]
    allowed += [f"script-src 'sha256-{_digest(text)}'; " for text in _SCRIPT.findall(page)[:1]]
    return f"default-src 'none'; img-src data:; {''.join(allowed)}base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def plain_texts(value: Any) -> Any:
    """The same data. In its texts, control characters and changes of the writing direction are shown as escapes."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): plain_texts(inner) for name, inner in value.items()}
    return [*map(plain_texts, value)] if isinstance(value, (list, tuple)) else value
