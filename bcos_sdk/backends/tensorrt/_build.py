"""Build one engine: once for all processes that need it, and with an atomic write."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from bcos_sdk._files import atomic_write, sha256_of
from bcos_sdk._logs import log
from bcos_sdk._private_folders import private_cache
from bcos_sdk.backends.tensorrt._cache import Accept, Engine, accept_own, cached_engines, find_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.backends.tensorrt._seal import own_key, sealed
from bcos_sdk.backends.tensorrt._worker import run_worker
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import EngineError, OutputError

__all__ = ["build_once"]


def build_once(
    bundle: Bundle, graph: Path, key: EngineKey, folder: Path, gpu: int | None, accept: Accept = accept_own
) -> Engine:
    """Return the engine from the folder. If there is none, one process builds it while the others wait."""
    from filelock import FileLock, Timeout

    plan = folder / f"{key.stem(graph.stem)}.plan"
    try:
        locks = private_cache("locks")
        if folder == cached_engines():
            private_cache(folder.name)
        else:
            folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{hashlib.sha256(str(plan.resolve()).encode()).hexdigest()[:16]}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.warning("waiting for another process that builds an engine of %s", graph.name)
            lock.acquire()
        try:
            found = find_engine([folder], graph.stem, key, accept)
            if not isinstance(found, Engine):
                _build(bundle, graph, key, plan, gpu)
                found = find_engine([folder], graph.stem, key)
        finally:
            lock.release()
    except OSError as error:
        raise OutputError(
            f"cannot write an engine to {folder}: {error}",
            source=str(folder),
            hint="Check the permissions and the free space of the folder.",
        ) from error
    if isinstance(found, str):
        raise EngineError(f"the engine of {graph.name} was built but cannot be used: {found}", source=graph.name)
    return found


def _build(bundle: Bundle, graph: Path, key: EngineKey, plan: Path, gpu: int | None) -> None:
    job = {
        "task": "build",
        "flavour": key.flavour,
        "graph": str(graph),
        "channels": key.channels,
        "profiles": key.profiles,
        "capabilities": key.compute_capabilities if key.flavour == "tensorrt_rtx" else (),
        "tf32": key.tf32,
        "gpu": gpu,
    }
    seal_key = own_key()  # fails now, not after the build
    began = time.monotonic()
    with atomic_write(plan, locked=True) as partial:
        try:
            reply = run_worker({**job, "plan": str(partial)})
        except EngineError as error:
            raise EngineError(f"cannot build an engine of {graph.name}: {error.message}", source=graph.name) from error
        _check_sources(bundle, graph, key)
        # The child process has hashed the plan that it built. The file could have been replaced since then.
        record = EngineRecord(
            key=key,
            plan_sha256=reply["plan_sha256"],
            size=reply["size"],
            seconds=round(time.monotonic() - began, 1),
            peak_memory=reply["peak_memory"],
        )
        # The old record is removed before its plan is replaced, so that no record describes another plan.
        plan.with_suffix(".json").unlink(missing_ok=True)
    with atomic_write(plan.with_suffix(".json")) as partial:
        partial.write_text(sealed(record, seal_key).model_dump_json(indent=2) + "\n", "utf-8")


def _check_sources(bundle: Bundle, graph: Path, key: EngineKey) -> None:
    """Check that graph and weights did not change since the bundle was opened. TensorRT reads them minutes later."""
    weights = bundle.path / bundle.manifest.weights
    if (sha256_of(graph), sha256_of(weights)) != (key.graph_sha256, key.weights_sha256):
        raise EngineError(
            f"{bundle.path} was changed while an engine was built from it",
            source=graph.name,
            hint="Open the bundle again.",
        )
