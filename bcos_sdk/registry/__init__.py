"""The model registry: `models.yaml`, validated when it is loaded."""

from bcos_sdk.contract import InputSpec
from bcos_sdk.registry._derive import architecture_keys, derive, parse_settings
from bcos_sdk.registry._label_files import read_labels
from bcos_sdk.registry._registry import (
    REGISTRY_VARIABLE,
    Registry,
    builtin_registry,
    load_registry,
    model_registry,
)
from bcos_sdk.registry.architectures import ArchitectureConfig, NormConfig
from bcos_sdk.registry.schema import (
    LabelSet,
    LocalWeights,
    ModelSpec,
    PackagedWeights,
    PublishedFigures,
    WeightsSource,
    load_labels,
)

__all__ = [
    "REGISTRY_VARIABLE",
    "ArchitectureConfig",
    "InputSpec",
    "LabelSet",
    "LocalWeights",
    "ModelSpec",
    "NormConfig",
    "PackagedWeights",
    "PublishedFigures",
    "Registry",
    "WeightsSource",
    "architecture_keys",
    "builtin_registry",
    "derive",
    "load_labels",
    "load_registry",
    "model_registry",
    "parse_settings",
    "read_labels",
]
