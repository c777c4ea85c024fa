"""What a client returns: frozen pydantic records that can be written to JSON and read back without loss."""

from bcos_sdk.results._explanation import Explained, Explanation
from bcos_sdk.results._records import SCHEMA_VERSION, ClassScore, Completeness, Failure, Prediction, Target

__all__ = [
    "SCHEMA_VERSION",
    "ClassScore",
    "Completeness",
    "Explained",
    "Explanation",
    "Failure",
    "Prediction",
    "Target",
]
