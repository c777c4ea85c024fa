"""`bcos-sdk export`: write a registry model, a fine-tuned model or your own network as a bundle."""

from bcos_sdk.cli.export._choices import Choices
from bcos_sdk.cli.export._export_command import export
from bcos_sdk.cli.export._own_module import is_factory
from bcos_sdk.cli.export._source import from_factory, from_registry

__all__ = ["Choices", "export", "from_factory", "from_registry", "is_factory"]
