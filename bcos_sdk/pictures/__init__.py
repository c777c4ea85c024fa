"""Everything that draws: pure functions from arrays or PIL pictures to arrays or PIL pictures."""

from bcos_sdk.pictures._display import (
    data_uri,
    enlarge,
    enlargement,
    on_white,
    smoothing_window,
    to_picture,
)
from bcos_sdk.pictures._maps import box_mean, heatmap, overlay, rgba

__all__ = [
    "box_mean",
    "data_uri",
    "enlarge",
    "enlargement",
    "heatmap",
    "on_white",
    "overlay",
    "rgba",
    "smoothing_window",
    "to_picture",
]
