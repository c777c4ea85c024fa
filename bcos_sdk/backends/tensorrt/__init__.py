"""TensorRT: the runtime "tensorrt", and the engines that it builds from the graphs of a bundle.

An *engine* is a TensorRT plan built from one graph. A record beside it says what it was built from and for which GPU.
"""

from bcos_sdk.backends.tensorrt._cache import Engine, find_engine, list_engines
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.backends.tensorrt._execution import GraphedExecution, Profile, choose_profile, scratch_size
from bcos_sdk.backends.tensorrt._flavours import (
    choose_flavour,
    flavour_problem,
    flavour_version,
    flavours_for,
)
from bcos_sdk.backends.tensorrt._graph import EngineGraph
from bcos_sdk.backends.tensorrt._messages import native_logger, new_recorder
from bcos_sdk.backends.tensorrt._obtain import build_engines, key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.backends.tensorrt._runtime import TENSORRT
from bcos_sdk.backends.tensorrt._slot import Slot
from bcos_sdk.backends.tensorrt._source import engine_source
from bcos_sdk.backends.tensorrt._worker import run_worker

__all__ = [
    "TENSORRT",
    "Buffer",
    "Cuda",
    "Engine",
    "EngineGraph",
    "EngineKey",
    "EngineRecord",
    "GraphedExecution",
    "PinnedBuffer",
    "Profile",
    "Slot",
    "build_engines",
    "choose_flavour",
    "choose_profile",
    "engine_source",
    "find_engine",
    "flavour_problem",
    "flavour_version",
    "flavours_for",
    "key_for_gpu",
    "list_engines",
    "native_logger",
    "new_recorder",
    "obtain_engine",
    "run_worker",
    "scratch_size",
]
