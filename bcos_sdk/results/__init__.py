"""What a client returns: frozen, typed, JSON both ways."""

from bcos_sdk.results._completeness import TOLERANCE_CAPS, Completeness, Precision
from bcos_sdk.results._explanation import Explanation, Target
from bcos_sdk.results._records import SCHEMA_VERSION, ClassScore, Explained, Failure, Prediction

__all__ = [
    "SCHEMA_VERSION",
    "TOLERANCE_CAPS",
    "ClassScore",
    "Completeness",
    "Explained",
    "Explanation",
    "Failure",
    "Precision",
    "Prediction",
    "Target",
]
