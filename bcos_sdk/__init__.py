"""bcos-sdk: B-cos networks for production, with explanations that add up to the logit.

`import bcos_sdk` works without any extra. A function that needs an extra raises an error that names it.
"""

from importlib.metadata import version

from bcos_sdk.bundle import Certificates, PublicKey, Sigstore
from bcos_sdk.client import Client, Contrast
from bcos_sdk.errors import BcosError
from bcos_sdk.limits import Limits
from bcos_sdk.registry import ModelSpec, builtin_registry
from bcos_sdk.results import (
    Completeness,
    Explained,
    Explanation,
    Failure,
    Prediction,
    read_explanation,
    read_results,
    to_dataframe,
    to_rows,
)

__all__ = [
    "BcosError",
    "Certificates",
    "Client",
    "Completeness",
    "Contrast",
    "Explained",
    "Explanation",
    "Failure",
    "Limits",
    "ModelSpec",
    "Prediction",
    "PublicKey",
    "Sigstore",
    "__version__",
    "builtin_registry",
    "read_explanation",
    "read_results",
    "to_dataframe",
    "to_rows",
]

__version__ = version("bcos-sdk")
