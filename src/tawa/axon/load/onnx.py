"""Graphs of ONNX, operator sets 13 to 25.

What computes with sizes alone (Shape, Gather, Concat ... before Reshape) is followed when the graph
is read: it becomes the sizes that Reshape is given.

Length: one case an operator.
"""
# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tawa.axon.load import operators as shared
from tawa.axon.load.aten import Aten
from tawa.axon.load.functions import inferred, taken_apart
from tawa.axon.load.graph import Builder, Graph, sizes_of
from tawa.axon.load.sizes import Ratio, Sizes, computed, folded, objects, objects_of, rounded
from tawa.axon.run.evaluate import arity
from tawa.axon.run.values import NAMES
from tawa.axon.syntax.tree import Tree
from tawa.errors import MissingPackage

# Reductions, with what is computed of each element before.
_REDUCTIONS = {
    "ReduceMean": ("mean", ""), "ReduceSum": ("sum", ""), "ReduceMax": ("max", ""),
    "ReduceMin": ("min", ""), "ReduceProd": ("prod", ""), "ReduceL1": ("sum", "abs"),
    "ReduceLogSumExp": ("logsumexp", ""), "ReduceL2": ("l2", ""),
    "ReduceSumSquare": ("sum", "square"),
}  # fmt: skip
# What moves sizes; of all operands of what joins them, else of the first.
_MOVES = ("Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_JOINS = ("Concat", "Equal", "Where", "Add", "Sub", "Mul", "Div", "Mod")
_WIDE = ("i32", "i64", "f32", "f64")  # types that have all sizes
_MAKERS = ("ConstantOfShape", "Range", "Expand", "Tile")  # of arrays, from sizes
_OWN = ("Dropout", "Bernoulli", "Multinomial", "If")  # not computed of what is known


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
    except ImportError as error:
        raise MissingPackage("onnx is not installed", remedy="pip install onnx") from error
    name = "<onnx>"
    if isinstance(model, str | Path):
        name = Path(model).name
        model = onnx.load(model)
    build, version = Builder(name), 0
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not 13 <= opset.version <= 25:
            raise build.refuse(f"operator set {opset.version} is not supported", "13 to 25 are")
        if opset.domain in ("", "ai.onnx"):
            version = opset.version
    importer = _Import(build, onnx, version, model)
    importer.know(model)
    return importer.run(model.graph, dims)


class _Import:
    def __init__(self, build: Builder, onnx: Any, version: int, model: Any) -> None:
        self.build, self.onnx, self.version, self.model = build, onnx, version, model
        self.aten = Aten(build)
        self.attribute = onnx.helper.get_attribute_value
        self.array = onnx.numpy_helper.to_array
        self.values: dict[str, Any] = {}
        self.known: dict[str, tuple[str, int]] = {}  # element type and rank, by name
        self.last: dict[str, int] = {}  # and the size of the last axis, where it is a number

    def element(self, number: int) -> str | None:
        """Return an element type of ONNX in the language, None where it has none."""
        return NAMES.get(str(self.onnx.helper.tensor_dtype_to_np_dtype(number)))

    def know(self, model: Any) -> None:
        """Note what ONNX says of element types and ranks."""
        found = inferred(self.onnx, model)
        for item in (*found.value_info, *found.input, *found.output):
            kind = item.type.tensor_type
            element = self.element(kind.elem_type) if kind.elem_type else None
            if element is not None and kind.HasField("shape"):
                self.known[item.name] = element, len(kind.shape.dim)
                for dim in kind.shape.dim[-1:]:
                    self.last[item.name] = dim.dim_value

    def run(self, graph: Any, dims: Mapping[str, str] | None) -> Graph:
        for item in graph.initializer:
            self.values[item.name] = self.array(item)
        inputs = [item for item in graph.input if item.name not in self.values]
        given = sizes_of(dims, (item.name for item in inputs))
        for item in inputs:
            kind = item.type.tensor_type
            text = given.get(item.name)
            if text is None and kind.HasField("shape"):
                sizes = [
                    str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "_"
                    for d in kind.shape.dim
                ]
                text = " ".join(s if s.isalnum() else "_" for s in sizes)
            name = "".join(c if c.isalnum() else "_" for c in item.name)
            element = self.element(kind.elem_type)
            if element is None:
                raise self.build.refuse(f"the input {item.name} has an element type of ONNX's own")
            self.keep(item.name, self.build.input(name, text, element))
        for node in graph.node:
            inputs = ", ".join(node.input)
            self.build.line(f"{', '.join(node.output)} = {node.op_type}({inputs})")
            self._operation(node)
        results = [self._tree(self._named(item.name)) for item in graph.output]
        return self.build.finish(results[0] if len(results) == 1 else results)

    def _operation(self, node: Any) -> None:
        made = self._node(node)
        for output, value in zip(node.output, made if isinstance(made, list) else [made]):
            name = "".join(c if c.isalnum() else "_" for c in output)
            name = name if name[:1].isalpha() else f"v{name}"
            named = isinstance(value, Tree)
            self.keep(output, self.build.let(name, value) if named else value)

    def _body(self, node: Any, given: list[Any]) -> list[Any] | None:
        """Return what an operator gives that ONNX, or the model, defines by others; else None."""
        known = {name: self.known[name] for name in node.input if name in self.known}
        arrays = [(n, item) for n, item in zip(node.input, given) if isinstance(item, np.ndarray)]
        known |= {name: (NAMES[item.dtype.name], item.ndim) for name, item in arrays}
        found = taken_apart(self.onnx, self.model, node, known, self.version)
        if found is None:
            return None
        outside = self.values, self.known, self.last, self.version
        self.values = {name: item for name, item in zip(node.input, given) if name}
        self.known, self.last, (made, self.version) = known, {}, found
        self.know(made)
        for each in made.graph.node:
            self._operation(each)
        results = [self._named(name) for name in node.output]
        self.values, self.known, self.last, self.version = outside
        return results

    def keep(self, name: str, value: Any) -> None:
        """Note the value of a name."""
        self.values[name] = value
        if name in self.known:
            self.aten.know(value, *self.known[name])

    def _named(self, name: str) -> Any:
        """Return a value by its name; None where an optional input is left out."""
        if name and name not in self.values:
            raise self.build.refuse(f"the further result {name!r} of an operator is not supported")
        return self.values[name] if name else None

    def _tree(self, value: Any) -> Any:
        """Return a value as an operand: arrays become weights, and so do sizes."""
        if not isinstance(value, Sizes):
            return value
        build, kind = self.build, value.element
        if value.items.ndim > 1:
            raise build.refuse("sizes as an array of more axes are not supported")

        def one(item: Any) -> Any:
            if isinstance(item, Ratio):
                return build.binary("/", one(item.over), one(item.by))
            return build.cast(item, kind)

        items = [one(item) for item in value.items.reshape(-1)]
        made = build.call("stack", items, 0) if value.items.ndim else items[0]
        self.aten.know(made, kind, value.items.ndim)
        return made

    def _sizes(self, value: Any) -> list[Any]:
        """Return a value as sizes; refuses what depends on data."""
        if isinstance(value, Sizes):
            if value.real:
                raise self.build.refuse("sizes that are floats are not supported")
            return list(value.items.reshape(-1))
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
        if node.domain not in ("", "ai.onnx"):
            if (made := self._body(node, given)) is None:
                raise build.refuse(f"the operator {node.op_type} of {node.domain} is not supported")
            return made
        symbolic = any(isinstance(item, Sizes) for item in given)
        constant = given and all(isinstance(item, Sizes | np.ndarray | None) for item in given)
        first = bool(given) and isinstance(given[0], Sizes)
        if (
            symbolic
            and constant
            and (first or node.op_type in _JOINS)
            and node.op_type not in _MAKERS
        ):
            made = self._of_sizes(node, given, options)
            if made is not None:
                return made
        kind, aten = node.op_type, self.aten
        if constant and not symbolic and kind not in _OWN:
            return self._evaluated(node, given)
        x = self._tree(given[0]) if given else None
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
            case "Gelu":
                return aten.gelu(x, options.get("approximate", b"none").decode())
            case "LeakyRelu":
                return build.call("leaky_relu", x, slope=float(options.get("alpha", 0.01)))
            case "Elu":
                return build.call("elu", x, alpha=float(options.get("alpha", 1.0)))
            case "Mod":
                name = "fmod" if options.get("fmod") else "mod"
                return build.call(name, x, self._tree(given[1]))
            case "Div":
                return aten.div(x, self._tree(given[1]), "trunc" if self._whole(node) else None)
            case "PRelu":
                slope = aten.mul(x, self._tree(given[1]))
                return build.call("where", build.call("greater", x, 0.0), x, slope)
            case "Mean":
                total = functools.reduce(aten.add, map(self._tree, given))
                return aten.div(total, float(len(given)))
            case "Cast" if (element := self.element(options["to"])) is not None:
                return build.cast(x, element)
            case "Einsum":
                return build.call("einsum", options["equation"].decode(), *map(self._tree, given))
            case "Tile":
                return aten.repeat(x, self._sizes(given[1]))
            case "Range":
                made = aten.arange(*[self._sizes(item)[0] for item in given])
                element = next(item.element for item in given if isinstance(item, Sizes))
                return made if element == "i64" else build.cast(made, element)
            case "ArgMax" | "ArgMin" if not options.get("select_last_index"):
                keep = bool(options.get("keepdims", 1))
                return getattr(aten, kind.lower())(x, options.get("axis", 0), keep)
            case "TopK":
                count, axis = self._sizes(given[1])[0], options.get("axis", -1)
                found = aten.topk(x, count, axis, bool(options.get("largest", 1)))
                return [found.item(i) for i in range(len(node.output))]
            case "Trilu":
                places = self._numbers(given[1])[0] if len(given) > 1 else 0
                return build.call("triu" if options.get("upper", 1) else "tril", x, diagonal=places)
            case "GatherElements":
                return aten.gather(x, options.get("axis", 0), self._tree(given[1]))
            case "GatherND" if not options.get("batch_dims"):
                return self._gathered(x, given[1], node.input[1])
            case "CumSum" if not options.get("exclusive") and not options.get("reverse"):
                return build.call("cumsum", x, axis=self._numbers(given[1])[0])
            case "OneHot" if options.get("axis", -1) == -1 and isinstance(given[2], np.ndarray):
                off, on = given[2].tolist()
                count = self._sizes(given[1])[0]
                ended = build.call("where", build.call("less", x, 0), aten.add(x, count), x)
                made = build.call("one_hot", ended, classes=count)  # below 0 is from the end
                made = aten.add(aten.mul(made, float(on - off)), float(off))
                return build.cast(made, NAMES[given[2].dtype.name])
            case "NonZero":
                return build.call("transpose", build.call("nonzero", x))
            case "NonMaxSuppression":
                centers = bool(options.get("center_point_box"))
                return shared.suppressed(build, *map(self._tree, given), centers=centers)
            case "InstanceNormalization" if isinstance(given[1], np.ndarray):
                eps = options.get("epsilon", 1e-5)
                return aten.instance_norm(x, None, None, given[1], given[2], eps=eps)
            case "GroupNormalization" if self.version >= 21:
                groups, eps = options["num_groups"], options.get("epsilon", 1e-5)
                return aten.group_norm(x, groups, given[1], given[2], eps)
            case "LpNormalization" if options.get("p", 2) == 2:
                return aten.div(x, aten.norm(x, 2, [options.get("axis", -1)], True))
            case "DepthToSpace" if options.get("mode") == b"CRD":
                return build.call("pixel_shuffle", x, scale=options["blocksize"])
            case "DepthToSpace":
                size = options["blocksize"]
                x = build.call("unmerge", x, [size, size, -1], axis=1)
                x = build.call("permute", x, [0, 3, 4, 1, 5, 2])
                return build.call("merge", build.call("merge", x, axis=2, count=2), axis=3, count=2)
            case "SpaceToDepth":
                for axis in (3, 2):
                    x = build.call("unmerge", x, [-1, options["blocksize"]], axis=axis)
                return build.call("merge", aten.permute(x, 0, 3, 5, 1, 2, 4), axis=1, count=3)
            case "Attention" if len(given) < 5 and not {"softcap", "q_num_heads"} & {*options}:
                queries, keys, values, *mask = map(self._tree, given)
                aten.rank_for("attention over heads", x)
                return aten.scaled_dot_product_attention(
                    queries, keys, values, *mask, is_causal=bool(options.get("is_causal")),
                    scale=options.get("scale"),
                )  # fmt: skip
            case "If" if isinstance(given[0], np.ndarray):
                branch = options["then_branch" if given[0].item() else "else_branch"]
                self.values |= {item.name: self.array(item) for item in branch.initializer}
                for each in branch.node:
                    self._operation(each)
                return [self._named(item.name) for item in branch.output]
            case "Size":
                return Sizes(objects(build.call("size", x)))
            case "ConstantOfShape":
                value = self.array(options["value"]) if options else np.zeros(1, np.float32)
                made = build.call("full", value.item(), self._sizes(given[0]))
                return build.cast(made, NAMES[value.dtype.name])
            case "Constant":
                ((name, value),) = options.items()
                if name == "value":
                    return self.array(value)
                return np.asarray(value, np.float32 if "float" in name else None)
            case "Shape":
                axes = range(aten.rank_for("Shape", x))
                sizes = [build.call("dim", axis, x) for axis in axes]
                return folded(objects(sizes[options.get("start", 0) : options.get("end")]), "i64")
            case "Gather":
                axis = options.get("axis", 0)
                return build.call("gather", x, self._tree(given[1]), axis=axis)
            case "Conv" | "ConvTranspose":
                return self._conv(kind, given, options)
            case "Gemm":
                return self._gemm(given, options)
            case "MatMul":
                return aten.matmul(x, self._tree(given[1]))
            case "BatchNormalization" if not options.get("training_mode"):
                weight, bias, mean, var = given[1:]
                return aten.batch_norm(x, mean, var, weight, bias, eps=options.get("epsilon", 1e-5))
            case "LayerNormalization" if isinstance(given[1], np.ndarray):
                weight, bias = given[1], given[2] if len(given) > 2 else None
                if weight.ndim != -options.get("axis", -1):
                    raise build.refuse("a layer norm from an axis that is counted from the front")
                eps = options.get("epsilon", 1e-5)
                return aten.layer_norm(x, weight.shape, weight, bias, eps)
            case "MaxPool" | "AveragePool":
                return self._pool(kind, x, options)
            case "GlobalAveragePool" | "GlobalMaxPool":
                axes = [*range(2, aten.rank_for(kind, x))]
                name = "mean" if kind == "GlobalAveragePool" else "max"
                return shared.reduction(build, name, x, axes, keep=True)
            case "Flatten":
                axis = aten.axis_of("Flatten", x, options.get("axis", 1))
                x = build.call("merge", x, axis=0, count=axis)  # of none, an axis of size 1
                return build.call("flatten", x, axis=1)
            case "Reshape":
                sizes, own = self._sizes(given[1]), 0 if not options.get("allowzero") else None
                kept = [build.call("dim", i, x) if n == own else n for i, n in enumerate(sizes)]
                return build.call("reshape", x, kept)
            case "Transpose":
                order = options.get("perm") or reversed(range(aten.rank_for("Transpose", x)))
                return build.call("permute", x, list(order))
            case "Concat":
                return build.call("concat", [self._tree(item) for item in given], options["axis"])
            case "Softmax" | "LogSoftmax":
                name = "softmax" if kind == "Softmax" else "log_softmax"
                return build.call(name, x, axis=options.get("axis", -1))
            case "Unsqueeze":
                return build.call("insert", x, axes=self._numbers(given[1]))
            case "Squeeze" if len(given) > 1:
                return aten.squeeze(x, self._numbers(given[1]))
            case "Slice" if len(given) > 2:
                return self._slice(x, given)
            case "Split":
                return self._split(x, given, options, len(node.output))
            case "Pad":
                return self._pad(x, given, options.get("mode", b"constant").decode())
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
            case _ if (made := self._body(node, given)) is not None:
                return made
            case _:
                raise build.refuse(f"the operator {kind} is not supported with {options}")

    def _evaluated(self, node: Any, given: list[Any]) -> list[Any]:
        """Return what an operator gives of arrays that are known."""
        from onnx.reference import ReferenceEvaluator

        known = {name: item for name, item in zip(node.input, given) if name}
        return list(ReferenceEvaluator(node, opsets={"": self.version}).run(None, known))

    def _of_sizes(self, node: Any, given: list[Any], options: dict[str, Any]) -> Any:
        """Return what is computed of sizes as sizes, None where it is no such."""
        kind, first = node.op_type, given[0]
        element = next(item.element for item in given if isinstance(item, Sizes))
        join = self.aten._binary
        if kind in ("Cast", "Floor", "Ceil"):
            if kind == "Cast" and (element := self.element(options["to"])) not in _WIDE:
                return None
            whole = kind != "Cast" or element.startswith("i")
            return folded(rounded(kind, join, first.items) if whole else first.items, element)
        if kind in ("Shape", "Size"):
            return np.array(getattr(first.items, kind.lower()))
        data = given if kind in _JOINS else given[:1]
        parts = [objects_of(item) for item in data]
        if any(part is None for part in parts) or any(
            isinstance(x, Sizes) for x in given[len(data) :]
        ):
            return None
        if kind in _MOVES:
            items, places = list[Any](), list[Any]()
            for part in parts:
                places.append(np.arange(len(items), len(items) + part.size).reshape(part.shape))
                items += part.reshape(-1).tolist()
            (moved,) = self._evaluated(node, [*places, *given[len(data) :]])
            return folded(objects(items)[moved], element)
        return computed(kind, parts, element, options, join)

    def _gathered(self, x: Any, index: Any, name: str) -> Any:
        """Return the items whose places along the first axes an index has in its last."""
        if isinstance(index, np.ndarray):
            return self.aten.index(x, [index[..., n] for n in range(index.shape[-1])])
        if not self.last.get(name):
            raise self.build.refuse("GatherND by an index of unknown size is not supported")
        parts = [self.aten.select(index, -1, n) for n in range(self.last[name])]
        for part in parts:
            self.aten.know(part, "i64", self.known[name][1] - 1)
        return self.aten.index(x, parts)

    def _pads(self, rank: int, options: dict[str, Any]) -> list[tuple[int, int, int]]:
        """Return what is put before and after each axis of a window."""
        auto = options.get("auto_pad", b"NOTSET")
        if auto in (b"SAME_UPPER", b"SAME_LOWER") and set(options.get("strides", [1])) == {1}:
            sizes = zip(options["kernel_shape"], options.get("dilations", [1] * rank))
            beyond = [(k - 1) * d for k, d in sizes]
            less = [n // 2 if auto == b"SAME_UPPER" else n - n // 2 for n in beyond]
            return [(2 + axis, b, n - b) for axis, (b, n) in enumerate(zip(less, beyond))]
        if auto not in (b"NOTSET", b"VALID"):
            raise self.build.refuse("auto_pad by strides is not supported", "export pads")
        pads = options.get("pads", [0] * 2 * rank)
        return [(2 + axis, pads[axis], pads[rank + axis]) for axis in range(rank)]

    def _conv(self, kind: str, given: list[Any], options: dict[str, Any]) -> Tree:
        weight, bias = given[1], given[2] if len(given) > 2 else None
        rank = weight.ndim - 2 if isinstance(weight, np.ndarray) else len(options["kernel_shape"])
        if isinstance(weight, np.ndarray):
            options = {"kernel_shape": weight.shape[2:], **options}
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
        x, weight = (
            self._turned(item) if options.get(name) else self._tree(item)
            for item, name in zip(given, ("transA", "transB"))
        )
        made = self.aten.mul(self.build.call("linear", x, weight), float(options.get("alpha", 1)))
        bias = [item for item in given[2:] if item is not None]
        return self.aten.add(made, self._tree(bias[0]), options.get("beta", 1)) if bias else made

    def _turned(self, matrix: Any) -> Any:
        turn = isinstance(matrix, np.ndarray)
        return matrix.T if turn else self.build.call("transpose", self._tree(matrix))

    def _whole(self, node: Any) -> bool:
        return self.known.get(node.output[0], ("f", 0))[0].startswith(("i", "u"))

    def _pool(self, kind: str, x: Any, options: dict[str, Any]) -> Tree:
        sizes = list(options["kernel_shape"])
        rank = len(sizes)
        pads, ceil = self._pads(rank, options), bool(options.get("ceil_mode"))
        equal = all(before == after for _, before, after in pads)
        counted = kind == "MaxPool" or options.get("count_include_pad")
        counted = bool(counted or not any(before or after for _, before, after in pads))
        if (
            not (counted or equal)
            or set(options.get("dilations", [1])) != {1}
            or (ceil and not equal)
        ):
            raise self.build.refuse(f"this {kind} is not supported: {options}")
        name = "max_pool" if kind == "MaxPool" else "avg_pool"
        if not equal:
            x = shared.padded(self.build, x, pads, -np.inf if kind == "MaxPool" else 0)
            pads = [(0, 0, 0)] * rank
        stride, inside = options.get("strides", [1] * rank), [before for _, before, _ in pads]
        return shared.pool(self.build, name, x, sizes, list(stride), inside, ceil, counted)

    def _reduce(self, kind: str, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        axes: Any = options.get("axes")
        if len(given) > 1 and given[1] is not None:
            axes = self._numbers(given[1])
        keep = bool(options.get("keepdims", 1))
        if not axes:
            if options.get("noop_with_empty_axes"):
                return self.build.call("identity", x)
            axes = [*range(self.aten.rank_for(kind, x))] if keep else None
        name, before = _REDUCTIONS[kind]
        x = self.build.call(before, x) if before else x
        return shared.reduction(self.build, name, x, axes, keep)

    def _slice(self, x: Any, given: list[Any]) -> Any:
        starts, ends = self._sizes(given[1]), self._sizes(given[2])
        named = len(given) > 3 and given[3] is not None
        axes = self._numbers(given[3]) if named else list(range(len(starts)))
        steps = self._numbers(given[4]) if len(given) > 4 else [1] * len(starts)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            if (start, step) == (-1, -1) and isinstance(end, int) and end <= -(2**31):
                x = self.build.call("flip", x, axis=axis)
                continue
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

    def _pad(self, x: Any, given: list[Any], mode: str) -> Any:
        pads, count = self._sizes(given[1]), len(self._sizes(given[1])) // 2
        value = given[2] if len(given) > 2 and given[2] is not None else np.zeros(1)
        if not isinstance(value, np.ndarray):
            raise self.build.refuse("padding by what is computed is not supported")
        named = len(given) > 3 and given[3] is not None
        axes = self._numbers(given[3]) if named else list(range(count))
        widths = [*zip(axes, pads[:count], pads[count:])]
        how = "" if mode == "constant" else shared.PADDINGS[mode]
        return shared.padded(self.build, x, widths, value.item(), how)

    def _resize(self, x: Any, given: list[Any], options: dict[str, Any]) -> Tree:
        scales = given[2] if len(given) > 2 else None
        how = options.get("coordinate_transformation_mode", b"half_pixel").decode()
        rounded = options.get("nearest_mode", b"round_prefer_floor").decode()
        halves = ("half_pixel", "pytorch_half_pixel")
        mode = options.get("mode", b"nearest").decode()
        corners = how == "align_corners" and mode == "linear"
        lines = mode == "linear" and (corners or how in halves)
        kept = options.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
        if not kept or options.get("antialias") or options.get("axes"):
            raise self.build.refuse(f"Resize is not supported with {options}")
        if len(given) > 3 and (lines or (mode, how, rounded) == ("nearest", "asymmetric", "floor")):
            sizes = self._sizes(given[3])
            if how == "pytorch_half_pixel" and 1 in sizes[2:]:  # its first item, not its middle
                raise self.build.refuse(f"Resize by {how} to a size of 1 is not supported")
            if lines:
                made = shared.interpolated(self.build, x, sizes[2:], corners)
            else:
                made = shared.resized(self.build, x, sizes[2:])
            # The first axes are as they were, or of 1 item, which is repeated.
            return self.build.call("reshape", self.build.call("expand", made, sizes), sizes)
        if not isinstance(scales, np.ndarray) or len(scales) < 3 or any(scales[:2] != 1):
            raise self.build.refuse("Resize is supported with scales of the axes after the second")
        repeats = rounded.startswith("round") if how in halves else rounded == "floor"
        if not lines and (how not in (*halves, "asymmetric") or not repeats or mode == "linear"):
            raise self.build.refuse(f"Resize by {how} and {rounded} is not supported")
        return shared.upsampled(self.build, x, scales[2:].tolist(), mode, len(scales) - 2, corners)
