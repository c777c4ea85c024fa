"""The kernels that TensorRT for RTX compiles when an engine runs, kept on disk for the next process.

They are code, so the file is treated as an engine is: it lies in this user's cache folder, its record has its hash and
a seal, and both are written atomically. A file that does not fit is ignored: TensorRT then compiles again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bcos_sdk._files import atomic_write, read_plain
from bcos_sdk._logs import log
from bcos_sdk._private_folders import private_cache
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends.tensorrt._cache import cached_engines
from bcos_sdk.backends.tensorrt._record import CacheRecord, EngineRecord
from bcos_sdk.backends.tensorrt._seal import is_sealed, own_key, sealed
from bcos_sdk.errors import BcosError

__all__ = ["RuntimeCache", "load_kernels", "save_kernels"]

_LARGEST_RECORD = 1 << 16


class RuntimeCache:
    """The configuration of an execution context of TensorRT for RTX, with the compiled kernels of earlier processes.

    Kernels for given shapes are compiled before they run (the eager strategy), so the first run of a shape has the
    speed of later ones afterwards, and no thread compiles in the background.
    """

    def __init__(self, trt: Any, engine: Any, record: EngineRecord, gpu: int, *, cuda_graphs: bool = False) -> None:
        self._wanted = wanted_record(record, gpu)
        self._ran: set[object] = set()
        self._saved_shapes = 0
        config = self.config = engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        if cuda_graphs:
            config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        self._cache = config.create_runtime_cache()
        self._saved = ""
        kernels = load_kernels(self._wanted)
        if kernels is not None and self._cache.deserialize(kernels):
            self._saved = hashlib.sha256(kernels).hexdigest()
        config.set_runtime_cache(self._cache)

    def note(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Remember that these shapes have run: TensorRT may have compiled kernels for them."""
        self._ran.add(tuple(sorted(shapes.items())))

    def save(self) -> None:
        """Write the kernels to disk if there are new ones. It takes too long for a call, so it is done on closing."""
        if len(self._ran) == self._saved_shapes:
            return
        self._saved_shapes = len(self._ran)
        try:
            kernels = self._cache.serialize()
            contents = b"" if kernels is None else bytes(memoryview(kernels))
            digest = hashlib.sha256(contents).hexdigest()
            if contents and digest != self._saved:
                save_kernels(self._wanted, contents)
                self._saved = digest
        except (OSError, BcosError, RuntimeError) as error:  # the results do not depend on it
            log.warning("compiled kernels are not kept for the next start: %s", error)


def wanted_record(engine: EngineRecord, gpu: int) -> CacheRecord:
    """The record of the kernels that fit this engine on this GPU with this driver. Hash and size are still unknown."""
    driver = probe_driver()
    return CacheRecord(
        plan_sha256=engine.plan_sha256, gpu=driver.gpus[gpu].name, driver=driver.version, sha256="", size=0
    )


def load_kernels(wanted: CacheRecord) -> bytes | None:
    """The kernels that this user's processes have saved for this engine, GPU and driver; None if there are none."""
    path = _path(wanted)
    with contextlib.suppress(OSError, ValidationError):
        if path.parent.is_symlink():
            return None
        record = CacheRecord.model_validate_json(read_plain(path.with_suffix(".json"), _LARGEST_RECORD))
        same = record.model_copy(update={"sha256": "", "size": 0, "seal": ""}) == wanted
        if same and is_sealed(record):
            kernels = read_plain(path, record.size)
            if hashlib.sha256(kernels).hexdigest() == record.sha256:
                return kernels
    return None


def save_kernels(wanted: CacheRecord, kernels: bytes) -> None:
    """Write the kernels and their record. Each write is atomic; a pair that does not match is ignored on loading."""
    path, key = _path(wanted), own_key()
    private_cache(path.parent.name)
    found = {"sha256": hashlib.sha256(kernels).hexdigest(), "size": len(kernels)}
    with atomic_write(path) as partial:
        partial.write_bytes(kernels)
    with atomic_write(path.with_suffix(".json")) as partial:
        partial.write_text(sealed(wanted.model_copy(update=found), key).model_dump_json(indent=2) + "\n", "utf-8")


def _path(wanted: CacheRecord) -> Path:
    folder = cached_engines()
    return folder.with_name("kernels") / f"{wanted.stem('rtx')}.cache"
