"""The Open Inference Protocol v2 over gRPC, with grpcio: one channel that threads share."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bcos_sdk import errors
from bcos_sdk._extras import require
from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.backends._graph import Arrays, TensorSpec
from bcos_sdk.backends.remote._address import Address
from bcos_sdk.backends.remote._grpc_messages import (
    METHODS,
    infer_request,
    model_request,
    read_config,
    read_infer,
    read_metadata,
)
from bcos_sdk.backends.remote._http_body import largest_answer
from bcos_sdk.backends.remote._options import Remote
from bcos_sdk.backends.remote._retries import Retries, TryAgainError
from bcos_sdk.backends.remote._transport import ModelConfig, ModelMetadata
from bcos_sdk.errors import BcosError, ServerRefusedError, shown

__all__ = ["GrpcTransport"]

_LARGEST_DOCUMENT = 64 << 20
_LARGEST_PEM = 16 << 20
_LONGEST_MESSAGE = 500
_BUSY = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
"""Codes after which a request is repeated. Triton says UNAVAILABLE if its queue is full."""


class GrpcTransport:
    """Requests over gRPC. A request is repeated if the connection fails, or if the server is busy or not ready."""

    def __init__(self, address: Address, options: Remote) -> None:
        require("grpc", purpose="A model behind a gRPC server")
        self._address = address
        self._options = options
        self._retries = Retries(options.retries)
        self._metadata = () if options.token is None else (("authorization", f"Bearer {options.token}"),)
        self._running: set[Any] = set()
        self._lock = threading.Lock()
        self.connections_made = 0
        self._channel = self._make_channel()
        self._channel.subscribe(self._state_changed)

    def metadata(self, model: str) -> ModelMetadata:
        return read_metadata(self._call("ModelMetadata", model_request(model), _LARGEST_DOCUMENT))

    def config(self, model: str) -> ModelConfig | None:
        try:
            message = self._call("ModelConfig", model_request(model), _LARGEST_DOCUMENT)
        except ServerRefusedError:  # the call is an extension of the protocol
            return None
        return read_config(message)

    def golden(self, model: str, largest: int) -> bytes | None:  # noqa: ARG002 - gRPC has no call for files
        return None

    def infer(self, model: str, inputs: Arrays, outputs: Mapping[str, TensorSpec]) -> tuple[Arrays, Mapping[str, str]]:
        request = infer_request(model, inputs, outputs)
        return read_infer(self._call("ModelInfer", request, largest_answer(outputs, binary=True)), outputs)

    def stop(self) -> None:
        self._retries.stop()
        with self._lock:
            running = list(self._running)
        for call in running:
            call.cancel()

    def close(self) -> None:
        self.stop()
        self._channel.close()

    def _call(self, method: str, request: bytes, largest: int) -> bytes:
        return self._retries.run(lambda: self._attempt(method, request, largest))

    def _attempt(self, method: str, request: bytes, largest: int) -> bytes:
        import grpc

        call = None
        try:
            # Without `wait_for_ready`: a server that cannot be reached is an error at once, and the retries wait.
            call = self._channel.unary_unary(METHODS[method]).future(
                request, timeout=self._options.answer_seconds, metadata=self._metadata
            )
            with self._lock:
                self._running.add(call)
            self._retries.check()
            answer: bytes = call.result()
        except grpc.FutureCancelledError:
            self._retries.check()
            raise self._unavailable("the request was cancelled") from None
        except grpc.RpcError as error:
            self._retries.check()
            raise self._fault(error) from error
        except ValueError as error:  # the channel is closed
            self._retries.check()
            raise self._unavailable(str(error)) from error
        finally:
            if call is not None:
                with self._lock:
                    self._running.discard(call)
        if len(answer) > largest:
            raise errors.ServerAnswerError(
                f"{self._address}: an answer has more than the {largest:,} bytes that it can have"
            )
        return answer

    def _fault(self, error: Any) -> Exception:
        """The error for a failed call, or that it is worth repeating."""
        code: str = error.code().name
        message = f"{self._address} answered {code}: {shown(str(error.details()), quote=False, most=_LONGEST_MESSAGE)}"
        source = str(self._address)
        if code in _BUSY:
            return TryAgainError(errors.ServerUnavailableError(message, source=source))
        if code == "DEADLINE_EXCEEDED":
            return errors.DeadlineError(
                f"{self._address} did not answer within {self._options.answer_seconds:g} s",
                hint="Send fewer images at once, or pass Remote(answer_seconds=…).",
            )
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            hint = "Pass Remote(token=…) with the bearer token of the server."
            return errors.ServerRefusedError(message, source=source, hint=hint)
        if code in ("NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED", "FAILED_PRECONDITION", "OUT_OF_RANGE"):
            return errors.ServerRefusedError(message, source=source, hint="Check the name of the model in the address.")
        return errors.ServerError(message, source=source)

    def _unavailable(self, reason: str) -> BcosError:
        return errors.ServerUnavailableError(f"{self._address} cannot be reached: {reason}", source=str(self._address))

    def _state_changed(self, state: Any) -> None:
        if state.name == "READY":
            self.connections_made += 1

    def _make_channel(self) -> Any:
        import grpc

        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", (1 << 31) - 1),
            ("grpc.enable_retries", 0),  # they are done here, with a bound and a log
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.min_reconnect_backoff_ms", int(self._options.connect_seconds * 1000)),
            ("grpc.enable_http_proxy", 0),
        ]
        if not self._address.is_encrypted:
            return grpc.insecure_channel(self._address.server, options)
        roots = None
        if self._options.ca_file is not None:
            path = Path(self._options.ca_file)
            with typed_errors(lambda reason: errors.InputError(f"cannot read {path}: {reason}", source="ca_file")):
                roots = read_bounded(path, _LARGEST_PEM)
        return grpc.secure_channel(self._address.server, grpc.ssl_channel_credentials(roots), options)
