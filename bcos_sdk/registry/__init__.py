"""The model registry: `models.yaml`, validated when it is loaded."""

from bcos_sdk.contract import InputSpec
from bcos_sdk.registry._registry import Registry, builtin_registry, load_registry
from bcos_sdk.registry.architectures import ArchitectureConfig, NormConfig
from bcos_sdk.registry.schema import (
    LabelSet,
    ModelSpec,
    PackagedWeights,
    PublishedFigures,
    WeightsSource,
    load_labels,
)

__all__ = [
    "ArchitectureConfig",
    "InputSpec",
    "LabelSet",
    "ModelSpec",
    "NormConfig",
    "PackagedWeights",
    "PublishedFigures",
    "Registry",
    "WeightsSource",
    "builtin_registry",
    "load_labels",
    "load_registry",
]
