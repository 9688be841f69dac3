"""Graphs of ONNX, operator sets 13 to 25.

What computes with sizes alone (Shape, Gather, Concat ... before Reshape) is followed when the graph
is read: it becomes the sizes that Reshape is given.

Length: one case an operator.
"""
# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tawa.axon.load.graph import Builder, Graph
from tawa.axon.syntax.tree import Tree
from tawa.errors import MissingPackage

UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log",
    "Sqrt": "sqrt", "Neg": "neg", "Abs": "abs", "Erf": "erf", "Floor": "floor", "Ceil": "ceil",
    "Identity": "identity", "Dropout": "identity", "Softplus": "softplus", "Mish": "mish",
    "HardSwish": "hardswish", "Reciprocal": "reciprocal", "GlobalAveragePool": "",
    "Sin": "sin", "Cos": "cos", "Not": "logical_not", "Sign": "sign", "Softsign": "softsign",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Max": "maximum",
    "Min": "minimum", "Equal": "equal", "Less": "less", "Greater": "greater", "And": "logical_and",
}  # fmt: skip
_SIZES = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "//"}


@dataclass(frozen=True)
class Sizes:
    """A one-dimensional integer array of a graph that is made of sizes and numbers."""

    items: tuple[Any, ...]
    scalar: bool = False


def load_onnx(model: Any, dims: Mapping[str, str] | None = None) -> Graph:
    """Return an ONNX model, or the file of one, as a graph.

    `dims` gives the sizes of inputs by name, as in `{"x": "n 3 h w"}`; for others the model's own
    are used. Raises AxonError for shapes that cannot fit and, by name, for what is not supported.

    Example::

        report = axon.load_onnx("unet.onnx", dims={"x": "n 3 h w"})
        print(report.guards, report.shape("y"))
    """
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise MissingPackage("onnx is not installed", remedy="pip install onnx") from error
    name = "<onnx>"
    if isinstance(model, str | Path):
        name = Path(model).name
        model = onnx.load(model)
    build = Builder(name)
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not 13 <= opset.version <= 25:
            raise build.refuse(f"operator set {opset.version} is not supported", "13 to 25 are")
    importer = _Import(build, helper, numpy_helper)
    return importer.run(model.graph, dict(dims or {}))


class _Import:
    def __init__(self, build: Builder, helper: Any, numpy_helper: Any) -> None:
        self.build = build
        self.attribute = helper.get_attribute_value
        self.array = numpy_helper.to_array
        self.type_name = lambda number: str(helper.tensor_dtype_to_np_dtype(number))
        self.values: dict[str, Any] = {}

    def run(self, graph: Any, dims: dict[str, str]) -> Graph:
        from tawa.axon.run.values import NAMES

        for item in graph.initializer:
            self.values[item.name] = self.array(item)
        for item in graph.input:
            if item.name in self.values:
                continue
            kind = item.type.tensor_type
            text = dims.get(item.name)
            if text is None and kind.HasField("shape"):
                sizes = [d.dim_param or str(d.dim_value) for d in kind.shape.dim]
                text = " ".join(s if s.isalnum() else "_" for s in sizes)
            name = "".join(c if c.isalnum() else "_" for c in item.name)
            element = NAMES[self.type_name(kind.elem_type)]
            self.values[item.name] = self.build.input(name, text, element)
        for node in graph.node:
            inputs = ", ".join(node.input)
            self.build.line(f"{', '.join(node.output)} = {node.op_type}({inputs})")
            made = self._node(node)
            name = "".join(c if c.isalnum() else "_" for c in node.output[0])
            name = name if name[:1].isalpha() else f"v{name}"
            self.values[node.output[0]] = (
                self.build.let(name, made) if isinstance(made, Tree) else made
            )
        results = [self._tree(self.values[item.name]) for item in graph.output]
        return self.build.finish(results[0] if len(results) == 1 else results)

    def _tree(self, value: Any) -> Any:
        """Return a value as an operand: arrays become weights, sizes numbers."""
        if isinstance(value, Sizes):
            return value.items[0] if value.scalar else list(value.items)
        if isinstance(value, np.ndarray):
            if value.ndim == 0:
                return float(value) if value.dtype.kind == "f" else int(value)
            return self.build.weight(value)
        return value

    def _sizes(self, value: Any) -> list[Any]:
        """Return a value as sizes; refuses what depends on data."""
        if isinstance(value, Sizes):
            return list(value.items)
        if isinstance(value, np.ndarray):
            return [int(n) for n in value.reshape(-1)]
        raise self.build.refuse("sizes that depend on data are not supported")

    def _numbers(self, value: Any) -> list[int]:
        found = self._sizes(value)
        if not all(isinstance(n, int) for n in found):
            raise self.build.refuse("axes that depend on sizes are not supported")
        return found

    def _node(self, node: Any) -> Any:
        build = self.build
        options = {item.name: self.attribute(item) for item in node.attribute}
        given: list[Any] = [self.values[name] if name else None for name in node.input]
        symbolic = any(isinstance(item, Sizes) for item in given)
        constant = given and all(isinstance(item, Sizes | np.ndarray) for item in given)
        if symbolic and constant:
            return self._of_sizes(node.op_type, given, options)
        kind = node.op_type
        x = self._tree(given[0]) if given else None
        if kind in UNARY and kind != "GlobalAveragePool":
            return build.call(UNARY[kind], x)
        if kind in BINARY and len(given) == 2:
            return build.call(BINARY[kind], x, self._tree(given[1]))
        match kind:
            case "Constant":
                value = options.get("value")
                return (
                    self.array(value)
                    if value is not None
                    else np.asarray(next(iter(options.values())))
                )
            case "Shape" if not options:
                return _ShapeOf(x)
            case "Gather" if isinstance(given[0], _ShapeOf):
                return self._taken(given[0], given[1])
            case "Gather":
                axis = options.get("axis", 0)
                return build.call("gather", x, self._tree(given[1]), axis=axis)
            case "Conv" | "ConvTranspose":
                return self._conv(kind, given, options)
            case "Gemm":
                return self._gemm(given, options)
            case "MatMul":
                return self._matmul(x, given[1])
            case "BatchNormalization":
                scale, shift, mean, var = given[1:]
                var = (var + options.get("epsilon", 1e-5) - 1e-5).astype(var.dtype)
                parts = [build.weight(part) for part in (mean, var, scale, shift)]
                return build.call("batch_norm", *parts, x)
            case "LayerNormalization" if options.get("axis", -1) == -1:
                if abs(options.get("epsilon", 1e-5) - 1e-5) > 1e-9 or len(given) < 3:
                    raise build.refuse("this layer norm is not supported")
                return build.call("layer_norm", self._tree(given[1]), self._tree(given[2]), x)
            case "MaxPool" | "AveragePool":
                return self._pool(kind, x, options)
            case "GlobalAveragePool":
                return self._global(x, options)
            case "Flatten":
                return self._flatten(x, options.get("axis", 1))
            case "Reshape" if not options.get("allowzero"):
                sizes = self._sizes(given[1])
                kept = [build.call("dim", i, x) if n == 0 else n for i, n in enumerate(sizes)]
                return build.call("reshape", x, kept)
            case "Transpose" if "perm" in options:
                return build.call("permute", x, list(options["perm"]))
            case "Concat":
                return build.call("concat", [self._tree(item) for item in given], options["axis"])
            case "Softmax":
                return build.call("softmax", x, axis=options.get("axis", -1))
            case "Unsqueeze":
                return build.call("insert", x, axes=self._numbers(given[1]))
            case "Squeeze" if len(given) > 1 and len(self._numbers(given[1])) == 1:
                return build.call("squeeze", x, axis=self._numbers(given[1])[0])
            case "ReduceMean" | "ReduceSum":
                return self._reduce(kind, x, given, options)
            case "Expand":
                return build.call("expand", x, self._sizes(given[1]))
            case "Resize":
                return self._resize(x, given, options)
            case "Clip":
                low, high = (float(np.asarray(item)) for item in given[1:3])
                return build.call("clip", low, high, x)
            case "Where":
                return build.call("where", x, self._tree(given[1]), self._tree(given[2]))
            case _:
                raise build.refuse(f"the operator {kind} is not supported with {options}")

    def _taken(self, shape: _ShapeOf, index: Any) -> Sizes:
        numbers = self._numbers(index)
        sizes = tuple([self.build.call("dim", n, shape.of) for n in numbers])
        return Sizes(sizes, scalar=np.ndim(index) == 0)

    def _of_sizes(self, kind: str, given: list[Any], options: dict[str, Any]) -> Sizes:
        """Compute with sizes."""
        first = given[0]
        match kind:
            case "Concat":
                return Sizes(tuple([n for item in given for n in self._sizes(item)]))
            case "Unsqueeze":
                return Sizes(first.items)
            case "Squeeze":
                return Sizes(first.items, scalar=True)
            case "Identity" | "Cast":
                return first
            case _ if kind in _SIZES:
                a, b = (self._sizes(item) for item in given)
                if len(a) == len(b):
                    made = [self.build.binary(_SIZES[kind], p, q) for p, q in zip(a, b)]
                    scalar = isinstance(first, Sizes) and first.scalar
                    return Sizes(tuple(made), scalar=scalar)
        raise self.build.refuse(f"the operator {kind} of sizes is not supported")

    def _padded(self, x: Any, pads: list[int], options: dict[str, Any]) -> tuple[Any, list[int]]:
        """Return x and equal pads; unequal ones are put on before."""
        if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            raise self.build.refuse("auto_pad is not supported", "export with numbers for pads")
        rank = len(pads) // 2
        if pads[:rank] == pads[rank:]:
            return x, pads[:rank]
        for axis in range(rank):
            before, after = pads[axis], pads[rank + axis]
            x = self.build.call("pad", x, axis=2 + axis, before=before, after=after)
        return x, [0] * rank

    def _conv(self, kind: str, given: list[Any], options: dict[str, Any]) -> Tree:
        build, weight = self.build, given[1]
        rank = weight.ndim - 2 if isinstance(weight, np.ndarray) else len(options["kernel_shape"])
        pads = list(options.get("pads", [0] * 2 * rank))
        x = self._tree(given[0])
        chosen: dict[str, Any] = {
            "stride": list(options.get("strides", [1] * rank)),
            "dilation": list(options.get("dilations", [1] * rank)),
            "groups": options.get("group", 1),
        }
        if kind == "Conv":
            x, chosen["pad"] = self._padded(x, pads, options)
            made = build.call("conv", self._tree(weight), x, **chosen)
        else:
            if pads[:rank] != pads[rank:] or "output_shape" in options:
                raise build.refuse("unequal pads of a transposed convolution are not supported")
            chosen |= {"pad": pads[:rank], "extra": list(options.get("output_padding", [0] * rank))}
            made = build.call("conv_transpose", self._tree(weight), x, **chosen)
        if len(given) < 3 or given[2] is None:
            return made
        bias = given[2].reshape(-1, *[1] * rank)
        return build.binary("+", made, build.weight(bias))

    def _gemm(self, given: list[Any], options: dict[str, Any]) -> Tree:
        build = self.build
        if options.get("alpha", 1) != 1 or options.get("beta", 1) != 1 or options.get("transA"):
            raise build.refuse("this Gemm is not supported")
        weight = given[1]
        if not isinstance(weight, np.ndarray):
            raise build.refuse("a Gemm of two inputs is not supported")
        weight = weight.T if options.get("transB") else weight
        made = build.call("linear", self._tree(given[0]), build.weight(weight))
        return made if len(given) < 3 else build.binary("+", made, self._tree(given[2]))

    def _matmul(self, x: Any, weight: Any) -> Tree:
        if isinstance(weight, np.ndarray) and weight.ndim == 2:
            return self.build.call("linear", x, self.build.weight(weight))
        return self.build.call("matmul", x, self._tree(weight))

    def _pool(self, kind: str, x: Any, options: dict[str, Any]) -> Tree:
        sizes = list(options["kernel_shape"])
        rank = len(sizes)
        pads = list(options.get("pads", [0] * 2 * rank))
        plain = not options.get("ceil_mode") and set(options.get("dilations", [1])) == {1}
        counted = kind == "MaxPool" or options.get("count_include_pad") or not any(pads)
        if not plain or not counted or pads[:rank] != pads[rank:] or "auto_pad" in options:
            raise self.build.refuse(f"this {kind} is not supported: {options}")
        stride = list(options.get("strides", [1] * rank))
        name = "max_pool" if kind == "MaxPool" else "avg_pool"
        return self.build.call(name, x, size=sizes, stride=stride, pad=pads[:rank])

    def _global(self, x: Any, options: dict[str, Any]) -> Tree:
        """Return the mean over images [n, c, h, w], which keeps its axes."""
        return self.build.call("mean_keep", x, axes=[2, 3])

    def _flatten(self, x: Any, axis: int) -> Tree:
        if axis != 1:
            raise self.build.refuse(f"Flatten with axis {axis} is not supported")
        return self.build.call("flatten", x, axis=1)

    def _reduce(self, kind: str, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        axes = list(options["axes"]) if "axes" in options else self._numbers(given[1])
        name = "mean" if kind == "ReduceMean" else "sum"
        kept = f"{name}_keep" if options.get("keepdims", 1) else name
        return self.build.call(kept, x, axes=axes)

    def _resize(self, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        scales = given[2] if len(given) > 2 else None
        nearest = options.get("mode", b"nearest") == b"nearest"
        if not nearest or not isinstance(scales, np.ndarray) or len(scales) < 3:
            raise self.build.refuse("Resize is supported with mode nearest and scales")
        numbers = [float(n) for n in scales]
        if numbers[:2] != [1, 1] or any(n != int(n) for n in numbers):
            raise self.build.refuse(f"Resize by {numbers} is not supported", "use whole numbers")
        return self.build.call("upsample", x, scale=[int(n) for n in numbers[2:]])


@dataclass(frozen=True)
class _ShapeOf:
    """The shape of a value, before its sizes are taken."""

    of: Any
