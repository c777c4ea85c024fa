"""The models this package knows, as data: `models.yaml`, validated on load."""

from bcos_sdk.contract import InputSpec
from bcos_sdk.registry._labels import LabelSet, load_labels
from bcos_sdk.registry._load import Registry, builtin_registry, load_registry
from bcos_sdk.registry.architectures import ArchitectureConfig, NormConfig
from bcos_sdk.registry.schema import ModelSpec, PublishedFigures, WeightsSource

__all__ = [
    "ArchitectureConfig",
    "InputSpec",
    "LabelSet",
    "ModelSpec",
    "NormConfig",
    "PublishedFigures",
    "Registry",
    "WeightsSource",
    "builtin_registry",
    "load_labels",
    "load_registry",
]
