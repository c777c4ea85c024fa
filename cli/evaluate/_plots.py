"""Plots as SVG inside a page: lines, bars, box plots. Colours come from the classes of the style sheet."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from bcos_sdk.evaluation import Spread

__all__ = ["bars", "box_plot", "lines"]

_WIDTH, _HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 40


def lines(curves: Mapping[str, Sequence[tuple[float, float]]], *, across: str, up: str, diagonal: bool = False) -> str:
    """One line per name, with a legend below. Both axes go from 0 to 1 or to the largest value."""
    points = [point for curve in curves.values() for point in curve]
    low, high = min(0.0, *(x for x, _ in points)), max(1.0, *(x for x, _ in points))
    bottom, top = min(0.0, *(y for _, y in points)), max(1.0, *(y for _, y in points))
    parts = [_axes(low, high, bottom, top, across, up)]
    if diagonal:
        parts.append(_path([(0, 0), (1, 1)], low, high, bottom, top, "diagonal"))
    parts += [_path(curve, low, high, bottom, top, f"line l{at}") for at, curve in enumerate(curves.values())]
    keys = [
        f'<text class="key l{at}" x="{_LEFT + 8 + at % 2 * 230}" y="{_HEIGHT + 16 + at // 2 * 18}">'
        f"— {html.escape(name)}</text>"
        for at, name in enumerate(curves)
    ]
    return _svg("".join(parts + keys), _HEIGHT + 8 + 18 * -(-len(curves) // 2), f"{up} against {across}")


def bars(heights: Sequence[float], low: float, high: float, *, across: str, up: str) -> str:
    """Bars of equal width between `low` and `high`."""
    top = max(*heights, 1e-12)
    step = (high - low) / len(heights)
    drawn = []
    for at, height in enumerate(heights):
        left, right = _x(low + at * step, low, high), _x(low + (at + 1) * step, low, high)
        y = _y(height, 0, top)
        drawn.append(
            f'<rect class="bar0" x="{left:.1f}" y="{y:.1f}" width="{right - left - 1:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - y:.1f}"/>'
        )
    return _svg(_axes(low, high, 0, top, across, up) + "".join(drawn), _HEIGHT, f"{up} by {across}")


def box_plot(spreads: Mapping[str, Spread], *, across: str, mark: float | None = None) -> str:
    """A box from the first to the third quartile, a line at the median, a point at the mean, whiskers at 5 and 95 %.

    All between 0 and 1. `mark` draws a dashed line, for example at chance.
    """
    left, right, row = 24 + min(260, 6.6 * max(map(len, spreads))), 24, 34
    bottom = _TOP + row * len(spreads)

    def place(value: float) -> float:
        return left + (_WIDTH - right - left) * min(max(value, 0), 1)

    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line class="tick" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="middle" x="{place(tick):.1f}" y="{bottom + 16}">{100 * tick:g} %</text>')
    if mark is not None:
        parts.append(
            f'<line class="diagonal" x1="{place(mark):.1f}" x2="{place(mark):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        )
    for at, (name, one) in enumerate(spreads.items()):
        y = _TOP + row * at + row / 2
        parts.append(f'<text class="end" x="{left - 8}" y="{y + 4:.1f}">{html.escape(name)}</text>')
        parts.append(f'<line class="whisker" x1="{place(one.p5):.1f}" x2="{place(one.p95):.1f}" y1="{y}" y2="{y}"/>')
        width = max(place(one.q75) - place(one.q25), 1)
        parts.append(f'<rect class="box" x="{place(one.q25):.1f}" y="{y - 9}" width="{width:.1f}" height="18"/>')
        median = place(one.median)
        parts.append(f'<line class="median" x1="{median:.1f}" x2="{median:.1f}" y1="{y - 9}" y2="{y + 9}"/>')
        parts.append(f'<circle class="mean" cx="{place(one.mean):.1f}" cy="{y}" r="3.5"/>')
    parts.append(f'<text class="middle" x="{(left + _WIDTH) / 2}" y="{bottom + 34}">{html.escape(across)}</text>')
    return _svg("".join(parts), bottom + 42, across)


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)


def _y(value: float, low: float, high: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)


def _path(curve: Sequence[tuple[float, float]], low: float, high: float, bottom: float, top: float, kind: str) -> str:
    points = " ".join(f"{_x(x, low, high):.1f},{_y(y, bottom, top):.1f}" for x, y in curve)
    return f'<polyline class="{kind}" points="{points}"/>'


def _axes(low: float, high: float, bottom: float, top: float, across: str, up: str) -> str:
    parts = []
    for at in range(5):
        x, y = low + (high - low) * at / 4, bottom + (top - bottom) * at / 4
        height = _y(y, bottom, top)
        parts.append(f'<line class="tick" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{height + 4:.1f}">{y:.3g}</text>')
        parts.append(f'<text class="middle" x="{_x(x, low, high):.1f}" y="{_HEIGHT - _BOTTOM + 16}">{x:.3g}</text>')
    parts.append(f'<text class="middle" x="{_WIDTH / 2}" y="{_HEIGHT - 6}">{html.escape(across)}</text>')
    parts.append(
        f'<text class="middle" transform="translate(12 {_HEIGHT / 2 - 10}) rotate(-90)">{html.escape(up)}</text>'
    )
    return "".join(parts)


def _svg(inside: str, height: float, title: str) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {_WIDTH} {height:g}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )
