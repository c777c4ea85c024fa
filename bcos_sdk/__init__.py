"""bcos-sdk: B-cos networks for production, with explanations that add up.

`import bcos_sdk` needs none of the extras; what does need one says which.
"""

from importlib.metadata import version

from bcos_sdk.errors import BcosError
from bcos_sdk.registry import ModelSpec, builtin_registry

__all__ = ["BcosError", "ModelSpec", "__version__", "builtin_registry"]

__version__ = version("bcos-sdk")
