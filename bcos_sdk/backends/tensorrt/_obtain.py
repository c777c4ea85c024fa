"""Get the engines of a bundle: from its folder, from the cache, or by building them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bcos_sdk._logs import log
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends._pixel_input import pixel_encoding, pixel_shapes
from bcos_sdk.backends.tensorrt._build import build_once
from bcos_sdk.backends.tensorrt._cache import NO_ENGINE, Accept, Engine, accept_own, cached_engines, find_engine
from bcos_sdk.backends.tensorrt._flavours import CAPABILITIES, Flavour, choose_flavour, flavour_version
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.bundle import Bundle, InputShapes
from bcos_sdk.errors import EngineError, OutputError

__all__ = ["build_engines", "key_for_gpu", "obtain_engine"]


def build_engines(
    bundle: Bundle,
    *,
    compute_capabilities: Sequence[str] = (),
    tf32: bool = False,
    progress: Callable[[str], None] = lambda _stage: None,
) -> list[tuple[str, EngineRecord]]:
    """Build the engines of the predict and the explain graph into the bundle; return their file names and records.

    They are built for GPU 0 of this machine, or ahead of time for the given compute capabilities. Engines of this
    user that match already are not built again.
    """
    flavour = choose_flavour(compute_capabilities, bundle.manifest.precision)
    capabilities = tuple(sorted(set(compute_capabilities), key=CAPABILITIES.index))
    built = []
    for graph in bundle.engine_graphs:
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
    """The key of the engine that GPU `gpu` of this machine needs."""
    driver = probe_driver()
    chip = driver.gpus[gpu]
    key = _key(bundle, graph, flavour, (chip.capability,), tf32=tf32)
    if flavour == "tensorrt_rtx":  # it tunes an engine for the GPU and driver when it loads it
        return key
    return key.model_copy(update={"gpu": chip.name, "cuda": driver.cuda, "driver": driver.version})


def obtain_engine(
    bundle: Bundle, graph: Path, keys: Sequence[EngineKey], gpu: int, accept: Accept = accept_own, *, build: bool = True
) -> Engine:
    """Return an engine with one of these keys from the bundle or the cache.

    If there is none, build the one of the first key into the cache and log why; without `build`, raise an error.
    """
    found = _find_existing(bundle, graph, keys, accept)
    if isinstance(found, Engine):
        return found
    if not build:
        raise EngineError(
            f"no engine of {graph.name} fits this GPU, and building one would take minutes: {found}",
            source=graph.name,
            hint='device="auto" builds none. Use device="tensorrt", which builds it, or `bcos-sdk export MODEL --trt`.',
        )
    log.warning("building a TensorRT engine of %s, which takes minutes: %s", graph.name, found)
    try:
        return build_once(bundle, graph, keys[0], cached_engines(), gpu, _own(accept))
    except (EngineError, OutputError) as error:
        message = f"{error.message}; no existing engine fits: {found}"
        raise EngineError(message, source=graph.name, hint=error.hint) from error


def _find_existing(bundle: Bundle, graph: Path, keys: Sequence[EngineKey], accept: Accept) -> Engine | str:
    """`accept` decides about the engines of the bundle. Those of the cache must be of this user in any case."""
    reasons = []
    for key in keys:
        for folder, accepts in ((bundle.engines, accept), (cached_engines(), _own(accept))):
            found = find_engine([folder], graph.stem, key, accepts)
            if isinstance(found, Engine):
                return found
            reasons += [found] if found != NO_ENGINE and key is keys[0] else []
    return "; ".join(reasons) or NO_ENGINE


def _own(accept: Accept) -> Accept:
    return lambda record: accept(record) or accept_own(record)


def _key(bundle: Bundle, graph: Path, flavour: Flavour, capabilities: tuple[str, ...], *, tf32: bool) -> EngineKey:
    manifest = bundle.manifest
    channels, shapes = manifest.input.channels, bundle.input_shapes(graph)
    encoding = pixel_encoding(channels)
    if encoding is not None:
        shapes = pixel_shapes(shapes, encoding)
    return EngineKey(
        graph_sha256=manifest.files[graph.relative_to(bundle.path).as_posix()].sha256,
        weights_sha256=manifest.files[manifest.weights].sha256,
        precision=manifest.precision,
        tf32=tf32,
        channels=channels,
        profiles=_profiles(shapes, flavour),
        flavour=flavour,
        version=flavour_version(flavour),
        compute_capabilities=capabilities,
    )


def _profiles(shapes: InputShapes, flavour: Flavour) -> tuple[InputShapes, ...]:
    """All shapes, and for `tensorrt` one image with one target apart: it chooses kernels for one shape of each profile.

    TensorRT for RTX chooses kernels when it sees the shapes of a run, and a second profile would double the plan.
    """
    if flavour == "tensorrt_rtx":
        return (shapes,)
    return {name: (smallest, smallest, smallest) for name, (smallest, _, _) in shapes.items()}, shapes
