"""TensorRT: the runtime "tensorrt", and the engines that it builds from the graphs of a bundle.

An *engine* is a TensorRT plan built from one graph. A record beside it says what it was built from and for which GPU.
"""

from bcos_sdk.backends.tensorrt._cache import Engine, find_engine, list_engines
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.backends.tensorrt._flavours import (
    choose_flavour,
    flavour_problem,
    flavour_version,
)
from bcos_sdk.backends.tensorrt._graph import EngineGraph, Profile, choose_profile, logger_for
from bcos_sdk.backends.tensorrt._obtain import build_engines, key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.backends.tensorrt._runtime import TENSORRT
from bcos_sdk.backends.tensorrt._worker import run_worker

__all__ = [
    "TENSORRT",
    "Buffer",
    "Cuda",
    "Engine",
    "EngineGraph",
    "EngineKey",
    "EngineRecord",
    "PinnedBuffer",
    "Profile",
    "build_engines",
    "choose_flavour",
    "choose_profile",
    "find_engine",
    "flavour_problem",
    "flavour_version",
    "key_for_gpu",
    "list_engines",
    "logger_for",
    "obtain_engine",
    "run_worker",
]
