"""The figures of an evaluation as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from bcos_sdk.evaluation import Difference, Evaluation

__all__ = ["AGAINST", "NAMES", "against_rows", "difference_rows", "figure_rows"]

_PERCENT = {"top1", "top5", "ece", "localisation", "raw", "quantile", "chance", "inside", "pointing", "area"}
NAMES = {
    ("accuracy", "top1"): "top-1 accuracy %",
    ("accuracy", "top5"): "top-5 accuracy %",
    ("accuracy", "ece"): "calibration error (ECE) %",
    ("localisation", "localisation"): "grid pointing game %",
    ("localisation", "raw"): "  not smoothed %",
    ("localisation", "quantile"): "  largest pixels only %",
    ("localisation", "chance"): "  by chance %",
    ("masks", "inside"): "positive contribution on the object %",
    ("masks", "pointing"): "maximum on the object %",
    ("masks", "area"): "  area of the object %",
    ("faithfulness", "deletion_most"): "deletion, most important first (lower is better)",
    ("faithfulness", "deletion_random"): "deletion, random",
    ("faithfulness", "deletion_least"): "deletion, least important first",
    ("faithfulness", "insertion_most"): "insertion, most important first (higher is better)",
    ("faithfulness", "insertion_random"): "insertion, random",
    ("faithfulness", "insertion_least"): "insertion, least important first",
    ("bias", "median"): "share of b(x) in the top-2 difference, median",
    ("bias", "mean_absolute"): "  mean of its absolute value",
    ("bias", "share"): "share of b(x) in the top-2 difference, mean",
    ("stability", "cosine"): "cosine of maps after shifts",
    ("stability", "rank"): "rank correlation of maps after shifts",
    ("stability", "other_cosine"): "cosine with the maps of the compared model",
    ("stability", "other_rank"): "rank correlation with its maps",
}


def figure_rows(result: Evaluation) -> list[tuple[str, str, str]]:
    """Name, value, and number of images or grids."""
    return [
        (NAMES[measure, score], _shown(score, value), f"{figures.items:,}")
        for measure, figures in result.model.figures.items()
        for score, value in figures.values.items()
    ]


def difference_rows(differences: Sequence[Difference]) -> list[tuple[str, ...]]:
    """Name, both values, the difference with its interval, how many items differ, and of how many."""
    return [
        (
            NAMES[one.measure, one.score].strip(),
            _shown(one.score, one.model),
            _shown(one.score, one.other),
            _shown(one.score, one.difference, sign="+"),
            f"{_shown(one.score, one.low, sign='+')} … {_shown(one.score, one.high, sign='+')}",
            f"{one.changed:,} of {one.items:,}",
        )
        for one in differences
    ]


AGAINST = ("method", "score %", "ours %", "not smoothed %", "grids", "ms", "equals")


def against_rows(result: Evaluation) -> list[tuple[str, ...]]:
    """Method, score, that of our explanation on the same grids, the score not smoothed, number of grids, milliseconds
    per explanation, and the method that it equals on this network.
    """
    if result.against is None:
        return []
    return [
        (
            one["title"],
            f"{100 * one['localisation']:.2f}",
            "–" if one["name"] == "ours" or one["ours"] is None else f"{100 * one['ours']:.2f}",
            f"{100 * one['raw']:.2f}",
            f"{one['grids']}",
            f"{one['milliseconds']:,.0f}",
            (one["equals"] or "–").partition(",")[0],
        )
        for one in result.against["methods"]
    ]


def _shown(score: str, value: float, sign: str = "-") -> str:
    return f"{100 * value:{sign}.2f}" if score in _PERCENT else f"{value:{sign}.4f}"
