"""From a bundle to the engines that a GPU needs: at hand, or built with a line that says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from bcos_sdk._paths import cache_dir
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends.tensorrt._build import build_once
from bcos_sdk.backends.tensorrt._find import Accept, Engine, anything, find_engine
from bcos_sdk.backends.tensorrt._flavours import CAPABILITIES, Flavour, choose_flavour, version_of
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import EngineError, OutputError

__all__ = ["build_engines", "key_for_gpu", "obtain_engine"]

logger = logging.getLogger("bcos_sdk")


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
    capabilities = tuple(sorted(set(compute_capabilities), key=CAPABILITIES.index))
    built = []
    for graph in (bundle.predict_graph, bundle.explain_graph):
        if capabilities:
            key, gpu = _key(bundle, graph, flavour, capabilities, tf32=tf32), None
        else:
            key, gpu = key_for_gpu(bundle, graph, flavour, 0, tf32=tf32), 0
        found = find_engine([bundle.engines], graph.stem, key)
        if isinstance(found, str):
            progress(f"building an engine of {graph.name}: {found}")
            found = build_once(bundle, graph, key, bundle.engines, gpu)
        built.append((f"{found.record.key.stem(graph.stem)}.plan", found.record))
    return built


def key_for_gpu(bundle: Bundle, graph: Path, flavour: Flavour, gpu: int, *, tf32: bool) -> EngineKey:
    """The engine that the GPU at that place needs."""
    driver = probe_driver()
    chip = driver.gpus[gpu]
    key = _key(bundle, graph, flavour, (chip.capability,), tf32=tf32)
    if flavour == "tensorrt_rtx":  # it finishes its engines for the very GPU and driver when they are loaded
        return key
    return key.model_copy(update={"gpu": chip.name, "cuda": driver.cuda, "driver": driver.version})


def obtain_engine(
    bundle: Bundle, graph: Path, keys: Sequence[EngineKey], gpu: int, accept: Accept = anything, *, build: bool = True
) -> Engine:
    """An engine with one of these keys from the bundle or the cache, else one built into the cache if it may be.

    The first key is built; a line in the log says why.
    """
    found = _at_hand(bundle, graph, keys, accept)
    if isinstance(found, Engine):
        return found
    if not build:
        raise EngineError(f"no engine of {graph.name} is at hand, and building one takes minutes: {found}")
    logger.warning("building a TensorRT engine of %s, which takes minutes: %s", graph.name, found)
    try:
        return build_once(bundle, graph, keys[0], _cached_engines(), gpu, accept)
    except (EngineError, OutputError) as error:
        raise EngineError(f"{error.message}; no engine at hand fits: {found}", source=graph.name) from error


def _at_hand(bundle: Bundle, graph: Path, keys: Sequence[EngineKey], accept: Accept) -> Engine | str:
    folders = [bundle.engines, _cached_engines()]
    found = [find_engine(folders, graph.stem, key, accept) for key in keys]
    return next((one for one in found if isinstance(one, Engine)), found[0])


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
