"""Write bundles as model repositories of NVIDIA's Triton Inference Server: text and files, no package of it."""

from bcos_sdk.triton._repository import ServedModel, check_repository, write_repository
from bcos_sdk.triton._settings import Flavour, InstanceDevice, RepositorySettings
from bcos_sdk.triton._tensors import Tensor

__all__ = [
    "Flavour",
    "InstanceDevice",
    "RepositorySettings",
    "ServedModel",
    "Tensor",
    "check_repository",
    "write_repository",
]
