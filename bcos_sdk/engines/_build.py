"""Building engines: once for all processes that want the same one, and complete or not at all."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bcos_sdk._aside import written_aside
from bcos_sdk._driver import probe_driver
from bcos_sdk._extras import require
from bcos_sdk._hashing import sha256_of
from bcos_sdk._paths import cache_dir
from bcos_sdk.bundle import Bundle
from bcos_sdk.engines._find import Engine, find_engine
from bcos_sdk.engines._flavours import Flavour, choose_flavour, version_of
from bcos_sdk.engines._process import run_worker
from bcos_sdk.engines._record import EngineKey, EngineRecord
from bcos_sdk.errors import EngineError, OutputError

__all__ = ["build_engines", "is_at_hand", "key_for_gpu", "obtain_engine"]

logger = logging.getLogger("bcos_sdk")

_HOUR = 3600.0


def build_engines(
    bundle: Bundle,
    *,
    compute_capabilities: Sequence[str] = (),
    tf32: bool = False,
    progress: Callable[[str], None] = lambda _stage: None,
) -> list[tuple[str, EngineRecord]]:
    """Engines of both graphs in the bundle's folder `engines`, with their names.

    They are built for GPU 0 of this machine, or ahead of time for these compute capabilities.
    """
    flavour = choose_flavour(compute_capabilities, bundle.manifest.precision)
    built = []
    for graph in (bundle.predict_graph, bundle.explain_graph):
        if compute_capabilities:
            key, gpu = _key(bundle, graph, flavour, tuple(compute_capabilities), tf32=tf32), None
        else:
            key, gpu = key_for_gpu(bundle, graph, flavour, 0, tf32=tf32), 0
        folder = bundle.engines
        reason = find_engine([folder], graph.stem, key)
        if isinstance(reason, Engine):
            record = reason.record
        else:
            progress(f"building an engine of {graph.name}")
            record = _build_once(graph, key, folder, gpu).record
        built.append((f"{key.stem(graph.stem)}.plan", record))
    return built


def key_for_gpu(bundle: Bundle, graph: Path, flavour: Flavour, gpu: int, *, tf32: bool) -> EngineKey:
    """The engine that the GPU at that place needs."""
    driver = probe_driver()
    chip = driver.gpus[gpu]
    key = _key(bundle, graph, flavour, (chip.capability,), tf32=tf32)
    if flavour == "tensorrt_rtx":  # it finishes its engines for the very GPU and driver when they are loaded
        return key
    return key.model_copy(update={"gpu": chip.name, "cuda": driver.cuda, "driver": driver.version})


def obtain_engine(bundle: Bundle, graph: Path, keys: Sequence[EngineKey], gpu: int) -> Engine:
    """An engine with one of these keys from the bundle or the cache, else one built into the cache.

    The first key is built; a line in the log says why.
    """
    found = _at_hand(bundle, graph, keys)
    if isinstance(found, Engine):
        return found
    logger.warning("building a TensorRT engine of %s, which takes minutes: %s", graph.name, found)
    try:
        return _build_once(graph, keys[0], _cached_engines(), gpu)
    except (EngineError, OutputError) as error:
        raise EngineError(f"{error.message}; no engine at hand fits: {found}", source=graph.name) from error


def is_at_hand(bundle: Bundle, graph: Path, keys: Sequence[EngineKey]) -> bool:
    """Whether `obtain_engine` would find one."""
    return isinstance(_at_hand(bundle, graph, keys), Engine)


def _at_hand(bundle: Bundle, graph: Path, keys: Sequence[EngineKey]) -> Engine | str:
    folders = [bundle.engines, _cached_engines()]
    found = [find_engine(folders, graph.stem, key) for key in keys]
    return next((one for one in found if isinstance(one, Engine)), next(iter(found), "none was looked for"))


def _cached_engines() -> Path:
    return cache_dir() / "engines"


def _key(bundle: Bundle, graph: Path, flavour: Flavour, capabilities: tuple[str, ...], *, tf32: bool) -> EngineKey:
    manifest = bundle.manifest
    return EngineKey(
        graph_sha256=manifest.files[graph.relative_to(bundle.path).as_posix()].sha256,
        weights_sha256=manifest.files[manifest.weights].sha256,
        precision=manifest.precision,
        tf32=tf32,
        profile=bundle.input_shapes(graph),
        flavour=flavour,
        version=version_of(flavour),
        compute_capabilities=capabilities,
    )


def _build_once(graph: Path, key: EngineKey, folder: Path, gpu: int | None) -> Engine:
    """Processes that want the same engine wait for the first of them."""
    require("filelock", purpose="Building engines")
    from filelock import FileLock

    plan = folder / f"{key.stem(graph.stem)}.plan"
    locks = cache_dir() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{hashlib.sha256(str(plan.resolve()).encode()).hexdigest()[:16]}.lock"):
            found = find_engine([folder], graph.stem, key)
            if not isinstance(found, Engine):
                _remove_leftovers(folder)
                _build(graph, key, plan, gpu)
                found = find_engine([folder], graph.stem, key)
    except OSError as error:
        raise OutputError(f"no engine can be written to {folder}: {error}", source=str(folder)) from error
    if isinstance(found, str):
        raise EngineError(f"an engine of {graph.name} was built and cannot be used: {found}", source=graph.name)
    return found


def _build(graph: Path, key: EngineKey, plan: Path, gpu: int | None) -> None:
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
    with written_aside(plan) as aside:
        try:
            answer = run_worker({**job, "plan": str(aside)})
        except EngineError as error:
            raise EngineError(f"no engine of {graph.name} was built: {error.message}", source=graph.name) from error
        record = EngineRecord(
            key=key,
            plan_sha256=sha256_of(aside),
            size=aside.stat().st_size,
            seconds=round(time.monotonic() - began, 1),
            peak_memory=answer["peak_memory"],
        )
        # No record, no engine: the old one goes before its plan is replaced.
        plan.with_suffix(".json").unlink(missing_ok=True)
    with written_aside(plan.with_suffix(".json")) as aside:
        aside.write_text(record.model_dump_json(indent=2) + "\n", "utf-8")


def _remove_leftovers(folder: Path) -> None:
    """What a killed build left; nobody writes a plan for an hour."""
    for partial in folder.glob(".*.partial"):
        if time.time() - partial.stat().st_mtime > _HOUR:
            partial.unlink(missing_ok=True)
