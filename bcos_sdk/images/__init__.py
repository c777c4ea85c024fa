"""From any form of an image to the network's input: read, convert to RGB, resize, crop, encode."""

from bcos_sdk.images._convert import to_rgb
from bcos_sdk.images._encode import decode, encode
from bcos_sdk.images._load import ImageSource, LoadedImage, is_one_image, load_image, snapshot, source_name
from bcos_sdk.images._transform import enlarged_input

__all__ = [
    "ImageSource",
    "LoadedImage",
    "decode",
    "encode",
    "enlarged_input",
    "is_one_image",
    "load_image",
    "snapshot",
    "source_name",
    "to_rgb",
]
