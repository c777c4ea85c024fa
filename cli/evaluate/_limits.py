"""The least figures that the user accepts, for CI: what was missed."""

from __future__ import annotations

from dataclasses import dataclass

from bcos_sdk.evaluation import Evaluation

__all__ = ["EXIT_CODE", "Demands"]

EXIT_CODE = 3
_DROPS = {"accuracy": "top1", "localisation": "localisation", "masks": "inside"}
_MOST_DIGITS = 12


@dataclass(frozen=True)
class Demands:
    """Least accuracy and localisation in per cent; largest drop in points against the compared model."""

    accuracy: float | None = None
    localisation: float | None = None
    drop: float | None = None

    def missed(self, result: Evaluation) -> list[str]:
        """One sentence for each demand that is not met. A figure that could not be measured does not meet it."""
        least = [*self._too_low(result, "accuracy", self.accuracy)]
        least += self._too_low(result, "localisation", self.localisation)
        return least if self.drop is None else [*least, *self._dropped(result, self.drop)]

    def _too_low(self, result: Evaluation, measure: str, least: float | None) -> list[str]:
        figures = {str(name): one for name, one in result.model.figures.items()}.get(measure)
        value = None if figures is None else 100 * figures.values[_DROPS[measure]]
        if least is None or (value is not None and value >= least):
            return []
        found = "was not measured" if value is None else f"is {_apart(value, least)} %"
        return [f"{measure} {found}, expected at least {least:g} %"]

    def _dropped(self, result: Evaluation, most: float) -> list[str]:
        drops = {(one.measure, one.score): -100 * one.difference for one in result.differences}
        found = []
        for measure in result.settings.measures:
            if measure not in _DROPS:
                continue
            drop = drops.get((measure, _DROPS[measure]))
            if drop is None:
                found.append(
                    f"{measure} could not be compared, expected at most {most:g} points below the compared model"
                )
            elif drop > most:
                found.append(
                    f"{measure} is {_apart(drop, most)} points below the compared model, expected at most {most:g}"
                )
        return found


def _apart(value: float, limit: float) -> str:
    """The value with two decimals, or with as many more as it takes to tell it from the limit."""
    return next(
        (text for digits in range(2, _MOST_DIGITS) if float(text := f"{value:.{digits}f}") != limit), f"{value:g}"
    )
