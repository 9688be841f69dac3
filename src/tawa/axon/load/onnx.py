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

from tawa.axon.load import operators as shared
from tawa.axon.load.graph import Builder, Graph
from tawa.axon.run.evaluate import arity
from tawa.axon.syntax.tree import Tree
from tawa.errors import MissingPackage

_REDUCTIONS = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceLogSumExp": "logsumexp", "ReduceL2": "l2",
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
                sizes = [
                    str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "_"
                    for d in kind.shape.dim
                ]
                text = " ".join(s if s.isalnum() else "_" for s in sizes)
            name = "".join(c if c.isalnum() else "_" for c in item.name)
            element = NAMES[self.type_name(kind.elem_type)]
            self.values[item.name] = self.build.input(name, text, element)
        for node in graph.node:
            inputs = ", ".join(node.input)
            self.build.line(f"{', '.join(node.output)} = {node.op_type}({inputs})")
            made = self._node(node)
            for output, value in zip(node.output, made if isinstance(made, list) else [made]):
                name = "".join(c if c.isalnum() else "_" for c in output)
                name = name if name[:1].isalpha() else f"v{name}"
                named = isinstance(value, Tree)
                self.values[output] = self.build.let(name, value) if named else value
        results = [self._tree(self._named(item.name)) for item in graph.output]
        return self.build.finish(results[0] if len(results) == 1 else results)

    def _named(self, name: str) -> Any:
        """Return a value by its name; None where an optional input is left out."""
        if name and name not in self.values:
            raise self.build.refuse(f"the further result {name!r} of an operator is not supported")
        return self.values[name] if name else None

    def _tree(self, value: Any) -> Any:
        """Return a value as an operand: arrays become weights, sizes numbers."""
        if isinstance(value, _ShapeOf):
            raise self.build.refuse("a shape is supported where its sizes are taken by Gather")
        if isinstance(value, Sizes):
            return value.items[0] if value.scalar else list(value.items)
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
        given: list[Any] = [self._named(name) for name in node.input]
        symbolic = any(isinstance(item, Sizes) for item in given)
        constant = given and all(isinstance(item, Sizes | np.ndarray) for item in given)
        if symbolic and constant:
            return self._of_sizes(node.op_type, given, options)
        kind = node.op_type
        x = self._tree(given[0]) if given and not isinstance(given[0], _ShapeOf) else None
        own = shared.ONNX.get(kind)
        if own and len(given) == arity(own) and not options:
            return build.call(own, *map(self._tree, given))
        match kind:
            case "Dropout" if len(given) < 3 or given[2] is None or not np.any(given[2]):
                return build.call("identity", x)
            case "Sum" | "Max" | "Min" if given:
                sign = {"Sum": "add", "Max": "maximum", "Min": "minimum"}[kind]
                for other in given[1:]:
                    x = build.call(sign, x, self._tree(other))
                return x
            case "Softplus":
                return build.call("softplus", x)
            case "Gelu":
                return shared.gelu(build, x, options.get("approximate", b"none").decode())
            case "LeakyRelu":
                return build.call("leaky_relu", x, slope=float(options.get("alpha", 0.01)))
            case "Elu":
                return build.call("elu", x, alpha=float(options.get("alpha", 1.0)))
            case "Mod" if not options.get("fmod"):
                return build.call("mod", x, self._tree(given[1]))
            case "HardSigmoid" if abs(options.get("alpha", 0.2) - 1 / 6) < 1e-6:
                return build.call("hardsigmoid", x)
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
                return shared.product(build, x, given[1])
            case "BatchNormalization" if not options.get("training_mode"):
                weight, bias, mean, var = given[1:]
                return shared.batch_norm(
                    build, x, mean, var, weight, bias, options.get("epsilon", 1e-5)
                )
            case "LayerNormalization" if isinstance(given[1], np.ndarray):
                weight, bias = given[1], given[2] if len(given) > 2 else None
                if weight.ndim != -options.get("axis", -1):
                    raise build.refuse("a layer norm from an axis that is counted from the front")
                eps = options.get("epsilon", 1e-5)
                return shared.layer_norm(build, x, weight.shape, weight, bias, eps)
            case "MaxPool" | "AveragePool":
                return self._pool(kind, x, options)
            case "GlobalAveragePool":
                x = build.sized(x, ["_"] * 4)  # the axes of other ranks are not these
                return shared.reduction(build, "mean", x, [2, 3], keep=True)
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
            case "Slice" if len(given) > 2:
                return self._slice(x, given)
            case "Split":
                return self._split(x, given, options, len(node.output))
            case "Pad" if options.get("mode", b"constant") == b"constant":
                return self._pad(x, given)
            case _ if kind in _REDUCTIONS:
                return self._reduce(kind, x, given, options)
            case "Expand":
                return shared.expanded(build, x, self._sizes(given[1]))
            case "Resize":
                return self._resize(x, given, options)
            case "Clip":
                for name, bound in zip(("maximum", "minimum"), given[1:]):
                    if bound is not None:
                        x = build.call(name, x, self._tree(bound))
                return build.call("identity", x) if x is given[0] else x
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

    def _pads(self, rank: int, options: dict[str, Any]) -> list[tuple[int, int, int]]:
        """Return what is put before and after each axis of a window."""
        if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            raise self.build.refuse("auto_pad is not supported", "export with numbers for pads")
        pads = options.get("pads", [0] * 2 * rank)
        return [(2 + axis, pads[axis], pads[rank + axis]) for axis in range(rank)]

    def _conv(self, kind: str, given: list[Any], options: dict[str, Any]) -> Tree:
        weight, bias = given[1], given[2] if len(given) > 2 else None
        rank = weight.ndim - 2 if isinstance(weight, np.ndarray) else len(options["kernel_shape"])
        x, pads, extra = self._tree(given[0]), self._pads(rank, options), None
        equal = all(before == after for _, before, after in pads)
        if kind == "ConvTranspose":
            if not equal or "output_shape" in options:
                raise self.build.refuse("unequal pads of a transposed convolution")
            extra = list(options.get("output_padding", [0] * rank))
        elif not equal:
            x, pads = shared.padded(self.build, x, pads), [(0, 0, 0)] * rank
        return shared.convolution(
            self.build, x, self._tree(weight), bias, extra=extra,
            stride=list(options.get("strides", [1] * rank)), pad=[before for _, before, _ in pads],
            dilation=list(options.get("dilations", [1] * rank)), groups=options.get("group", 1),
        )  # fmt: skip

    def _gemm(self, given: list[Any], options: dict[str, Any]) -> Tree:
        build = self.build
        if options.get("alpha", 1) != 1 or options.get("beta", 1) != 1 or options.get("transA"):
            raise build.refuse("this Gemm is not supported")
        weight = given[1] if options.get("transB") else self._turned(given[1])
        return shared.linear(build, self._tree(given[0]), weight, *given[2:])

    def _turned(self, matrix: Any) -> Any:
        turn = isinstance(matrix, np.ndarray)
        return matrix.T if turn else self.build.call("transpose", self._tree(matrix))

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

    def _flatten(self, x: Any, axis: int) -> Tree:
        if axis != 1:
            raise self.build.refuse(f"Flatten with axis {axis} is not supported")
        return self.build.call("flatten", x, axis=1)

    def _reduce(self, kind: str, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        axes: Any = options.get("axes")
        if len(given) > 1 and given[1] is not None:
            axes = self._numbers(given[1])
        keep = bool(options.get("keepdims", 1))
        if not axes:
            if options.get("noop_with_empty_axes"):
                return self.build.call("identity", x)
            if keep:
                raise self.build.refuse(f"{kind} of all axes that keeps them is not supported")
            axes = None
        return shared.reduction(self.build, _REDUCTIONS[kind], x, axes, keep)

    def _slice(self, x: Any, given: list[Any]) -> Any:
        starts, ends = self._sizes(given[1]), self._sizes(given[2])
        named = len(given) > 3 and given[3] is not None
        axes = self._numbers(given[3]) if named else list(range(len(starts)))
        steps = self._numbers(given[4]) if len(given) > 4 else [1] * len(starts)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            if step < 1:
                raise self.build.refuse("a slice with a negative step is not supported")
            x = shared.sliced(self.build, x, axis, start, end, step)
        return x

    def _split(self, x: Any, given: list[Any], options: dict[str, Any], count: int) -> list[Any]:
        axis = options.get("axis", 0)
        if len(given) > 1 and given[1] is not None:
            sizes = self._sizes(given[1])
        else:
            size = self.build.call("dim", axis, x)
            each = self.build.binary("//", self.build.binary("+", size, count - 1), count)
            sizes = [each] * count
        return [shared.parted(self.build, x, axis, sizes, number) for number in range(count)]

    def _pad(self, x: Any, given: list[Any]) -> Any:
        pads, count = self._sizes(given[1]), len(self._sizes(given[1])) // 2
        if len(given) > 2 and given[2] is not None and np.any(given[2]):
            raise self.build.refuse("padding by other than zeros is not supported")
        named = len(given) > 3 and given[3] is not None
        axes = self._numbers(given[3]) if named else list(range(count))
        return shared.padded(self.build, x, [*zip(axes, pads[:count], pads[count:])])

    def _resize(self, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        scales = given[2] if len(given) > 2 else None
        if not isinstance(scales, np.ndarray) or len(scales) < 3 or any(scales[:2] != 1):
            raise self.build.refuse("Resize is supported with scales of the axes after the second")
        how = options.get("coordinate_transformation_mode", b"half_pixel").decode()
        rounded = options.get("nearest_mode", b"round_prefer_floor").decode()
        halves = ("half_pixel", "pytorch_half_pixel")
        repeats = rounded.startswith("round") if how in halves else rounded == "floor"
        if how not in (*halves, "asymmetric") or not repeats:
            raise self.build.refuse(f"Resize by {how} and {rounded} is not supported")
        return shared.upsampled(
            self.build, x, scales[2:].tolist(), options.get("mode", b"nearest").decode()
        )


@dataclass(frozen=True)
class _ShapeOf:
    """The shape of a value, before its sizes are taken."""

    of: Any
