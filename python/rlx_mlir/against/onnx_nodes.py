# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A file of ONNX beside onnxruntime, node by node: what reading it makes of a node is compared, too.

The file is read with the results of all nodes as outputs. onnxruntime then computes each node, as a model of its own,
of the operands that our code computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import ir
from rlx_mlir.against.comparison import Comparison, Difference, Verdict, moved_operands, prepared
from rlx_mlir.against.rivals import missing
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import ExecutionError, RlxError, shortened
from rlx_mlir.frontends.onnx.files import Tensors, onnx_library, read_model
from rlx_mlir.frontends.onnx.importer import read
from rlx_mlir.hir import GraphModule
from rlx_mlir.semantics.function import results
from rlx_mlir.verify.tolerance import operation_error

if TYPE_CHECKING:
    import onnx


#: Kinds of attributes that are graphs, or lists of these.
_GRAPHS = (5, 10)
#: Operators whose results are random.
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def check_file(
    source: object,
    *,
    sizes: Mapping[str, int] | None,
    inputs: Mapping[str, np.ndarray] | None,
    seed: int,
    factor: float,
) -> Verdict:
    """The first node of a file whose result differs from onnxruntime's; arguments as of `check_against`."""
    try:
        import onnxruntime
    except ImportError:
        raise missing("onnxruntime", "onnxruntime") from None
    message, folder, _ = read_model(source)
    tensors = Tensors(folder)
    importer = read(message, tensors, {}, every=True)
    read_by = {value.name for value in importer.graph.params}
    given = {name: array for name, array in importer.params.items() if name in read_by}
    module, values = prepared(importer.graph, sizes, {**given, **(inputs or {})}, seed)
    return _Nodes(module, values, factor, _Session(onnxruntime, message, tensors)).run()


class _Session:
    """Runs single nodes of a file by onnxruntime."""

    def __init__(self, library: ModuleType, message: onnx.ModelProto, tensors: Tensors) -> None:
        self._library, self._onnx, self.message, self._tensors = library, onnx_library(), message, tensors
        self.weights = {tensor.name: tensor for tensor in message.graph.initializer}
        self._options = library.SessionOptions()
        self._options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options.intra_op_num_threads = 1
        self._options.log_severity_level = 4

    def refusal(self, node: onnx.NodeProto) -> str:
        """Why a node isn't compared; '' where it is."""
        if any(own.type in _GRAPHS for own in node.attribute):
            return "it has graphs in it"
        return "its results are random" if node.op_type in _RANDOM else ""

    def node(
        self, node: onnx.NodeProto, known: Mapping[str, np.ndarray]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        """A function of the operands that are no weights, in the order of `known`, that computes a node.

        Raises ExecutionError with onnxruntime's reason where it doesn't take the node.
        """
        helper, outputs = self._onnx.helper, [name for name in node.output if name]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
            for name, array in known.items()
        ]
        weights = [self._weight(name) for name in dict.fromkeys(node.input) if name in self.weights]
        graph = helper.make_graph(
            [node], "node", infos, [self._onnx.ValueInfoProto(name=name) for name in outputs], weights
        )
        model = helper.make_model(
            graph,
            opset_imports=self.message.opset_import,
            functions=self.message.functions,
            ir_version=self.message.ir_version,
        )
        with foreign_errors("onnxruntime", ExecutionError):
            session = self._library.InferenceSession(model.SerializeToString(), self._options, ["CPUExecutionProvider"])

        def run(operands: Sequence[np.ndarray]) -> list[np.ndarray]:
            with foreign_errors("onnxruntime", ExecutionError):
                found = session.run(outputs, dict(zip(known, operands, strict=True)))
            return [np.asarray(array) for array in found]

        return run

    def _weight(self, name: str) -> onnx.TensorProto:
        """A weight of the file, with its elements in the message."""
        own: onnx.TensorProto = self.weights[name]
        if own.data_location != 1:
            return own
        array = self._tensors.read(own, f"initialiser {shortened(name)}")
        made: onnx.TensorProto = self._onnx.numpy_helper.from_array(array, name)
        return made


@dataclass(frozen=True)
class _Result:
    """What our code has for a name of the file.

    Attributes:
        value: of the module.
        array: what compiled code gives.
    """

    value: ir.Value
    array: np.ndarray


class _Nodes(Comparison):
    """A comparison of the nodes of a file, whose module returns the results of all."""

    def __init__(self, module: GraphModule, values: Mapping[str, np.ndarray], factor: float, session: _Session) -> None:
        super().__init__(module, "onnxruntime", values, factor)
        self._session = session
        self._results: dict[str, _Result] = {}
        for own, value in zip(results(self._function), self._end.operands, strict=True):
            if value in self.known:
                self._results[own.name] = _Result(value, self.known[value])
        self._tapped = {own.value for own in self._results.values()}
        outputs = [info.name for info in session.message.graph.output]
        self.returned = {self._results[name].value for name in outputs if name in self._results}

    def run(self) -> Verdict:
        """The first node that differs, or else the first operation in what is compiled as a whole."""
        compared, skipped = 0, dict[tuple[str, str], int]()
        for node in self._session.message.graph.node:
            reason = self._session.refusal(node)
            found: Difference | None = None
            if not reason:
                try:
                    found = self._differs(node)
                except RlxError as error:
                    reason = str(error)
            if reason:
                skipped[node.op_type, reason] = skipped.get((node.op_type, reason), 0) + 1
                continue
            compared += 1
            if found is not None:
                return Verdict(self._name, compared, skipped, found)
        return Verdict(self._name, compared, skipped, self.whole())

    def _differs(self, node: onnx.NodeProto) -> Difference | None:
        """The element of a node's results that differs; ExecutionError where they can't be compared."""
        known = {}
        for name in dict.fromkeys(node.input):
            if name and name not in self._session.weights:
                known[name] = self._array(name)
        ours = [self._array(name) for name in node.output if name]
        run = self._session.node(node, known)
        operands = list(known.values())
        for number, (name, theirs) in enumerate(zip([own for own in node.output if own], run(operands), strict=True)):
            where = f"node {shortened(node.name or name)}, by its result {shortened(name)},"
            mine = ours[number]
            if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
                kinds = [f"{array.dtype} {list(array.shape)}" for array in (mine, theirs)]
                text = f"is {kinds[0]}, but {kinds[1]} is right"
                return Difference(node.op_type, where, 0.0, 0.0, (), 0.0, text=text)

            def again(number: int = number) -> np.ndarray:
                return run(moved_operands(operands))[number]

            found = self.beyond(mine, theirs, self._error(self._results[name].value), again)
            if found is not None:
                return Difference(node.op_type, where, found.got, found.want, found.index, found.allowed)
        return None

    def _array(self, name: str) -> np.ndarray:
        """What our code has for a name; ExecutionError where it has nothing."""
        if name in self._results:
            return self._results[name].array
        if name in self._values:
            return self._values[name]
        raise ExecutionError("an operand or a result is no tensor of the module")

    def _error(self, value: ir.Value) -> float:
        """The relative error of the operations that a node is, back to results of others."""
        error, waiting, seen = 0.0, [value], set[ir.Operation]()
        while waiting:
            owner = waiting.pop().owner
            if isinstance(owner, ir.Block) or owner.operation in seen:
                continue
            op = owner.operation
            seen.add(op)
            arrays = [[self.known[own] for own in values if own in self.known] for values in (op.operands, op.results)]
            error += operation_error(op, *arrays)
            waiting += [own for own in op.operands if own not in self._tapped]
        return error


__all__ = ["check_file"]
