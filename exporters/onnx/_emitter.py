"""`Program` → ONNX model: standard operators, names that follow the module path, weights in one shared file."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, fx

from bcos_sdk.contract import EXPLAIN_INPUTS, EXPLAIN_OUTPUTS, ONNX_OPERATORS, TARGETS, Layout, Port
from bcos_sdk.exporters.program import Program, infer_shapes, is_floating, path_of

__all__ = ["IR_VERSION", "OPSET", "Emitter", "Spelling", "Spellings", "WeightsFile", "emit"]

OPSET = 18
IR_VERSION = 10
_INLINE_BYTES = 1024
_ALIGNMENT = 64

Array = np.ndarray[Any, np.dtype[Any]]


class WeightsFile:
    """`with WeightsFile(path) as weights:` tensors one after another in one file.

    Equal tensors are stored once, even if several graphs read them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._places: dict[tuple[str, bytes], tuple[int, int]] = {}

    def place(self, array: Array) -> tuple[int, int]:
        """Store the array if it is new, and return the offset and length of its bytes."""
        data = np.ascontiguousarray(array).tobytes()
        key = (str(array.dtype), hashlib.sha256(data).digest())
        if key not in self._places:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._places[key] = (self._file.tell(), len(data))
            self._file.write(data)
        return self._places[key]

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a failed write the buffer cannot be written either. Its error would hide the first one.
        with contextlib.suppress(OSError) if error else contextlib.nullcontext():
            self._file.close()


def emit(
    program: Program,
    name: str,
    weights: WeightsFile,
    spellings: Spellings,
    *,
    metadata: dict[str, str] | None = None,
    expose: dict[str, fx.Node] | None = None,
    ports: Sequence[Port] = (*EXPLAIN_INPUTS, *EXPLAIN_OUTPUTS),
) -> onnx.ModelProto:
    """The ONNX model of a program. `spellings` has one function per operator that emits it as ONNX operators.

    Large constants go to the weights file. `expose` adds outputs for inner values, by name. `ports` are those of the
    program.
    """
    infer_shapes(program)
    known = {port.name: port for port in ports}
    e = Emitter(weights, program.layout, *known)
    if len(program.inputs) > 1:
        e.targets = str(program.inputs[1].target)
    for node in program.inputs:
        e.values[node] = str(node.target)
    for node in program.graph.nodes:
        if node.op == "get_attr":
            e.values[node] = e.constant(program.value_of(node), path_of(node), half=node.meta.get("half", False))
        elif node.op == "call_function":
            e.at(node)
            e.values[node] = spellings.of(node)(e, node)
    outputs = [
        _declare(known[output], e.name_output(node, output), node, program.layout)
        for output, node in zip(program.outputs, program.results, strict=True)
    ]
    for inner, node in (expose or {}).items():
        e.nodes.append(helper.make_node("Identity", [e.values[node]], [inner]))
        outputs.append(helper.make_tensor_value_info(inner, _type_of(node), None))
    inputs = [_declare(known[str(one.target)], str(one.target), one, program.layout) for one in program.inputs]
    read = {value for node in e.nodes for value in node.input}
    # ONNX Runtime does not load a graph with an external constant that no node reads.
    initializers = [one for one in e.initializers if one.name in read]
    graph = helper.make_graph(e.nodes, name, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="bcos-sdk")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, metadata or {})
    return model


def _declare(port: Port, value: str, node: fx.Node, layout: Layout) -> onnx.ValueInfoProto:
    """Declare an input or output with the leading axes that the contract gives it."""
    shape = list(node.meta["val"].shape)
    free = port.axes(layout)[: -len(port.sample)] if port.sample else port.axes(layout)
    return helper.make_tensor_value_info(value, _type_of(node), [*free, *shape[len(free) :]])


def _type_of(node: fx.Node) -> int:
    if node.meta["val"].dtype is torch.bool:
        return int(TensorProto.BOOL)
    return int(TensorProto.FLOAT if is_floating(node) else TensorProto.INT64)


class Emitter:
    """The ONNX graph under construction. Spellings call it; `values` maps each node to the name of its value."""

    def __init__(self, weights: WeightsFile, layout: Layout, *reserved: str) -> None:
        self.layout = layout
        self.values: dict[fx.Node, Any] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.scope = ""
        self._weights = weights
        self.targets = TARGETS.name
        self._names = set(reserved)
        self._outputs: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}

    def at(self, node: fx.Node) -> None:
        """Name the operators emitted from now on after the module of `node`."""
        scope = path_of(node) or "model"
        self.scope = f"explain/{scope}" if node.meta.get("transposed") else scope

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Emit one operator with one result, and return the result's name."""
        return self._emit(kind, inputs, attributes, results=1, wanted=0)

    def pick(self, kind: str, index: int, *inputs: Any, **attributes: Any) -> str:
        """Emit one operator with two results, and return the name of the result at `index`."""
        return self._emit(kind, inputs, attributes, results=2, wanted=index)

    def _emit(self, kind: str, inputs: Sequence[Any], attributes: dict[str, Any], *, results: int, wanted: int) -> str:
        assert kind in ONNX_OPERATORS, f"add {kind} to ONNX_OPERATORS in bcos_sdk/contract.py"
        name = self._unique(f"{self.scope}/{kind}")
        outputs = [name if i == wanted else f"{name}:unused" for i in range(results)]
        names = [self.value(one) for one in inputs]
        self.nodes.append(helper.make_node(kind, names, outputs, name=name, **attributes))
        return name

    def splice(self, graph: onnx.GraphProto, inputs: Sequence[str]) -> list[str]:
        """Emit the nodes of a whole ONNX graph, and return the names of its results."""
        names = {"": "", **dict(zip((one.name for one in graph.input), inputs, strict=True))}
        for tensor in graph.initializer:
            names[tensor.name] = self._imported(tensor)
        for node in graph.node:
            if node.op_type == "Constant":
                names[node.output[0]] = self._imported(node.attribute[0].t)
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = self._unique(f"{self.scope}/{node.op_type}")
            names |= {one: self._unique(f"{copy.name}:{place}") for place, one in enumerate(node.output) if one}
            del copy.input[:], copy.output[:], copy.metadata_props[:]
            copy.doc_string = ""
            copy.input.extend(names[one] for one in node.input)
            copy.output.extend(names[one] for one in node.output)
            self.nodes.append(copy)
        return [names[one.name] for one in graph.output]

    def _imported(self, tensor: TensorProto) -> str:
        return self.constant(torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()), "number")

    def value(self, value: Any) -> str:
        """The name of a node's value. A Python number becomes a scalar constant."""
        if isinstance(value, fx.Node):
            return str(self.values[value])
        if isinstance(value, str):
            return value
        return self.constant(torch.tensor(value, dtype=torch.float32), "number")

    def fold(self, cotangent: fx.Node, sample: Sequence[int]) -> str:
        """Merge the leading axes of a cotangent into one, because a convolution takes one: [rows, *sample]."""
        if self.layout is Layout.ROWS:
            return self.value(cotangent)
        return self.op("Reshape", cotangent, self.ints(-1, *sample))

    def unfold(self, folded: str, sample: Sequence[int]) -> str:
        """Split one leading axis into those of the layout: [rows, *sample] → a cotangent."""
        return folded if self.layout is Layout.ROWS else self.to_cotangent(folded, sample)

    def to_cotangent(self, value: str, sample: Sequence[int]) -> str:
        """Reshape a value to a cotangent with the sample shape `sample`."""
        shape = self.ints(-1, *sample) if self.layout is Layout.ROWS else self._cotangent_shape(sample)
        return self.op("Reshape", value, shape)

    def _cotangent_shape(self, sample: Sequence[int]) -> str:
        """The shape [batch, targets, *sample]; the first two sizes are read from the input of targets."""
        key = ("cotangent", *sample)
        if key not in self._constants:
            if ("leading",) not in self._constants:
                self._constants["leading",] = self.op("Shape", self.targets)
            leading = self._constants["leading",]
            self._constants[key] = self.op("Concat", leading, self.ints(*sample), axis=0)
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """A constant list of integers, such as axes, a shape or starts."""
        return self.constant(torch.tensor(values, dtype=torch.int64), "ints")

    def constant(self, value: Tensor, name: str, *, half: bool = False) -> str:
        """Add an initializer, or find the equal one that exists, and return its name."""
        value = value.detach()
        if value.is_floating_point():
            value = value.to(torch.float16 if half else torch.float32)
        array = value.contiguous().numpy()
        key = (array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._constants:
            self._constants[key] = self._unique(name or "constant")
            self.initializers.append(self._initializer(self._constants[key], array))
        return self._constants[key]

    def _initializer(self, name: str, array: Array) -> TensorProto:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if array.nbytes < _INLINE_BYTES:
            return onnx.numpy_helper.from_array(array, name)
        offset, length = self._weights.place(array)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        place = {"location": self._weights.path.name, "offset": str(offset), "length": str(length)}
        for key, entry in place.items():
            tensor.external_data.add(key=key, value=entry)
        return tensor

    def name_output(self, node: fx.Node, output: str) -> str:
        """Rename the node's value to the output's name wherever it occurs. Inputs and other outputs are copied."""
        old = str(self.values[node])
        if node.op == "placeholder" or old in self._outputs:
            self.nodes.append(helper.make_node("Identity", [old], [output], name=f"{output}/Identity"))
            return output
        self._outputs.add(output)
        self.values[node] = output
        for one in self.nodes:
            for names in (one.input, one.output):
                for i, value in enumerate(names):
                    if value == old:
                        names[i] = output
        return output

    def _unique(self, name: str) -> str:
        unique = name
        for number in itertools.count(1):
            if unique not in self._names:
                break
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique


Spelling = Callable[[Emitter, fx.Node], Any]


class Spellings(dict[Any, Spelling]):
    """Operator → the function that emits it. `otherwise` emits the operators of torch that have none."""

    def __init__(self, spellings: Mapping[Any, Spelling], otherwise: Spelling) -> None:
        super().__init__(spellings)
        self._otherwise = otherwise

    def of(self, node: fx.Node) -> Spelling:
        return self.get(node.target, self._otherwise)
