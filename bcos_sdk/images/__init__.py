"""From any form of an image to the network's input: read, convert to RGB, resize, crop, encode."""

from bcos_sdk.images._convert import to_rgb
from bcos_sdk.images._encode import decode, encode
from bcos_sdk.images._geometry import Geometry
from bcos_sdk.images._load import (
    ImageSource,
    LoadedImage,
    is_one_image,
    load_image,
    snapshot,
    source_name,
    source_path,
)

__all__ = [
    "Geometry",
    "ImageSource",
    "LoadedImage",
    "decode",
    "encode",
    "is_one_image",
    "load_image",
    "snapshot",
    "source_name",
    "source_path",
    "to_rgb",
]
