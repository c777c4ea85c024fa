"""A graph in a session of ONNX Runtime: on the CPU with plain arrays, on a GPU with buffers on the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcos_sdk._telemetry import import_onnxruntime
from bcos_sdk.backends._forks import keep_in_forked_children
from bcos_sdk.backends._graph import Arrays, Feed, Graph, TensorSpec, batch_size, inference_error

__all__ = ["BoundGraph", "HostGraph", "SessionGraph"]

_SHAPES_KEPT = 8


class SessionGraph(Graph, ABC):
    """A graph in a session. Errors of ONNX Runtime become errors of this package."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._stopped = False
        self._run_options: Any = None
        keep_in_forked_children(self)

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        assert self._session is not None, "the graph is closed"
        # A new object for each run: `terminate` of an earlier run must not end a later one. Both the attribute and the
        # frame of `_run` keep it alive while ONNX Runtime reads it.
        options = self._run_options = import_onnxruntime().RunOptions()
        if self._stopped:  # read after the attribute is set, so that `stop` is not missed
            options.terminate = True
        try:
            return self._run(feed, outputs, options)
        except Exception as error:  # the errors of ONNX Runtime have no other common base
            raise inference_error(error, batch_size(feed)) from error

    def stop(self) -> None:
        self._stopped = True
        options = self._run_options
        if options is not None:
            options.terminate = True  # ONNX Runtime reads it before each operator

    def close(self) -> None:
        self._session = None  # the last reference: ONNX Runtime frees the session

    @abstractmethod
    def _run(self, feed: Feed, outputs: Mapping[str, TensorSpec], options: Any) -> Arrays: ...


class HostGraph(SessionGraph):
    """A graph on the CPU. Arrays are passed without copies."""

    def _run(self, feed: Feed, outputs: Mapping[str, TensorSpec], options: Any) -> Arrays:
        names = list(outputs)
        return dict(zip(names, self._session.run(names, dict(feed), options), strict=True))


class BoundGraph(SessionGraph):
    """A graph with IO binding: one copy to the device, one copy back, no allocation in between.

    Inputs and outputs have buffers on the device. Those of the last 8 shapes are kept and reused.
    """

    def __init__(self, session: Any, memory: str, index: int) -> None:
        super().__init__(session)
        self._memory = memory
        self._index = index
        self._buffers: OrderedDict[object, _Buffers] = OrderedDict()

    def close(self) -> None:
        self._buffers.clear()
        super().close()

    def _run(self, feed: Feed, outputs: Mapping[str, TensorSpec], options: Any) -> Arrays:
        buffers = self._buffers_for(feed, outputs)
        for name, array in feed.items():
            buffers.inputs[name].update_inplace(np.ascontiguousarray(array))
        self._session.run_with_iobinding(buffers.binding, options)
        buffers.binding.synchronize_outputs()
        return {name: np.array(value.numpy()) for name, value in buffers.outputs.items()}

    def _buffers_for(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> _Buffers:
        key = tuple((name, array.shape) for name, array in feed.items()), tuple(outputs.items())
        if key in self._buffers:
            self._buffers.move_to_end(key)
            return self._buffers[key]
        while len(self._buffers) >= _SHAPES_KEPT:
            self._buffers.popitem(last=False)
        made = self._buffers[key] = self._make_buffers(feed, outputs)
        return made

    def _make_buffers(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> _Buffers:
        inputs = {name: self._allocate(array.shape, array.dtype.name) for name, array in feed.items()}
        results = {name: self._allocate(spec.shape, spec.dtype) for name, spec in outputs.items()}
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in results.items():
            binding.bind_ortvalue_output(name, value)
        return _Buffers(binding, inputs, results)

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        onnxruntime = import_onnxruntime()

        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(
            list(shape), np.dtype(dtype).type, self._memory, self._index
        )


@dataclass(frozen=True)
class _Buffers:
    binding: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
