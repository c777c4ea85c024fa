"""A graph on a GPU: inputs and outputs stay in device buffers that are made once per shape and used again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._graphs import Tensor

__all__ = ["BoundGraph"]

_SHAPES_KEPT = 8


class BoundGraph:
    """Runs a session with IO binding: one copy to the device, one copy back, nothing allocated in between."""

    def __init__(self, session: Any, device: Device) -> None:
        self._session = session
        self._memory = "cpu" if device.kind == "cpu" else "cuda"
        self._index = device.index
        self._buffers: OrderedDict[object, _Buffers] = OrderedDict()

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
        buffers = self._buffers_for(feed, outputs)
        for name, array in feed.items():
            buffers.inputs[name].update_inplace(np.ascontiguousarray(array))
        self._session.run_with_iobinding(buffers.binding)
        buffers.binding.synchronize_outputs()
        return {name: np.array(value.numpy()) for name, value in buffers.outputs.items()}

    def _buffers_for(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> _Buffers:
        key = tuple((name, array.shape) for name, array in feed.items()), tuple(outputs.items())
        if key in self._buffers:
            self._buffers.move_to_end(key)
            return self._buffers[key]
        while len(self._buffers) >= _SHAPES_KEPT:
            self._buffers.popitem(last=False)
        made = self._buffers[key] = self._make_buffers(feed, outputs)
        return made

    def _make_buffers(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> _Buffers:
        inputs = {name: self._allocate(array.shape, array.dtype.name) for name, array in feed.items()}
        results = {name: self._allocate(tensor.shape, tensor.dtype) for name, tensor in outputs.items()}
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in results.items():
            binding.bind_ortvalue_output(name, value)
        return _Buffers(binding, inputs, results)

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(
            list(shape), np.dtype(dtype).type, self._memory, self._index
        )


@dataclass(frozen=True)
class _Buffers:
    binding: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
