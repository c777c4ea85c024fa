"""One model behind HTTP on one machine: `bcos-sdk serve`. Needs the extra `serve`; nothing else imports this room."""

from bcos_sdk.serve._app import create_app
from bcos_sdk.serve._server import run_server
from bcos_sdk.serve._settings import ServeSettings

__all__ = ["ServeSettings", "create_app", "run_server"]
