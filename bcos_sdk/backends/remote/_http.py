"""The Open Inference Protocol v2 over HTTP, with urllib3: a pool of connections that threads share."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from bcos_sdk import errors
from bcos_sdk._extras import require
from bcos_sdk._open_inference import BINARY_EXTENSION, HEADER_LENGTH
from bcos_sdk._untrusted import parse_json, typed_errors
from bcos_sdk.backends._graph import Arrays, TensorSpec
from bcos_sdk.backends.remote._address import Address
from bcos_sdk.backends.remote._http_body import Body, largest_answer, read_answer, texts_of, write_request
from bcos_sdk.backends.remote._options import Remote
from bcos_sdk.backends.remote._retries import Retries, TryAgainError
from bcos_sdk.backends.remote._transport import ModelConfig, ModelMetadata, Port
from bcos_sdk.errors import BcosError, shown

__all__ = ["HttpTransport"]

_BUSY = (429, 502, 503)
"""Statuses after which a request is repeated. 504 is not among them: the server has computed for its full time."""
_PART = 1 << 18
_LARGEST_DOCUMENT = 64 << 20
_LARGEST_ERROR = 1 << 16
_LONGEST_MESSAGE = 500


class HttpTransport:
    """Requests over HTTP. A request is repeated if the connection fails, or if the server is busy or not ready."""

    def __init__(self, address: Address, options: Remote) -> None:
        require("urllib3", purpose="A model behind a server")
        self._address = address
        self._options = options
        self._retries = Retries(options.retries)
        self._binary: bool | None = None
        self._open: WeakSet[Any] = WeakSet()
        self.connections_made = 0
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "bcos-sdk"}
        if options.token is not None:
            self._headers["Authorization"] = f"Bearer {options.token}"
        self._pool = self._make_pool()

    def metadata(self, model: str) -> ModelMetadata:
        document = self._document(self._address.path(model))
        with typed_errors(lambda reason: self._invalid(f"the metadata of {model} are not valid: {reason}")):
            return ModelMetadata(
                _ports(document["inputs"]), _ports(document["outputs"]), texts_of(document.get("parameters"))
            )

    def config(self, model: str) -> ModelConfig | None:
        try:
            document = self._document(self._address.path(model, "config"))
        except errors.ServerRefusedError:
            return None
        with typed_errors(lambda reason: self._invalid(f"the configuration of {model} is not valid: {reason}")):
            stated = document.get("parameters") or {}
            parameters = {str(name): str(one["string_value"]) for name, one in stated.items()}
            return ModelConfig(int(document.get("max_batch_size", 0)), parameters)

    def golden(self, model: str, largest: int) -> bytes | None:
        try:
            body, _ = self._call("GET", self._address.path(model, "golden"), largest=largest)
        except errors.ServerRefusedError:
            return None
        return body

    def infer(self, model: str, inputs: Arrays, outputs: Mapping[str, TensorSpec]) -> tuple[Arrays, Mapping[str, str]]:
        binary = self._takes_binary()
        parts, headers = write_request(inputs, outputs, binary=binary)
        body, answered = self._call(
            "POST",
            self._address.path(model, "infer"),
            body=parts,
            headers=headers,
            largest=largest_answer(outputs, binary=binary),
        )
        return read_answer(body, answered.get(HEADER_LENGTH), outputs)

    def stop(self) -> None:
        self._retries.stop()
        for connection in list(self._open):
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._retries.stop()
        self._pool.close()

    def _takes_binary(self) -> bool:
        if self._binary is None:
            extensions = self._document(f"{self._address.prefix}/v2").get("extensions")
            self._binary = isinstance(extensions, list) and BINARY_EXTENSION in extensions
        return self._binary

    def _document(self, path: str) -> dict[str, Any]:
        body, _ = self._call("GET", path, largest=_LARGEST_DOCUMENT)
        with typed_errors(lambda reason: self._invalid(f"{path} is not JSON: {reason}")):
            document = parse_json(body)
            if not isinstance(document, dict):
                raise ValueError("it is no object")
            return document

    def _call(
        self, method: str, path: str, *, largest: int, body: Body | None = None, headers: dict[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """The body and the headers of a successful answer. Other answers are errors."""
        return self._retries.run(lambda: self._attempt(method, path, body, self._headers | (headers or {}), largest))

    def _attempt(
        self, method: str, path: str, body: Body | None, headers: dict[str, str], largest: int
    ) -> tuple[bytes, Mapping[str, str]]:
        end = time.monotonic() + self._options.answer_seconds
        with self._typed_failures():
            answer = self._pool.urlopen(
                method,
                path,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            is_good = answer.status == 200
            try:
                contents = self._read(answer, largest, end) if is_good else answer.read(_LARGEST_ERROR)
                if is_good or len(contents) < _LARGEST_ERROR:
                    answer.release_conn()
            finally:
                answer.close()  # closes the connection unless it was released
        lowered = {name.lower(): value for name, value in answer.headers.items()}
        if not is_good:
            raise self._fault(answer.status, contents, lowered)
        return contents, lowered

    def _read(self, answer: Any, largest: int, end: float) -> bytes:
        """The body in parts, so that neither its size nor a slow server is unbounded."""
        parts: list[bytes] = []
        size = 0
        while part := answer.read(_PART):
            parts.append(part)
            size += len(part)
            if size > largest:
                raise self._invalid(f"an answer has more than the {largest:,} bytes that it can have")
            if time.monotonic() > end:
                raise self._late()
        return b"".join(parts)

    @contextlib.contextmanager
    def _typed_failures(self) -> Iterator[None]:
        """What urllib3 and the socket raise becomes an error of this package."""
        import urllib3.exceptions as failures

        try:
            yield
        except (BcosError, TryAgainError):
            raise
        except (failures.SSLError, failures.LocationParseError) as error:
            raise self._unreachable(error, retryable=False) from error
        except failures.ConnectTimeoutError as error:
            raise TryAgainError(self._unreachable(error)) from error
        except failures.NewConnectionError as error:  # in urllib3 a kind of timeout
            raise TryAgainError(self._unreachable(error)) from error
        except (failures.TimeoutError, TimeoutError) as error:
            self._retries.check()
            raise self._late() from error
        except (failures.HTTPError, OSError) as error:
            raise TryAgainError(self._unreachable(error)) from error

    def _fault(self, status: int, contents: bytes, headers: Mapping[str, str]) -> Exception:
        """The error for an answer with this status, or that the request is worth repeating."""
        message = f"{self._address} answered {status}: {_message_of(contents)}"
        if status in _BUSY:
            after = headers.get("retry-after", "")
            error = errors.ServerUnavailableError(message, source=str(self._address))
            return TryAgainError(error, float(after) if after.isdecimal() and len(after) < 9 else None)
        if status in (408, 504):
            return errors.DeadlineError(message, hint="Send fewer images at once, or let the server take longer.")
        if status in (401, 403):
            return self._refused(message, "Pass Remote(token=…) with the bearer token of the server.")
        if status == 404:
            return self._refused(message, "Check the name of the model in the address.")
        if status == 413:
            return self._refused(message, "Create the client with a smaller max_batch, or let the server take more.")
        if 300 <= status < 500:
            return self._refused(message, None)
        return errors.ServerError(message, source=str(self._address))

    def _refused(self, message: str, hint: str | None) -> BcosError:
        return errors.ServerRefusedError(message, source=str(self._address), hint=hint)

    def _unreachable(self, error: Exception, *, retryable: bool = True) -> BcosError:
        reason = shown(str(error.__cause__ or error), quote=False)
        return errors.ServerUnavailableError(
            f"{self._address} cannot be reached: {reason}", source=str(self._address), retryable=retryable
        )

    def _late(self) -> BcosError:
        return errors.DeadlineError(
            f"{self._address} did not answer within {self._options.answer_seconds:g} s",
            hint="Send fewer images at once, or pass Remote(answer_seconds=…).",
        )

    def _invalid(self, message: str) -> BcosError:
        return errors.ServerAnswerError(f"{self._address}: {message}", source=str(self._address))

    def _make_pool(self) -> Any:
        import urllib3

        options: dict[str, Any] = {
            "maxsize": self._options.connections,
            "block": True,
            "timeout": urllib3.Timeout(connect=self._options.connect_seconds, read=self._options.answer_seconds),
        }
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        if self._address.is_encrypted:
            if self._options.ca_file is not None:
                options["ca_certs"] = os.fspath(self._options.ca_file)
            pool: Any = urllib3.HTTPSConnectionPool(host, self._address.port, **options)
        else:
            pool = urllib3.HTTPConnectionPool(host, self._address.port, **options)
        transport = self

        class Watched(pool.ConnectionCls):  # type: ignore[misc]
            """A connection that `stop` can end."""

            def connect(self) -> None:
                super().connect()
                transport.connections_made += 1
                transport._open.add(self)

        pool.ConnectionCls = Watched
        return pool


def _ports(listed: Any) -> dict[str, Port]:
    return {str(one["name"]): (str(one["datatype"]), tuple(int(side) for side in one["shape"])) for one in listed}


def _message_of(contents: bytes) -> str:
    """The text of the error in an answer, as short as it can be shown."""
    try:
        text = json.loads(contents)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = contents.decode("utf-8", "replace").strip() or "no message"
    return shown(str(text), quote=False, most=_LONGEST_MESSAGE)
