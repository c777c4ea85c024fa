"""The model that ships with this package: its folder, and the digest that its manifest must have."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._paths import builtin_dir

__all__ = ["BUILTIN_MODEL", "BUILTIN_SHA256", "builtin_bundle"]

BUILTIN_MODEL = "cifar10_resnet18_w16"
BUILTIN_SHA256 = "0d747c8f5a1a790be2d451383dcc8223b7c76a068e6713d147a785e6d956232b"
"""The SHA-256 of its manifest.json. Change it when the model is exported again."""


def builtin_bundle() -> Path:
    """The folder of the model that ships with this package."""
    return builtin_dir() / BUILTIN_MODEL
