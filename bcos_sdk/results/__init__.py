"""What a client returns: frozen pydantic records that can be written to JSON and read back without loss."""

from bcos_sdk.results._explanation import Explained, Explanation
from bcos_sdk.results._kinds import Result, result_of
from bcos_sdk.results._reading import read_explanation, read_results
from bcos_sdk.results._records import SCHEMA_VERSION, ClassScore, Completeness, Failure, Prediction, Target
from bcos_sdk.results._tables import COLUMNS, rows_of, to_dataframe, to_rows

__all__ = [
    "COLUMNS",
    "SCHEMA_VERSION",
    "ClassScore",
    "Completeness",
    "Explained",
    "Explanation",
    "Failure",
    "Prediction",
    "Result",
    "Target",
    "read_explanation",
    "read_results",
    "result_of",
    "rows_of",
    "to_dataframe",
    "to_rows",
]
