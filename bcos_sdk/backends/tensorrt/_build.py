"""Building one engine: once for all processes that want it, and complete or not at all."""

from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path

from bcos_sdk._extras import require
from bcos_sdk._files import atomic_write, sha256_of
from bcos_sdk._paths import cache_dir
from bcos_sdk.backends.tensorrt._find import Accept, Engine, anything, find_engine
from bcos_sdk.backends.tensorrt._process import run_worker
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import EngineError, OutputError

__all__ = ["build_once", "was_built_here"]

logger = logging.getLogger("bcos_sdk")


def build_once(
    bundle: Bundle, graph: Path, key: EngineKey, folder: Path, gpu: int | None, accept: Accept = anything
) -> Engine:
    """The engine in that folder, built by the first of all processes that want it; the others wait."""
    require("filelock", purpose="Building engines")
    from filelock import FileLock, Timeout

    plan = folder / f"{key.stem(graph.stem)}.plan"
    locks = cache_dir() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{hashlib.sha256(str(plan.resolve()).encode()).hexdigest()[:16]}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("another process is building an engine of %s: waiting for it", graph.name)
            lock.acquire()
        try:
            found = find_engine([folder], graph.stem, key, accept)
            if not isinstance(found, Engine):
                _build(bundle, graph, key, plan, gpu)
                found = find_engine([folder], graph.stem, key)
        finally:
            lock.release()
    except OSError as error:
        raise OutputError(f"no engine can be written to {folder}: {error}", source=str(folder)) from error
    if isinstance(found, str):
        raise EngineError(f"an engine of {graph.name} was built and cannot be used: {found}", source=graph.name)
    return found


def was_built_here(record: EngineRecord) -> bool:
    """Whether this user built the plan on this machine: a record can be written by anybody."""
    return _mark(record.plan_sha256).is_file()


def _mark(plan_sha256: str) -> Path:
    return cache_dir() / "engines" / "built-here" / plan_sha256


def _build(bundle: Bundle, graph: Path, key: EngineKey, plan: Path, gpu: int | None) -> None:
    job = {
        "task": "build",
        "flavour": key.flavour,
        "graph": str(graph),
        "profile": key.profile,
        "capabilities": key.compute_capabilities if key.flavour == "tensorrt_rtx" else (),
        "tf32": key.tf32,
        "gpu": gpu,
    }
    began = time.monotonic()
    with atomic_write(plan, locked=True) as aside:
        try:
            answer = run_worker({**job, "plan": str(aside)})
        except EngineError as error:
            raise EngineError(f"no engine of {graph.name} was built: {error.message}", source=graph.name) from error
        _check_sources(bundle, graph, key)
        record = EngineRecord(
            key=key,
            plan_sha256=sha256_of(aside),
            size=aside.stat().st_size,
            seconds=round(time.monotonic() - began, 1),
            peak_memory=answer["peak_memory"],
        )
        mark = _mark(record.plan_sha256)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        # No record, no engine: the old one goes before its plan is replaced.
        plan.with_suffix(".json").unlink(missing_ok=True)
    with atomic_write(plan.with_suffix(".json")) as complete:
        complete.write_text(record.model_dump_json(indent=2) + "\n", "utf-8")


def _check_sources(bundle: Bundle, graph: Path, key: EngineKey) -> None:
    """TensorRT read the files minutes after the bundle was opened: they must still be those that the key names."""
    weights = bundle.path / bundle.manifest.weights
    if (sha256_of(graph), sha256_of(weights)) != (key.graph_sha256, key.weights_sha256):
        raise EngineError(
            f"{bundle.path} was changed while an engine of it was built", source=graph.name, hint="Open it again."
        )
