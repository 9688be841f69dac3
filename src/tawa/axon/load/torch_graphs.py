"""Graphs of torch: modules traced by `torch.fx` with symbols, and programs of `torch.export`.

A module is traced into the modules of `torch.nn` as well, so that what is left are functions, whose
meaning is in `load/aten.py`, as that of an exported program.
"""
# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tawa.axon.load.aten import Aten
from tawa.axon.load.aten_shapes import Parts
from tawa.axon.load.graph import Builder, Graph, sizes_of
from tawa.axon.run.values import NAMES
from tawa.axon.syntax.tree import Tree
from tawa.errors import AxonError, MissingPackage


def _torch() -> Any:
    try:
        import torch
        import torch.fx
    except ImportError as error:
        raise MissingPackage("torch is not installed", remedy="pip install torch") from error
    return torch


def load_fx(module: Any, dims: Mapping[str, str] | None = None) -> Graph:
    """Return a module of torch as a graph.

    `dims` gives the sizes of inputs by name, as in `{"x": "n 3 h w"}`; of others all is inferred.
    What a module of `torch.nn` gives has its name. Raises AxonError for shapes that cannot fit and,
    by name and with the line of the module, for what is not supported.

    Example::

        graph = axon.load_fx(torchvision.models.resnet34(), dims={"x": "n 3 h w"})
        print(graph.guards, graph.shapes["layer1_0_conv1"])
    """
    loader, elements = _Import(f"<{type(module).__name__}>"), 0
    nodes = list(trace(module).nodes)
    given = sizes_of(dims, (node.target for node in nodes if node.op == "placeholder"))
    for node in nodes:
        match node.op:
            case "placeholder":
                elements += 1
                loader.input(node, given.get(node.target), f"'x{elements}")
            case "get_attr":
                found = module
                for part in node.target.split("."):
                    found = getattr(found, part)
                loader.weight(node, found)
            case "output":
                return loader.finish(node.args[0])
            case _:
                loader.operation(node)
    raise loader.build.refuse("the graph has no output")


def load_export(program: Any, dims: Mapping[str, str] | None = None) -> Graph:
    """Return a program of `torch.export` as a graph.

    `dims` gives the sizes of inputs by name, as in `{"x": "n 3 h w"}`; others have the sizes of the
    program, its symbols by its names for them. Guards are inferred: those that an example input put
    on symbols are not taken over. Raises AxonError as `load_fx`.

    Example::

        program = torch.export.export(module, (x,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
        print(axon.load_export(program, dims={"x": "n d"}).guards)
    """
    _torch()
    signature = program.graph_signature
    given = sizes_of(dims, signature.user_inputs)
    loader = _Import("<exported program>")
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    results = [node for node in output.args[0] if node.name in signature.user_outputs]
    needed = _needed(results, program.graph.nodes)  # others assert what the example was
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in held:
            name = held[node.name]
            constant = name not in program.state_dict
            loader.weight(node, (program.constants if constant else program.state_dict)[name])
        elif node.op == "placeholder":
            value = node.meta["val"]
            if value is None:  # an argument that is left out
                loader.values[node] = None
                continue
            if not hasattr(value, "shape"):
                raise loader.build.refuse(
                    f"the input {node.name}, which is no array, is not supported"
                )
            sizes = given.get(node.name) or " ".join(map(str, value.shape))
            loader.input(node, sizes, NAMES[str(value.dtype).removeprefix("torch.")])
        elif node in needed and node.op != "output":
            loader.operation(node)
    return loader.finish(results[0] if len(results) == 1 else results)


def _needed(results: Iterable[Any], nodes: Iterable[Any]) -> set[Any]:
    writes = [node for node in nodes if _in_place(node)]
    found, left = set[Any](), list(results)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(node.all_input_nodes)
        left = left or [each for each in writes if each not in found and found & _aliases(each)]
    return found


def _in_place(node: Any) -> bool:
    """Whether an operation writes its result to its first operand as well."""
    if not node.op.startswith("call") or not node.args or not hasattr(node.args[0], "users"):
        return False
    name = _name(node)
    own = name.endswith("_") and not name.endswith("__")
    return own or name in _IN_PLACE or bool(node.kwargs.get("inplace"))


def _aliases(node: Any) -> set[Any]:
    """Return the nodes that may be in the memory to which a node writes."""
    root = node.args[0]
    while root.op.startswith("call") and root.args and (_view(root) or _in_place(root)):
        root = root.args[0]
    found, left = set[Any](), [root]
    while left:
        each = left.pop()
        found.add(each)
        left += [u for u in each.users if u.args[:1] == (each,) and (_view(u) or _in_place(u))]
    return found


def _same(node: Any) -> list[Any]:
    """Return the nodes that are all of the array to which a node writes."""
    found = [node.args[0]]
    while _in_place(found[-1]):
        found.append(found[-1].args[0])
    return found


def _view(node: Any) -> bool:
    """Whether what an operation gives may be in the memory of its first operand."""
    name = _name(node) if node.op.startswith("call") else ""
    return name in _VIEWS or _views(name) or (name == "getattr" and node.args[1] != "shape")


@cache
def _views(name: str) -> bool:
    """Whether torch says of an operator that its result may be in the memory of its operand."""
    packet = getattr(_torch().ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else ()
    given = [getattr(packet, each)._schema.arguments[:1] for each in overloads]
    aliases = [arguments[0].alias_info for arguments in given if arguments]
    return any(alias is not None and not alias.is_write for alias in aliases)


_IN_PLACE = {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "setitem"}
# What torch says of no operator: Python's own, and what may give its operand as it is.
_VIEWS = {
    *("getitem", "float", "double", "half", "bfloat16", "bool", "long", "int", "short", "char"),
    *("byte", "type_as", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout"),
    *("alpha_dropout", "feature_alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d"),
}


def trace(module: Any) -> Any:
    """Return the graph of a module, down to functions; `meta["path"]` is the module of a node."""
    torch = _torch()
    norm = torch.nn.modules.batchnorm

    class Tracer(torch.fx.Tracer):
        def __init__(self) -> None:
            super().__init__()
            held = [*module.named_parameters(), *module.named_buffers()]
            self.held = {id(tensor): name for name, tensor in held}

        def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
            name = self.held.get(id(attr_val))
            if name is None:
                return super().getattr(attr, attr_val, parameter_proxy_cache)
            if name not in parameter_proxy_cache:
                parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
            return parameter_proxy_cache[name]

        def create_node(self, kind: str, *rest: Any, **options: Any) -> Any:
            node = super().create_node(kind, *rest, **options)
            if kind.startswith("call"):
                node.meta["stack_trace"] = _user(torch)
            return node

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return False

        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(m, norm._BatchNorm):  # whose forward asks for a rank
                forward = lambda x: torch.nn.functional.batch_norm(  # noqa: E731
                    x, m.running_mean, m.running_var, m.weight, m.bias, m.training, 0.0, m.eps
                )
            elif isinstance(m, torch.nn.modules.instancenorm._InstanceNorm):
                forward = lambda x: torch.nn.functional.instance_norm(  # noqa: E731
                    x, None, None, m.weight, m.bias, not m.track_running_stats, 0.0, m.eps
                )
            try:
                made = super().call_module(m, forward, args, kwargs)
            except AxonError:
                raise
            except Exception as error:
                name, text = type(m).__name__, str(error).split("\n", maxsplit=1)[0]
                what = f"{name} is not supported: it cannot be traced without an example"
                raise AxonError(what, why=text) from error
            node = getattr(made, "node", None)
            if node is not None and node.op.startswith("call") and super().is_leaf_module(m, ""):
                node.meta.setdefault("path", self.path_of_module(m))
            return made

    try:
        return Tracer().trace(module)
    except torch.fx.proxy.TraceError as error:
        raise AxonError(
            f"{type(module).__name__} is not supported: what it computes depends on values",
            why=str(error),
            remedy="take the decision outside of the module, or load what `torch.export` makes",
        ) from error


def _user(torch: Any) -> str:
    """Return the innermost line that runs and is neither torch's nor ours, as a traceback has it.

    Torch's own record of it takes milliseconds an operation.
    """
    frame, outside = sys._getframe(), (str(Path(torch.__file__).parent), __file__)
    while frame is not None and frame.f_code.co_filename.startswith(outside):
        frame = frame.f_back
    if frame is None:
        return ""
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).strip()
    return f'File "{file}", line {line}, in {frame.f_code.co_name}\n    {text}'


def _array(tensor: Any) -> Any:
    """Return a tensor as an array of NumPy, which has none of bfloat16.

    A copy: weights are constants, though the module's may be written to (`load_state_dict`).
    """
    tensor = tensor.detach().to("cpu", copy=True)
    return tensor if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()


class _Import:
    """Operations of torch in the order in which they stand."""

    def __init__(self, file: str) -> None:
        self.build = Builder(file)
        self.aten = Aten(self.build)
        self.values: dict[Any, Any] = {}

    def input(self, node: Any, sizes: str | None, element: str) -> None:
        """Add an input."""
        self.values[node] = self.build.input(node.name, sizes, element)
        if (value := node.meta.get("val")) is not None:
            self.aten.know(self.values[node], element, value.ndim)

    def weight(self, node: Any, tensor: Any) -> None:
        """Note a parameter, which becomes a weight where it is used."""
        self.values[node] = tensor if tensor is None else _array(tensor)
        if tensor is not None and (element := NAMES.get(str(tensor.dtype)[6:])) is not None:
            self.aten.know(self.values[node], element, tensor.ndim)

    def finish(self, result: Any) -> Graph:
        """Return the graph."""
        return self.build.finish(self._value(result))

    def operation(self, node: Any) -> None:
        """Add a call of a function or a method."""
        name = node.meta.get("path", node.name).replace(".", "_")
        function = _name(node)
        text = f"{name} = {function}({', '.join(map(str, node.args))})"
        self.build.line(text, _written(node))
        if hasattr(node.target, "overloadpacket") and hasattr(Aten, f"aten_{function}"):
            function = f"aten_{function}"
        options = {each: self._value(item) for each, item in node.kwargs.items()}
        if _in_place(node):
            order = {each: place for place, each in enumerate(node.graph.nodes)}
            before = [each for each in _aliases(node) if order[each] < order[node]]
            stale = [user for each in before if each not in _same(node) for user in each.users]
            if any(order[user] > order[node] for user in stale):
                raise self.build.refuse(
                    f"{function} in place, of an array that is read by another name afterwards, "
                    "is not supported",
                    "leave the array as it is: x = x + 1 in place of x += 1",
                )
        arguments, result = [self._value(item) for item in node.args], node.meta.get("val")
        element = NAMES.get(str(getattr(result, "dtype", "")).removeprefix("torch."))
        made = self._computed(node, arguments, options)
        if made is None:
            made = self.aten.apply(function, arguments, options, element)
        self.values[node] = self.build.let(name, made) if isinstance(made, Tree) else made
        if result is not None and element is not None:
            self.aten.know(self.values[node], element, result.ndim)
        if _in_place(node):
            self.values.update(dict.fromkeys(_same(node), self.values[node]))

    def _computed(self, node: Any, arguments: Any, options: Any) -> Any:
        """Return what torch computes where all is known: an array; None where it is not."""
        import torch

        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if not isinstance(node.target, torch._ops.OpOverload) or _in_place(node) or random:
            return None

        def tensor(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [tensor(item) for item in value]
            return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

        flat = [*arguments, *options.values()]
        while any(isinstance(each, list | tuple) for each in flat):
            flat = [
                e for each in flat for e in (each if isinstance(each, list | tuple) else [each])
            ]
        if any(isinstance(each, Tree | Parts) for each in flat) or "dropout" in _name(node):
            return None
        with torch.no_grad():
            made = node.target(*tensor(arguments), **{k: tensor(v) for k, v in options.items()})
        return _array(made) if isinstance(made, torch.Tensor) else None

    def _value(self, given: Any) -> Any:
        match given:
            case dict():
                return [self._value(item) for item in given.values()]
            case list() | tuple():
                items = [self._value(item) for item in given]
                return items if isinstance(given, list) else tuple(items)
            case slice():
                return slice(*map(self._value, (given.start, given.stop, given.step)))
            case _:
                return self.values[given] if type(given).__name__ == "Node" else given


def _name(node: Any) -> str:
    """Return the name of the operator that a node calls."""
    target = node.target
    if node.op == "call_method":
        return target
    return getattr(target, "overloadpacket", target).__name__


def _written(node: Any) -> str:
    """Return where a module's source has an operation, as its file, line and text."""
    found = re.match(r'\s*File "([^"]+)", line (\d+), in .*\n\s*(.*)', node.stack_trace or "")
    return f"{found[1]}:{found[2]}: {found[3]}" if found else ""
