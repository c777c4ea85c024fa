"""What an evaluation leaves: JSON and page in its folder, the table on stdout, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bcos_sdk._files import output_file
from bcos_sdk.cli._common import columns
from bcos_sdk.cli._terminal import print_error, print_json, print_lines, print_message
from bcos_sdk.cli.evaluate._limits import EXIT_CODE, Demands
from bcos_sdk.cli.evaluate._output import EvaluationFolder
from bcos_sdk.errors import ImagesFailedError

if TYPE_CHECKING:
    from bcos_sdk.evaluation import Evaluation

__all__ = ["exit_code", "print_result", "write_result"]

_MOST_PRINTED = 20


def write_result(result: Evaluation, folder: EvaluationFolder) -> None:
    from bcos_sdk.cli.evaluate._page import write_page

    with output_file(folder.result) as partial:
        partial.write_text(result.to_json(), "utf-8")
    write_page(result, folder.page)


def print_result(result: Evaluation, as_json: bool, folder: EvaluationFolder) -> None:
    """Failures go to stderr, the table or the JSON to stdout."""
    from bcos_sdk.cli.evaluate._table import AGAINST, against_rows, difference_rows, figure_rows

    for one in (result.model, result.other):
        failures = [] if one is None else [failure for part in one.failures.values() for failure in part]
        for failure in failures[:_MOST_PRINTED]:
            print_error(failure.code, f"{failure.source}: {failure.message}")
        if len(failures) > _MOST_PRINTED:
            print_message(f"{len(failures) - _MOST_PRINTED:,} more failed; {folder.result} lists all")
    if as_json:
        print_json(result.to_json().rstrip("\n"))
    else:
        print_lines(*columns(("figure", "value", "items"), figure_rows(result)))
        if result.differences:
            header = ("model − compared", "model", "compared", "difference", "95 % interval", "items that differ")
            print_lines("", *columns(header, difference_rows(result.differences)))
        if rows := against_rows(result):
            print_lines("", *columns(AGAINST, rows))
    print_message(f"written to {folder.path}")


def exit_code(result: Evaluation, demands: Demands) -> int:
    """3 if a demand is not met, else that of failed images, else 0. Demands that are not met go to stderr."""
    missed = demands.missed(result)
    for sentence in missed:
        print_message(sentence, label="not met:", colour="red")
    if missed:
        return EXIT_CODE
    failed = result.model.failures or (result.other is not None and result.other.failures)
    return ImagesFailedError.exit_code if failed else 0
