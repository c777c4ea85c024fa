"""A model behind a server of the Open Inference Protocol v2: `bcos-sdk serve`, Triton, KServe, over HTTP or gRPC."""

from bcos_sdk.backends.remote._address import is_address
from bcos_sdk.backends.remote._connect import Connected, connect
from bcos_sdk.backends.remote._options import Remote

__all__ = ["Connected", "Remote", "connect", "is_address"]
