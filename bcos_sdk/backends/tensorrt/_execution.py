"""An execution context of an engine: its shapes, its addresses, and how it is started.

With CUDA graphs, the kernels of a run are captured once and then launched together, which saves the host the launch of
each. A captured graph has the shapes and addresses of its run. So each pair of slot and shapes has a context of its
own, whose bindings do not change, and the graph is captured again if a buffer was allocated anew.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from bcos_sdk._logs import log
from bcos_sdk.backends.tensorrt._cuda import Cuda
from bcos_sdk.errors import BcosError, InferenceError

__all__ = ["Execution", "GraphedExecution", "Profile", "Shape", "choose_profile", "scratch_size"]

_LEAST = 256  # bytes: TensorRT requires an address even for 0 bytes
Shape: TypeAlias = tuple[int, ...]
Profile: TypeAlias = dict[str, tuple[Shape, Shape]]
"""The smallest and the largest shape of each input."""


class Execution:
    """A context that is set up again for each run. `fail` makes the error for what TensorRT has refused."""

    def __init__(
        self,
        context: Any,
        profiles: list[Profile],
        name: str,
        stream: int,
        cuda: Cuda,
        fail: Callable[[str], BcosError],
    ) -> None:
        self._context = context
        self._profiles = profiles
        self._name = name
        self._stream = stream
        self._cuda = cuda
        self._fail = fail
        self.profile = 0
        """The profile of the bound inputs."""

    def bind_inputs(self, shapes: Mapping[str, Shape], addresses: Mapping[str, int]) -> None:
        """Choose the profile for the shapes, and set shape and address of each input."""
        self._choose_profile(shapes)
        for name, shape in shapes.items():
            if not self._context.set_input_shape(name, shape):
                raise self._fail(f"TensorRT does not accept {name} of shape {shape} for {self._name}")
            self._bind(name, addresses[name])

    def shape_of(self, name: str) -> Shape:
        """The shape of an output for the bound inputs."""
        return tuple(self._context.get_tensor_shape(name))

    def bind_outputs(self, addresses: Mapping[str, int]) -> None:
        for name, address in addresses.items():
            self._bind(name, address)

    def scratch_needed(self) -> int:
        """The bytes of scratch memory that TensorRT reports for the bound inputs."""
        return int(self._context.update_device_memory_size_for_shapes())

    def bind_scratch(self, address: int, size: int) -> None:
        self._context.set_device_memory(address, size)

    def start(self) -> bool:
        """Queue the computation; False if TensorRT refuses."""
        return bool(self._context.execute_async_v3(self._stream))

    def free(self) -> None:
        """Wait for the runs of the context, and free it. Errors are ignored."""
        with contextlib.suppress(BcosError):
            self._cuda.wait(self._stream)
        self._context = None

    def _bind(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise self._fail(f"TensorRT does not accept the address {address:#x} for {name} of {self._name}")

    def _choose_profile(self, shapes: Mapping[str, Shape]) -> None:
        place = choose_profile(self._profiles, shapes)
        if place is None:
            raise InferenceError(
                f"the engine of {self._name} has no profile for {dict(shapes)}", hint="Request fewer targets."
            )
        if place != self.profile:
            if not self._context.set_optimization_profile_async(place, self._stream):
                raise self._fail(f"TensorRT cannot select profile {place} of {self._name}")
            self.profile = place


class GraphedExecution(Execution):
    """A context for runs of one slot with one set of shapes. It is set up once, and again if an address has changed.

    The first run with these addresses is queued as usual, because TensorRT then finishes its own set-up. The second one
    is captured. TensorRT for RTX captures by itself (`captures=False`).
    """

    def __init__(self, *how: Any, captures: bool) -> None:
        super().__init__(*how)
        self._captures = captures
        self._inputs: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._scratch: tuple[int, int] | None = None
        self._needed: int | None = None
        self._ran = False
        self._graph: int | None = None

    def bind_inputs(self, shapes: Mapping[str, Shape], addresses: Mapping[str, int]) -> None:
        if self._inputs != addresses:
            self._forget_graph()
            self._inputs, self._needed = {}, None  # also if an error follows
            super().bind_inputs(shapes, addresses)
            self._inputs = dict(addresses)

    def shape_of(self, name: str) -> Shape:
        if name not in self._shapes:
            self._shapes[name] = super().shape_of(name)
        return self._shapes[name]

    def bind_outputs(self, addresses: Mapping[str, int]) -> None:
        if self._outputs != addresses:
            self._forget_graph()
            self._outputs = dict(addresses)
            super().bind_outputs(addresses)

    def scratch_needed(self) -> int:
        if self._needed is None:
            self._needed = super().scratch_needed()
            self._scratch = None
        return self._needed

    def bind_scratch(self, address: int, size: int) -> None:
        if self._scratch != (address, size):
            self._forget_graph()
            self._scratch = address, size
            super().bind_scratch(address, size)

    def start(self) -> bool:
        if self._graph is None and self._ran and self._captures:
            self._graph = self._captured()
        if self._graph is not None:
            self._cuda.launch(self._graph, self._stream)
            return True
        self._ran = super().start()
        return self._ran

    def free(self) -> None:
        with contextlib.suppress(BcosError):
            self._forget_graph()
        super().free()

    def _captured(self) -> int | None:
        """The captured run; None if this engine cannot be captured. Then it runs without."""
        try:
            return self._cuda.capture(self._stream, super().start)
        except BcosError as error:
            # It is no error of the next run, so the recorder must forget what TensorRT said about it.
            log.warning("%s", self._fail(f"{self._name} runs without CUDA graphs: {error.message}").message)
            self._captures = False
            return None

    def _forget_graph(self) -> None:
        self._ran = False
        if self._graph is not None:
            graph, self._graph = self._graph, None
            self._cuda.wait(self._stream)  # it may be running
            self._cuda.free_graph(graph)


def choose_profile(profiles: list[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """Return the profile with the smallest largest shapes among those that accept the shapes; None if none does."""

    def accepts(profile: Profile) -> bool:
        return all(
            len(shape) == len(profile[name][0])
            and all(
                low <= side <= high for low, side, high in zip(profile[name][0], shape, profile[name][1], strict=True)
            )
            for name, shape in shapes.items()
        )

    def capacity(place: int) -> int:
        return sum(math.prod(largest) for _, largest in profiles[place].values())

    fitting = [place for place, profile in enumerate(profiles) if accepts(profile)]
    return min(fitting, key=capacity, default=None)


def scratch_size(for_shapes: int, for_profile: int) -> int | None:
    """The bytes of scratch memory to allocate, from what TensorRT reports; None if its report means an error.

    TensorRT reports 0 bytes for a call both on an error and if no shapes of the profile need any.
    """
    if for_shapes == 0 and for_profile > 0:
        return None
    return max(_LEAST, for_shapes)
