"""What a runtime raises while it computes, as errors of ours."""

from __future__ import annotations

from bcos_sdk.errors import BcosError, InferenceError, OutOfMemoryError

__all__ = ["is_out_of_memory", "translate_error"]

_MEMORY_WORDS = ("out of memory", "failed to allocate", "bad allocation", "bad_alloc", "cuda failure 2:")


def is_out_of_memory(error: Exception) -> bool:
    """Runtimes have no type for it: the words decide."""
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in _MEMORY_WORDS)


def translate_error(error: Exception, batch: int, said: str | None = None) -> BcosError:
    """An `OutOfMemoryError` if a smaller batch may help, else an `InferenceError` with what was said."""
    if is_out_of_memory(error):
        return OutOfMemoryError(f"a batch of {batch} does not fit into the memory of the device")
    return InferenceError(f"the graph failed on a batch of {batch}: {said or error}")
