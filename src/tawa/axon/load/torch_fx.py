"""Graphs of `torch.fx`: modules traced with symbols, so without an example input.

Length: one case a module, function and method.
"""
# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from tawa.axon.load.graph import Builder, Graph
from tawa.axon.syntax.tree import Tree
from tawa.errors import MissingPackage

POINTWISE = {
    "ReLU": "relu", "ReLU6": "relu6", "GELU": "gelu", "SiLU": "silu", "Sigmoid": "sigmoid",
    "Tanh": "tanh", "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid", "Mish": "mish",
    "Softplus": "softplus", "Identity": "identity", "Dropout": "identity", "Dropout2d": "identity",
}  # fmt: skip
FUNCTIONS = {
    "relu": "relu", "relu_": "relu", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid",
    "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "rsqrt": "rsqrt", "hardtanh": "relu6",
    "contiguous": "identity", "dropout": "identity", "neg": "neg", "abs": "abs",
    "clone": "identity",
}  # fmt: skip
OPERATORS = {
    "add": "+", "iadd": "+", "sub": "-", "mul": "*", "imul": "*", "truediv": "/", "div": "/",
    "floordiv": "//", "mod": "%", "isub": "-",
}  # fmt: skip


def load_fx(module: Any, dims: Mapping[str, str] | None = None) -> Graph:
    """Return a module of torch as a graph.

    `dims` gives the sizes of inputs by name, as in `{"x": "n 3 h w"}`; of others all is inferred.
    Raises AxonError for shapes that cannot fit and, by name, for what is not supported.

    Example::

        graph = axon.load_fx(torchvision.models.resnet34(), dims={"x": "n 3 h w"})
        print(graph.guards, graph.shapes["layer1_0_conv1"])
    """
    try:
        import torch.fx
    except ImportError as error:
        raise MissingPackage("torch is not installed", remedy="pip install torch") from error
    traced = module if isinstance(module, torch.fx.GraphModule) else torch.fx.symbolic_trace(module)
    return _Import(traced, dict(dims or {})).run()


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


class _Import:
    def __init__(self, traced: Any, dims: dict[str, str]) -> None:
        self.traced = traced
        self.dims = dims
        self.build = Builder(f"<{type(traced).__name__}>")
        self.values: dict[Any, Any] = {}

    def run(self) -> Graph:
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                element = "i64" if self._indexes(node) else "f32"
                text = self.dims.get(node.name)
                self.values[node] = self.build.input(node.name, text, element)
                continue
            self.build.line(f"{node.name} = {node.target}({', '.join(map(str, node.args))})")
            if node.op == "output":
                return self.build.finish(self._value(node.args[0]))
            if node.op == "get_attr":
                found: Any = self.traced
                for part in node.target.split("."):
                    found = getattr(found, part)
                self.values[node] = self.build.weight(_array(found))
                continue
            made = self._node(node)
            if isinstance(made, Tree) and not self._is_size(node):
                made = self.build.let(node.name, made)
            self.values[node] = made
        raise self.build.refuse("the graph has no output")

    def _indexes(self, node: Any) -> bool:
        """Tell whether an input is used as indices of an embedding."""
        modules = dict(self.traced.named_modules())
        return any(
            user.op == "call_module" and type(modules[user.target]).__name__ == "Embedding"
            for user in node.users
        )

    def _is_size(self, node: Any) -> bool:
        return node.op == "call_method" and node.target == "size"

    def _value(self, given: Any) -> Any:
        if isinstance(given, tuple | list):
            return [self._value(item) for item in given]
        return self.values.get(given, given) if type(given).__name__ == "Node" else given

    def _node(self, node: Any) -> Any:
        arguments = [self._value(item) for item in node.args]
        options = {name: self._value(item) for name, item in node.kwargs.items()}
        if node.op == "call_module":
            return self._module(self.traced.get_submodule(node.target), arguments)
        name = node.target if node.op == "call_method" else node.target.__name__
        if node.target is getattr and arguments[1] == "shape":
            return _Shape(arguments[0])
        return self._function(name, arguments, options)

    def _module(self, module: Any, arguments: list[Any]) -> Tree:
        build, name = self.build, type(module).__name__
        (x,) = arguments
        if name in POINTWISE:
            return build.call(POINTWISE[name], x)
        match name:
            case "Conv1d" | "Conv2d" | "Conv3d":
                return self._conv(module, x)
            case "ConvTranspose1d" | "ConvTranspose2d" | "ConvTranspose3d":
                return self._conv(module, x, transposed=True)
            case "Linear":
                made = build.call("linear", x, build.weight(_array(module.weight.T)))
                if module.bias is None:
                    return made
                return build.binary("+", made, build.weight(_array(module.bias)))
            case "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d":
                parts = (
                    module.running_mean, module.running_var + module.eps - 1e-5, module.weight,
                    module.bias,
                )  # fmt: skip
                if module.training or any(part is None for part in parts):
                    raise build.refuse("batch norm in training", "call module.eval() first")
                return build.call("batch_norm", *[build.weight(_array(p)) for p in parts], x)
            case "LayerNorm" if len(module.normalized_shape) == 1 and module.eps == 1e-5:
                parts = module.weight, module.bias
                return build.call("layer_norm", *[build.weight(_array(p)) for p in parts], x)
            case "GroupNorm" if module.eps == 1e-5:
                parts = [build.weight(_array(p)) for p in (module.weight, module.bias)]
                return build.call("group_norm", *parts, x, groups=module.num_groups)
            case "MaxPool1d" | "MaxPool2d" | "MaxPool3d" if not module.ceil_mode:
                if module.dilation not in (1, (1, 1), (1, 1, 1)):
                    raise build.refuse("a pool with dilation is not supported")
                return self._pool("max_pool", module, x)
            case "AvgPool1d" | "AvgPool2d" | "AvgPool3d" if not module.ceil_mode:
                return self._pool("avg_pool", module, x)
            case "AdaptiveAvgPool2d" if module.output_size in (1, (1, 1)):
                return build.call("mean_keep", x, axes=[2, 3])
            case "AdaptiveAvgPool1d" if module.output_size in (1, (1,)):
                return build.call("mean_keep", x, axes=[2])
            case "Upsample" if module.mode == "nearest" and module.scale_factor is not None:
                return build.call("upsample", x, scale=int(module.scale_factor))
            case "Flatten" if module.end_dim == -1 and module.start_dim >= 0:
                return build.call("flatten", x, axis=module.start_dim)
            case "Softmax":
                return build.call("softmax", x, axis=module.dim)
            case "Embedding":
                return build.call("embedding", build.weight(_array(module.weight)), x)
            case _:
                raise build.refuse(f"{name} is not supported: {module}")

    def _conv(self, module: Any, x: Any, transposed: bool = False) -> Tree:
        build = self.build
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            raise build.refuse("padding by name is not supported", "give numbers")
        options = {
            "stride": list(module.stride),
            "pad": list(module.padding),
            "dilation": list(module.dilation),
            "groups": module.groups,
        }
        if transposed:
            options["extra"] = list(module.output_padding)
        name = "conv_transpose" if transposed else "conv"
        made = build.call(name, build.weight(_array(module.weight)), x, **options)
        if module.bias is None:
            return made
        bias = module.bias.reshape(-1, *[1] * len(module.stride))
        return build.binary("+", made, build.weight(_array(bias)))

    def _pool(self, name: str, module: Any, x: Any) -> Tree:
        def each(value: Any) -> Any:
            return list(value) if isinstance(value, tuple) else value

        sizes = {"size": each(module.kernel_size), "stride": each(module.stride)}
        return self.build.call(name, x, **sizes, pad=each(module.padding))

    def _function(self, name: str, arguments: list[Any], options: dict[str, Any]) -> Any:
        build = self.build
        if name in FUNCTIONS:
            return build.call(FUNCTIONS[name], arguments[0])
        if name in OPERATORS and len(arguments) == 2:
            if all(isinstance(item, int) for item in arguments):
                return getattr(operator, name)(*arguments)
            return build.binary(OPERATORS[name], *arguments)
        x, *rest = arguments
        match name:
            case "getitem" if isinstance(x, _Shape) and isinstance(rest[0], int):
                return _Size(build.call("dim", rest[0], x.of))
            case "size" if rest:
                return build.call("dim", rest[0], x)
            case "size":
                return _Shape(x)
            case "cat" | "concat" | "stack":
                axis = options.get("dim", rest[0] if rest else 0)
                return build.call("stack" if name == "stack" else "concat", x, axis)
            case "matmul" | "bmm":
                return build.call("matmul", x, rest[0])
            case "softmax":
                return build.call("softmax", x, axis=options.get("dim", rest[0] if rest else None))
            case "view" | "reshape":
                sizes = rest[0] if isinstance(rest[0], list) else rest
                return build.call("reshape", x, sizes)
            case "permute":
                return build.call("permute", x, rest[0] if isinstance(rest[0], list) else rest)
            case "transpose":
                first, second = sorted(rest, key=lambda axis: (axis < 0, axis))
                return build.call("swap", x, first=first, second=second)
            case "flatten" if len(rest) <= 1:
                return build.call(
                    "flatten", x, axis=rest[0] if rest else options.get("start_dim", 0)
                )
            case "unsqueeze" | "squeeze" if rest:
                return build.call(name, x, axis=rest[0])
            case "mean" | "sum":
                axes = options.get("dim", rest[0] if rest else None)
                if axes is None:
                    return build.call(f"{name}_all", x)
                kept = options.get("keepdim", rest[1] if len(rest) > 1 else False)
                axes = axes if isinstance(axes, list) else [axes]
                return build.call(f"{name}_keep" if kept else name, x, axes=axes)
            case _:
                raise build.refuse(f"the function {name} is not supported here")


class _Shape:
    """The shape of a value, before one of its sizes is taken."""

    def __init__(self, of: Any) -> None:
        self.of = of


def _Size(tree: Tree) -> Tree:  # noqa: N802
    return tree
