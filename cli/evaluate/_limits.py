"""The least figures that the user accepts, for CI: what was missed."""

from __future__ import annotations

from dataclasses import dataclass

from bcos_sdk.evaluation import Evaluation

__all__ = ["EXIT_CODE", "Demands"]

EXIT_CODE = 3
_DROPS = (("accuracy", "top1"), ("localisation", "localisation"), ("masks", "inside"))


@dataclass(frozen=True)
class Demands:
    """Least accuracy and localisation in per cent; largest drop in points against the compared model."""

    accuracy: float | None = None
    localisation: float | None = None
    drop: float | None = None

    def missed(self, result: Evaluation) -> list[str]:
        """One sentence for each demand that is not met. A figure that could not be measured does not meet it."""
        found = []
        for measure, score, least in (
            ("accuracy", "top1", self.accuracy),
            ("localisation", "localisation", self.localisation),
        ):
            figures = {str(name): one for name, one in result.model.figures.items()}.get(measure)
            if least is not None and (figures is None or 100 * figures.values[score] < least):
                value = "was not measured" if figures is None else f"is {100 * figures.values[score]:.2f} %"
                found.append(f"{measure} {value}, expected at least {least:g} %")
        if self.drop is not None:
            for one in result.differences:
                if (one.measure, one.score) in _DROPS and -100 * one.difference > self.drop:
                    drop = f"{-100 * one.difference:.2f} points below the compared model"
                    found.append(f"{one.measure} is {drop}, expected at most {self.drop:g}")
        return found
