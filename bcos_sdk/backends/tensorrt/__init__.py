"""TensorRT engines of a bundle's graphs: built on the GPU at hand or ahead of time, kept with their records."""

from bcos_sdk.backends.tensorrt._build import was_built_here
from bcos_sdk.backends.tensorrt._find import Accept, Engine, anything, find_engine, list_engines
from bcos_sdk.backends.tensorrt._flavours import Flavour, choose_flavour, flavour_problem, installed_flavours
from bcos_sdk.backends.tensorrt._obtain import build_engines, key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord

__all__ = [
    "Accept",
    "Engine",
    "EngineKey",
    "EngineRecord",
    "Flavour",
    "anything",
    "build_engines",
    "choose_flavour",
    "find_engine",
    "flavour_problem",
    "installed_flavours",
    "key_for_gpu",
    "list_engines",
    "obtain_engine",
    "was_built_here",
]
