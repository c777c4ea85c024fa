"""What a client returns: frozen, typed, JSON both ways."""

from bcos_sdk.results._completeness import Completeness
from bcos_sdk.results._explanation import Explanation, Target
from bcos_sdk.results._records import SCHEMA_VERSION, ClassScore, Explained, Failure, Prediction

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
