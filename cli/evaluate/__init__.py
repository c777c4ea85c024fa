"""`bcos-sdk evaluate`: measure a model and its explanations on labelled images."""

from bcos_sdk.cli.evaluate._evaluate_command import evaluate
from bcos_sdk.cli.evaluate._page import write_page
from bcos_sdk.cli.evaluate._table import difference_rows, figure_rows

__all__ = ["difference_rows", "evaluate", "figure_rows", "write_page"]
