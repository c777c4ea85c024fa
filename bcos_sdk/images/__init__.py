"""From what a caller has to what the network takes: reading, converting, resizing, encoding."""

from bcos_sdk.images._encode import decode, encode
from bcos_sdk.images._load import ImageSource, LoadedImage, is_one_image, load_image, source_name, take_image

__all__ = ["ImageSource", "LoadedImage", "decode", "encode", "is_one_image", "load_image", "source_name", "take_image"]
