"""From any form of an image to the network's input: read, convert to RGB, resize, crop, encode."""

from bcos_sdk.images._convert import to_rgb
from bcos_sdk.images._decoding_pool import DecodingPool
from bcos_sdk.images._encode import LEVELS, decode, encode, stand_in
from bcos_sdk.images._geometry import Geometry
from bcos_sdk.images._load import (
    ImageSource,
    is_one_image,
    load_image,
    snapshot,
    source_name,
    source_path,
)
from bcos_sdk.images._loaded import LoadedImage

__all__ = [
    "LEVELS",
    "DecodingPool",
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
    "stand_in",
    "to_rgb",
]
