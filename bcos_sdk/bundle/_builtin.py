"""The models that ship with this package: their folders, and the digests that their manifests must have."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._paths import builtin_dir

__all__ = ["BUILTIN_MODEL", "BUILTIN_SHA256", "DEFAULT_MODEL", "PETS_MODEL", "builtin_bundle"]

BUILTIN_MODEL = "cifar10_resnet18_w16"
"""The small one, of 32×32 pixels: it has the graphs of inner layers, and is what tests and `doctor` measure."""

PETS_MODEL = "pets37_resnet18_w32"
"""The one of photographs: 37 breeds of cats and dogs."""

DEFAULT_MODEL = PETS_MODEL
"""What `predict` and `serve` use if nothing else is named: 192×192 pixels, in fp16, without graphs of inner layers."""

BUILTIN_SHA256 = {
    BUILTIN_MODEL: "18493092be6f3ebc05ab5787f65b7a0d1ad43a32d8dd0c7c5bd6382b9ced8aa7",
    PETS_MODEL: "5ae808b332c6ec4970cf4b451af7d4896003dc9709ccfe962ad41d13c6b4a519",
}
"""The SHA-256 of the manifest.json of every built-in model. demo/install.py writes it."""


def builtin_bundle(name: str = BUILTIN_MODEL) -> Path:
    """The folder of a model that ships with this package."""
    return builtin_dir() / name
