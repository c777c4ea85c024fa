"""`bcos-sdk predict`: classify images, explain the classes, and keep a record of what is finished."""

from bcos_sdk.cli.predict._predict_command import predict

__all__ = ["predict"]
