"""What a client returns: frozen pydantic records that can be written to JSON and read back without loss."""

from bcos_sdk.results._explanation import Explained, Explanation
from bcos_sdk.results._kinds import Result, result_of
from bcos_sdk.results._layer_results import (
    Feature,
    FeatureExplanation,
    Features,
    LayerExplanation,
    LayerFeatures,
    feature_sum,
)
from bcos_sdk.results._reading import read_explanation, read_results
from bcos_sdk.results._records import SCHEMA_VERSION, ClassScore, Completeness, Failure, Prediction, Record, Target
from bcos_sdk.results._tables import COLUMNS, ColumnKind, arrow_type, rows_of, to_dataframe, to_rows
from bcos_sdk.results._work import Work, record_key

__all__ = [
    "COLUMNS",
    "SCHEMA_VERSION",
    "ClassScore",
    "ColumnKind",
    "Completeness",
    "Explained",
    "Explanation",
    "Failure",
    "Feature",
    "FeatureExplanation",
    "Features",
    "LayerExplanation",
    "LayerFeatures",
    "Prediction",
    "Record",
    "Result",
    "Target",
    "Work",
    "arrow_type",
    "feature_sum",
    "read_explanation",
    "read_results",
    "record_key",
    "result_of",
    "rows_of",
    "to_dataframe",
    "to_rows",
]
