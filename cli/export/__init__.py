"""`bcos-sdk export`: write a registry model, a fine-tuned model or your own network as a bundle."""

from bcos_sdk.cli.export._export_command import export

__all__ = ["export"]
