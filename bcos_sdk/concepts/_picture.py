"""The sheet as one picture: a row of images and a row of their W for each direction, layers from early to late."""

from __future__ import annotations

from collections.abc import Iterable

from PIL import Image, ImageDraw, ImageFont

from bcos_sdk._plain_text import plain
from bcos_sdk.concepts._drawing import DrawnDirection
from bcos_sdk.concepts._records import Concepts

__all__ = ["sheet_picture"]

_TILE, _GAP, _TEXT, _MARGIN = 112, 6, 168, 16
_ROW = 2 * _TILE + _GAP // 2 + 30
_TITLE, _HEADING = 34, 34
_INK, _QUIET, _LINE = (28, 28, 30), (105, 105, 108), (220, 220, 222)


def sheet_picture(concepts: Concepts, directions: Iterable[DrawnDirection]) -> Image.Image:
    """Draw the sheet. Only the small pictures of each direction are kept."""
    strips: list[Image.Image] = []
    count = max((len(one.examples) for layer in concepts.layers for one in layer.concepts), default=1)
    width = 2 * _MARGIN + _TEXT + count * (_TILE + _GAP)
    strips.append(_title(concepts, width))
    seen = ""
    for one in directions:
        if one.layer.layer != seen and len(concepts.layers) > 1:
            strips.append(_heading(one.layer.layer, width))
        seen = one.layer.layer
        strips.append(_strip(one, width))
    sheet = Image.new("RGB", (width, sum(strip.height for strip in strips) + _MARGIN), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    return sheet


def _title(concepts: Concepts, width: int) -> Image.Image:
    strip = Image.new("RGB", (width, _TITLE + _MARGIN), "white")
    pen = ImageDraw.Draw(strip)
    layers = ", ".join(one.layer for one in concepts.layers)
    _write(pen, (_MARGIN, _MARGIN), f"What speaks for “{concepts.label}” in {layers}", 18, width - 2 * _MARGIN)
    return strip


def _heading(text: str, width: int) -> Image.Image:
    strip = Image.new("RGB", (width, _HEADING), "white")
    pen = ImageDraw.Draw(strip)
    pen.line((_MARGIN, 4, width - _MARGIN, 4), fill=_LINE, width=2)
    _write(pen, (_MARGIN, 12), text, 16, width - 2 * _MARGIN)
    return strip


def _strip(one: DrawnDirection, width: int) -> Image.Image:
    strip = Image.new("RGB", (width, _ROW), "white")
    pen = ImageDraw.Draw(strip)
    concept, left = one.concept, _MARGIN
    _write(pen, (left, 2), f"Direction {one.number}", 15, _TEXT - 8)
    lines = [f"adds {concept.contribution:.2f} to the", f"logit {concept.logit:.2f} of its image", ""]
    lines.append(f"top {concept.counted} images, predicted:")
    lines += [f"{count} {label}" for label, count in list(concept.class_counts.items())[:4]]
    for place, line in enumerate(lines):
        _write(pen, (left, 26 + 17 * place), line, 12, _TEXT - 8, _QUIET)
    for place, drawn in enumerate(one.drawn):
        x = _MARGIN + _TEXT + place * (_TILE + _GAP)
        for row, picture in enumerate((drawn.image, drawn.weights)):
            tile = _fitted(picture)
            strip.paste(tile, (x + (_TILE - tile.width) // 2, row * (_TILE + _GAP // 2)))
        caption = f"{drawn.example.predicted} {drawn.example.value:.1f}"
        _write(pen, (x, 2 * _TILE + _GAP // 2 + 2), caption, 12, _TILE, _QUIET)
    return strip


def _fitted(picture: Image.Image) -> Image.Image:
    scale = _TILE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _write(
    pen: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, width: int, ink: tuple[int, int, int] = _INK
) -> None:
    """Write one line, shortened to the width."""
    font = ImageFont.load_default(size)
    text = plain(text)
    if pen.textlength(text, font=font) > width:
        while text and pen.textlength(f"{text}…", font=font) > width:
            text = text[:-1]
        text = f"{text}…"
    pen.text(place, text, fill=ink, font=font)
