"""bcos-sdk: B-cos networks for production, with explanations that add up to the logit.

`import bcos_sdk` works without any extra. A function that needs an extra raises an error that names it.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

from bcos_sdk._lazy_names import import_on_first_use

if TYPE_CHECKING:
    from bcos_sdk.backends import Remote
    from bcos_sdk.bundle import Certificates, PublicKey, Sigstore
    from bcos_sdk.client import Client, Contrast, Pixel, Region
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

    __version__: str

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
    "Pixel",
    "Prediction",
    "PublicKey",
    "Region",
    "Remote",
    "Sigstore",
    "__version__",
    "builtin_registry",
    "read_explanation",
    "read_results",
    "to_dataframe",
    "to_rows",
]

if not TYPE_CHECKING:  # type checkers would accept any name
    _find = import_on_first_use(
        __name__,
        {
            **dict.fromkeys(("Certificates", "PublicKey", "Sigstore"), "bundle"),
            **dict.fromkeys(("Client", "Contrast", "Pixel", "Region"), "client"),
            "BcosError": "errors",
            "Limits": "limits",
            "Remote": "backends",
            **dict.fromkeys(("ModelSpec", "builtin_registry"), "registry"),
            **dict.fromkeys(("Completeness", "Explained", "Explanation", "Failure", "Prediction"), "results"),
            **dict.fromkeys(("read_explanation", "read_results", "to_dataframe", "to_rows"), "results"),
        },
    )

    def __getattr__(name):
        return version("bcos-sdk") if name == "__version__" else _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
