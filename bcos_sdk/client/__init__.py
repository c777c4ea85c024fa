"""The client: images in, predictions and certified explanations out."""

from bcos_sdk.client._client import Client, Model
from bcos_sdk.client._targets import Contrast, Targets

__all__ = ["Client", "Contrast", "Model", "Targets"]
