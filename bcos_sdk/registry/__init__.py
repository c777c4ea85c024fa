"""The models this package knows, as data: `models.yaml`, validated on load."""

from bcos_sdk.registry._load import Registry, builtin_registry, load_registry
from bcos_sdk.registry.architectures import ArchitectureConfig, NormConfig
from bcos_sdk.registry.schema import InputSpec, ModelSpec, PublishedFigures, WeightsSource

__all__ = [
    "ArchitectureConfig",
    "InputSpec",
    "ModelSpec",
    "NormConfig",
    "PublishedFigures",
    "Registry",
    "WeightsSource",
    "builtin_registry",
    "load_registry",
]
