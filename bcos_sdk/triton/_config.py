"""The configuration of a model on Triton, config.pbtxt. Everything is explicit: Triton need not complete it."""

from __future__ import annotations

from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import EXPLAIN_SUFFIX, MANIFEST_PARAMETER, MOST_TARGETS_PARAMETER, TARGETS
from bcos_sdk.triton._graphs import MODEL_FILE
from bcos_sdk.triton._settings import InstanceDevice, RepositorySettings
from bcos_sdk.triton._tensors import Tensor, input_tensors, output_tensors
from bcos_sdk.triton._text_format import Message, Word, text_format

__all__ = ["CONFIG", "PLAN_FILE", "PYTHON_FILE", "VERSION", "config_of", "largest_batch", "largest_targets"]

CONFIG, PLAN_FILE, PYTHON_FILE, VERSION = "config.pbtxt", "model.plan", "model.py", "1"
_FILES = {"onnxruntime": MODEL_FILE, "tensorrt": PLAN_FILE, "python": PYTHON_FILE}
_KINDS: dict[InstanceDevice, str] = {"auto": "KIND_AUTO", "cpu": "KIND_CPU", "gpu": "KIND_GPU"}
_PROFILES = ("0", "1")
"""The optimization profiles of a plan, as `bcos_sdk.triton._plans` makes them."""


def largest_batch(manifest: Manifest, settings: RepositorySettings) -> int:
    """The largest batch of both models. The export has checked no larger one than its own."""
    return min(manifest.max_batch, settings.max_batch or manifest.max_batch)


def largest_targets(manifest: Manifest, settings: RepositorySettings) -> int:
    """The most targets of one image."""
    return settings.max_targets or manifest.max_batch


def config_of(name: str, manifest: Manifest, settings: RepositorySettings, *, explains: bool) -> str:
    """The text of config.pbtxt of the model that predicts, or of the one that explains."""
    inputs = input_tensors(manifest, explains=explains, pixels=settings.pixels)
    outputs = output_tensors(manifest, explains=explains, weights=settings.weights)
    batch = largest_batch(manifest, settings)
    message: Message = {
        "name": name + (EXPLAIN_SUFFIX if explains else ""),
        "backend": settings.flavour,
        "default_model_filename": _FILES[settings.flavour],
        "max_batch_size": batch,
        "input": [_described(one) for one in inputs],
        "output": [_described(one) for one in outputs],
        "version_policy": {"specific": {"versions": [int(VERSION)]}},
        "instance_group": [_instances(settings)],
        "dynamic_batching": {
            "max_queue_delay_microseconds": settings.queue_delay,
            "default_queue_policy": {
                "timeout_action": Word("REJECT"),
                "default_timeout_microseconds": round(settings.timeout * 1e6),
                "allow_timeout_override": True,
                "max_queue_size": settings.queue,
            },
        },
        "response_cache": {"enable": False},
        "model_warmup": [_warmup(size, inputs) for size in sorted({1, batch})],
        **_accelerator(manifest, settings),
        "parameters": [
            {"key": key, "value": {"string_value": value}}
            for key, value in _parameters(manifest, settings, explains=explains).items()
        ],
    }
    return text_format(message)


def _described(tensor: Tensor) -> Message:
    return {"name": tensor.name, "data_type": Word(tensor.data_type), "dims": list(tensor.dims)}


def _instances(settings: RepositorySettings) -> Message:
    if settings.flavour == "tensorrt":
        return {"count": settings.instances, "kind": Word("KIND_GPU"), "profile": list(_PROFILES)}
    kind = "KIND_CPU" if settings.flavour == "python" else _KINDS[settings.device]
    return {"count": settings.instances, "kind": Word(kind)}


def _warmup(batch: int, inputs: list[Tensor]) -> Message:
    """A batch of black images with class 0 as the one target, run before the model is ready."""
    tensors: list[Message] = [
        {
            "key": one.name,
            "value": {
                "data_type": Word(one.data_type),
                "dims": [1] if one.name == TARGETS.name else list(one.dims),
                "zero_data": True,
            },
        }
        for one in inputs
    ]
    return {"name": f"batch_{batch}", "batch_size": batch, "inputs": tensors}


def _parameters(manifest: Manifest, settings: RepositorySettings, *, explains: bool) -> dict[str, str]:
    """The manifest for clients, and options of the backend."""
    found = {MANIFEST_PARAMETER: manifest.to_json()}
    if explains:
        found[MOST_TARGETS_PARAMETER] = str(largest_targets(manifest, settings))
    if settings.threads is not None:
        found["intra_op_thread_count"] = str(settings.threads)
    if _may_use_cuda(settings):
        found |= {"cudnn_conv_algo_search": "1", "arena_extend_strategy": "1"}  # HEURISTIC, kSameAsRequested
    return found


def _may_use_cuda(settings: RepositorySettings) -> bool:
    return settings.flavour == "onnxruntime" and settings.device != "cpu"


def _accelerator(manifest: Manifest, settings: RepositorySettings) -> Message:
    """What ONNX Runtime may do on a GPU. By default it multiplies in TF32, whose 11 bits break the certificate.

    In fp16 graphs the same option takes the tensor cores from products of fp16, so there it stays on.
    """
    if not _may_use_cuda(settings):
        return {}
    tf32 = settings.tf32 or manifest.precision == "fp16"
    options: Message = {"name": "cuda", "parameters": [{"key": "use_tf32", "value": str(int(tf32))}]}
    return {"optimization": {"execution_accelerators": {"gpu_execution_accelerator": [options]}}}
