"""Explanations as pictures: plain functions from arrays to arrays."""

from bcos_sdk.pictures._filters import box_mean
from bcos_sdk.pictures._heatmap import heatmap, overlay
from bcos_sdk.pictures._rgba import rgba

__all__ = ["box_mean", "heatmap", "overlay", "rgba"]
