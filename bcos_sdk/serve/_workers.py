"""Several processes that serve one port. Each accepts requests only when its model is ready."""

from __future__ import annotations

import signal
import socket

from uvicorn import Config
from uvicorn.supervisors import Multiprocess

from bcos_sdk._logs import log
from bcos_sdk.errors import ModelError

__all__ = ["run_workers"]


class _Workers(Multiprocess):
    """Remembers the signal that ended it. A worker that dies is replaced, unless none has ever been ready."""

    ended_by: signal.Signals | None = None
    _was_ready = False

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.child_conn.close()  # else the death of a worker would not end the wait for its answer
        alive = [process for process in self.processes if process.process.is_alive()]
        if not self._was_ready:
            patience = self.config.timeout_worker_healthcheck
            self._was_ready = any(process.is_ready(patience) for process in alive)
        if not self._was_ready and len(alive) < len(self.processes):
            log.error("a worker died before its model was ready")  # the next one would die as well
            self.should_exit.set()
            return
        super().keep_subprocess_alive()

    def handle_int(self) -> None:
        self.ended_by = signal.SIGINT
        super().handle_int()

    def handle_term(self) -> None:
        self.ended_by = signal.SIGTERM
        super().handle_term()


def run_workers(config: Config, listener: socket.socket) -> None:
    """Serve until a signal, and raise it again when all workers have ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    workers = _Workers(config, sockets=[listener])
    try:
        workers.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if workers.ended_by is None:
        raise ModelError("the workers cannot serve the model", hint="The messages above say why.")
    signal.raise_signal(workers.ended_by)
