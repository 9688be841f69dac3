"""What a compilation depends on beyond its arguments: the kernel's text and the compiler's.

The text of a kernel is its source with file and line (they appear in labels and in the generated
code), that of every helper it calls, and the value of every global and closure variable it reads.
The same walk yields the bindings to watch: when one is rebound, the kernel is compiled anew.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, cast

from tawa.frontend.aggregates import aggregate_of
from tawa.frontend.source import UNSET, contents, held_by, source_of, unwrapped
from tawa.syntax import parse
from tawa.version import __version__

NAMELESS = "(nameless)"
"""In the text of what has no other name than its address: it means nothing to other processes."""
_BESIDE = ("axon", "cypress", "kernels", "ppl", "tools", "__pycache__")
"""Folders of the package that no compilation reads; kernels are told by their own text."""
_LIBRARIES = ("triton", "tawa")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ON_HEAP = 1 << 9  # a class made by a class statement: Py_TPFLAGS_HEAPTYPE


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A variable a kernel reads: `value` as it was, in a `namespace` or a closure `cell`.

    UNSET for one that had no value: the kernel is read again once it has.
    """

    name: str
    value: object
    namespace: Mapping[str, Any] | None = None
    cell: CellType | None = None

    def changed(self) -> bool:
        """Tell whether the variable has been rebound since."""
        if self.cell is not None:
            return contents(self.cell) is not self.value
        return self.namespace is not None and self.namespace.get(self.name, UNSET) is not self.value


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hash of a kernel's text, and the variables whose rebinding makes it stale."""

    digest: str
    bindings: tuple[Binding, ...]


def fingerprint(function: FunctionType) -> Fingerprint:
    """Return the fingerprint of a kernel; raises OSError when its source is not to be had."""
    reading = _Reading()
    reading.follow(unwrapped(function))
    return Fingerprint(reading.digest, tuple(reading.bindings.values()))


def functions_of(function: FunctionType) -> tuple[FunctionType, ...]:
    """Return a kernel's function and every helper of the user's that it calls, in source order.

    Raises OSError where a source is not to be had.
    """
    reading = _Reading()
    reading.follow(unwrapped(function))
    code = {item: item.__code__ for item in reading.functions}
    return tuple(sorted(code, key=lambda f: (code[f].co_filename, code[f].co_firstlineno)))


def describe(value: Any) -> str:
    """Return the text that stands for a constant in a key; a helper's is its fingerprint.

    Of the user's classes and objects it has all that they hold. NAMELESS is in the text of what
    only this process can tell from another.
    """
    reading = _Reading()
    text = reading.describe(value)
    return f"{text} {reading.digest}" if reading.parts else text


class _Reading:
    """One walk over a kernel, or a constant, and all they refer to."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.bindings: dict[tuple[int, str], Binding] = {}
        self.functions: set[FunctionType] = set()
        self.open: set[int] = set()

    @property
    def digest(self) -> str:
        """The hash of what was read; it begins with NAMELESS where that was in it."""
        here = NAMELESS if any(NAMELESS in part for part in self.parts) else ""
        text = "\0".join(self.parts).encode()
        return here + hashlib.sha256(text, usedforsecurity=False).hexdigest()

    def follow(self, function: FunctionType) -> None:
        """Read a function, and the helpers and variables that it names."""
        self.functions.add(function)
        source, code = source_of(function), function.__code__
        self.parts += [function.__qualname__, code.co_filename, str(code.co_firstlineno), source]
        for defaults in (function.__defaults__, function.__kwdefaults__):
            self.parts.append(self.describe(defaults))
        for chain in _chains(source, code):
            if not (found := _resolve(function, chain)):
                continue
            for binding in filter(_may_change, found):
                place = id(binding.cell or binding.namespace)
                self.bindings.setdefault((place, binding.name), binding)
            value = found[-1].value
            if value is UNSET:
                self.parts += [".".join(chain), "(no value)"]
            elif (helper := _user_function(value)) is None:
                self.parts += [".".join(chain), self.describe(value)]
            elif helper not in self.functions:
                self.follow(helper)

    def describe(self, value: Any) -> str:
        """Return the text of a value; the functions in it are followed."""
        if type(value) in _PLAIN:
            return repr(value)
        if (function := _function_in(value)) is not None:
            return self._function(function)
        if isinstance(value, ModuleType):
            return value.__name__
        if type(value).__name__ == "constexpr":
            return f"constexpr {self.describe(value.value)}"
        if id(value) in self.open:
            return "itself"
        self.open.add(id(value))
        try:
            return self._composed(value)
        finally:
            self.open.remove(id(value))

    def _function(self, function: FunctionType) -> str:
        """Follow a function of the user's; return its name, which is all there is of a library's.

        Triton's own reductions are wrapped as a user's helpers are, by what holds locks and the
        whole of their module: that has addresses, and no kernel that calls one would be kept.
        """
        if (helper := _user_function(function)) is None:
            return f"{function.__module__}.{function.__qualname__}"
        if helper not in self.functions:
            try:
                self.follow(helper)
            except (OSError, SyntaxError):
                self.parts.append(f"{NAMELESS} {helper!r}")
        return f"{helper.__module__}.{helper.__qualname__}"

    def _composed(self, value: Any) -> str:
        kind = cast("type[Any]", type(value))
        name = f"{kind.__module__}.{kind.__qualname__}"
        match value:
            case Enum():
                return f"{name}.{value.name} {self.describe(value.value)}"
            case tuple() | list():
                items = map(self.describe, cast("Iterable[Any]", value))
                return f"{name}({', '.join(items)})"
            case set() | frozenset():
                items = map(self.describe, cast("Iterable[Any]", value))
                return f"{name}({', '.join(sorted(items))})"
            case dict():
                return f"{name}({self._named(cast('Mapping[Any, Any]', value))})"
            case type():
                aggregate = aggregate_of(value)
                fields = self._named(aggregate.fields) if aggregate is not None else ""
                return f"{value.__module__}.{value.__qualname__}{self._members(value)}{fields}"
            case _ if inspect.isroutine(value) and hasattr(value, "__qualname__"):
                return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
            case _:
                plain = kind.__repr__ is object.__repr__ and kind.__flags__ & _ON_HEAP
                text = "" if plain else repr(value)
                here = NAMELESS if _ADDRESS.search(text) else ""
                held: dict[str, Any] = {**getattr(value, "__dict__", {}), **_slots(value)}
                return f"{here}{name}{self._members(kind)} {text} {self._named(held)}"

    def _members(self, kind: type) -> str:
        """Return what the user's classes among a class and its bases hold; those of Python itself
        and of the compiler's are told by their versions.
        """
        classes = [c for c in kind.__mro__ if c.__flags__ & _ON_HEAP and not _is_known(c)]
        texts = (self._named(_data(c)) for c in classes)
        return f"[{'; '.join(texts)}]" if classes else ""

    def _named(self, items: Mapping[Any, Any]) -> str:
        return ", ".join(f"{self.describe(k)}: {self.describe(v)}" for k, v in items.items())


def _data(kind: type) -> Mapping[str, Any]:
    """Return the attributes of a class that are the user's constants or functions."""
    own = vars(kind).items()
    return {
        name: value
        for name, value in own
        if not (name.startswith("__") or inspect.isdatadescriptor(value))
    }


def _slots(value: Any) -> Mapping[str, Any]:
    """Return what an object holds in slots."""
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__)
    names = [name for some in slots for name in ([some] if isinstance(some, str) else some)]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _may_change(binding: Binding) -> bool:
    """Tell whether a variable is the user's: modules and the language's own names stay put."""
    if isinstance(binding.value, ModuleType):
        return False
    if inspect.isroutine(binding.value) and _is_library(binding.value):
        return False
    if binding.namespace is None:
        return binding.cell is not None
    home = str(binding.namespace.get("__name__", ""))
    if home.partition(".")[0] not in _LIBRARIES:
        return True
    return ".kernels" in home and binding.value is not UNSET


def _chains(source: str, code: CodeType) -> Iterator[tuple[str, ...]]:
    """Yield each dotted name of a function's body once: ``("tl", "load")``, ``("BLOCK",)``.

    Decorators, annotations and defaults are no part of it: they were evaluated long ago. Nor is
    what comprehensions and lambdas name themselves, unless the function looks it up as well.
    """
    found: dict[tuple[str, ...], None] = {}
    tree = parse(textwrap.dedent(source)).body[0]
    body = ast.Module(tree.body if isinstance(tree, ast.FunctionDef) else [tree], [])
    for node in ast.walk(body):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            found[(node.id, *reversed(names))] = None
    own = {name for node in ast.walk(body) for name in _named_by(node)} - _looked_up(code)
    return iter(sorted(chain for chain in found if chain[0] not in own))


def _named_by(node: ast.AST) -> Iterator[str]:
    """Yield what a comprehension or a lambda gives names to."""
    match node:
        case ast.comprehension():
            yield from (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))
        case ast.Lambda():
            yield from (each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        case _:
            return


def _looked_up(code: CodeType) -> set[str]:
    """Return the names that a function, or what is defined in it, looks up outside. Not those of
    code that Python leaves out (``if False``, asserts under -O), which the compiler reads.
    """
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_looked_up, inside))


def _resolve(function: FunctionType, chain: tuple[str, ...]) -> list[Binding]:
    """Follow a dotted name through modules and classes, to a binding for each of its names.

    None for local names, also where a global has the same one: scripts name their arrays as kernels
    do their parameters. Before a name comes what would hide it: a global a builtin, a class an
    attribute of its bases.
    """
    root, *rest = chain
    code, namespace = function.__code__, function.__globals__
    if root in code.co_varnames or root in code.co_cellvars:
        return []
    if root in code.co_freevars:
        cell = (function.__closure__ or ())[code.co_freevars.index(root)]
        found = [Binding(root, contents(cell), cell=cell)]
    elif root in namespace:
        found = [Binding(root, namespace[root], namespace)]
    else:
        found = [Binding(root, UNSET, namespace)]
        if hasattr(builtins, root):
            return [*found, Binding(root, getattr(builtins, root))]
    for name in rest:
        owner = found[-1].value
        match owner:
            case ModuleType():
                spaces = [vars(owner)]
            case type() if not _is_library(owner):
                spaces = [vars(kind) for kind in owner.__mro__ if kind is not object]
            case _:
                break
        for space in spaces:
            if name in space:
                break
            found.append(Binding(name, UNSET, space))
        if not hasattr(owner, name):
            break
        value = getattr(owner, name)
        # What is made when asked for (by a module's __getattr__, a descriptor) cannot be watched.
        held = next((space for space in spaces if space.get(name) is value), None)
        found.append(Binding(name, value, held))
    return found


def _is_library(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return module.partition(".")[0] in _LIBRARIES and ".kernels" not in module


def _is_known(value: Any) -> bool:
    """Tell whether a class or function is the compiler's or Python's own."""
    return _is_library(value) or _is_pythons(value)


def _is_pythons(value: Any) -> bool:
    """Tell whether a module of Python's library holds a class or function by its name; a user's
    file, also one that is loaded by its path, may have the name of such a module.
    """
    name = getattr(value, "__module__", None) or ""
    if name.partition(".")[0] not in sys.stdlib_module_names or name not in sys.modules:
        return False
    held: Any = sys.modules[name]
    place = getattr(held, "__file__", None)
    if place is not None and not Path(place).is_relative_to(Path(os.__file__).parent):
        return False
    for part in value.__qualname__.split("."):
        held = getattr(held, part, None)
    return held is value


def _user_function(value: Any) -> FunctionType | None:
    """Return the Python function of a user's helper (plain, or wrapped by a `jit`)."""
    function = _function_in(value)
    return None if function is None or _is_known(function) else unwrapped(function)


def _function_in(value: Any) -> FunctionType | None:
    """Return the Python function that a value is, or that a `jit` or `functools.cache` wrapped."""
    while not inspect.isfunction(value):
        word = "__wrapped__" if inspect.isroutine(value) else "fn"
        # Statically: an object that answers to every name, as a mock does, would have no end.
        if inspect.getattr_static(value, word, None) is None:
            return None
        if inspect.isclass(value) or isinstance(value, ModuleType):
            return None
        value = held_by(value) if word == "fn" else getattr(value, word)
    return value


@cache
def compiler_digest() -> str:
    """Return a hash of the version and of the compiler's own sources (computed once a process).

    A source is told by path, size and time of change: reading all of them would cost more than the
    rest of a cache hit. Imported from an archive, the archive is.
    """
    top = Path(__file__).parent.parent
    if not top.is_dir():
        archive = next(each for each in top.parents if each.is_file())
        facts = archive.stat()
        text = f"{__version__}\n{archive} {facts.st_size} {facts.st_mtime_ns}"
        return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()
    todo, found = [str(top)], list[str]()
    while todo:
        folder = todo.pop()
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            if name.endswith(".py"):
                facts = os.stat(path)
                found.append(f"{path} {facts.st_size} {facts.st_mtime_ns}")
            elif "." not in name and name not in _BESIDE:
                todo.append(path)
    text = "\n".join([__version__, *sorted(found)])
    return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()
