"""The client: images in, predictions and certified explanations out."""

from bcos_sdk.client._client import Client, Model
from bcos_sdk.client._layers import Direction, Position
from bcos_sdk.client._targets import Contrast, Pixel, Region, Targets, check_targets, target_at

__all__ = [
    "Client",
    "Contrast",
    "Direction",
    "Model",
    "Pixel",
    "Position",
    "Region",
    "Targets",
    "check_targets",
    "target_at",
]
