"""`bcos-sdk concepts`: a sheet of what speaks for a class in inner layers, over a folder of images."""

from bcos_sdk.cli.concepts._concepts_command import concepts

__all__ = ["concepts"]
