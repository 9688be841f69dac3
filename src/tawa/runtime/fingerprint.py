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
import linecache
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from tawa.version import __version__

_LIBRARIES = ("triton", "tawa")


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A variable a kernel reads: `value` as it was, in a `namespace` or a closure `cell`."""

    name: str
    value: object
    namespace: Mapping[str, Any] | None = None
    cell: CellType | None = None

    def changed(self) -> bool:
        """Tell whether the variable has been rebound since."""
        if self.cell is not None:
            return self.cell.cell_contents is not self.value
        return self.namespace is not None and self.namespace.get(self.name) is not self.value


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hash of a kernel's text, and the variables whose rebinding makes it stale."""

    digest: str
    bindings: tuple[Binding, ...]


def fingerprint(function: FunctionType) -> Fingerprint:
    """Return the fingerprint of a kernel; raises OSError when its source is not to be had."""
    parts: list[str] = []
    bindings: dict[tuple[int, str], Binding] = {}
    _walk(function, parts, bindings, set())
    digest = hashlib.sha256("\0".join(parts).encode(), usedforsecurity=False).hexdigest()
    return Fingerprint(digest, tuple(bindings.values()))


def functions_of(function: FunctionType) -> tuple[FunctionType, ...]:
    """Return a kernel's function and every helper of the user's that it calls, in source order.

    Raises OSError where a source is not to be had.
    """
    seen: set[FunctionType] = set()
    _walk(function, [], {}, seen)
    code = {item: item.__code__ for item in seen}
    return tuple(sorted(seen, key=lambda f: (code[f].co_filename, code[f].co_firstlineno)))


def _walk(
    function: FunctionType,
    parts: list[str],
    bindings: dict[tuple[int, str], Binding],
    seen: set[FunctionType],
) -> None:
    seen.add(function)
    source, code = source_of(function), function.__code__
    parts += [function.__qualname__, code.co_filename, str(code.co_firstlineno), source]
    parts += [repr(function.__defaults__), repr(function.__kwdefaults__)]
    for chain in _chains(source):
        if (binding := _resolve(function, chain)) is None:
            continue
        if _may_change(binding):
            bindings.setdefault((id(binding.cell or binding.namespace), binding.name), binding)
        helper = _user_function(binding.value)
        if helper is None:
            parts += [".".join(chain), describe(binding.value)]
        elif helper not in seen:
            _walk(helper, parts, bindings, seen)


def source_of(function: FunctionType) -> str:
    """Return a function's text, decorators included; raises OSError when it is not to be had.

    What inspect.getsource gives, without its tokenizer, which costs more than a whole cache hit
    may: from the first line to the end of the last instruction, and on to the next line that stands
    no deeper than the first.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    if not lines:
        raise OSError(f"the source of {function.__qualname__} is not to be had")
    depth = _indentation(lines[0])
    last = end = _last_line(code) - code.co_firstlineno + 1
    for number, line in enumerate(lines[last:], last + 1):
        if line.isspace() or line.lstrip().startswith("#"):
            continue
        if _indentation(line) <= depth:
            break
        end = number
    return "".join(lines[:end])


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_line(code: CodeType) -> int:
    """Return the last line of a code object's instructions, those of inner functions included."""
    lines = [code.co_firstlineno]
    lines += [end for _, end, _, _ in code.co_positions() if end is not None]
    lines += [line for _, _, line in code.co_lines() if line is not None]
    lines += [_last_line(inner) for inner in code.co_consts if isinstance(inner, CodeType)]
    return max(lines)


def _may_change(binding: Binding) -> bool:
    """Tell whether a variable is the user's: modules and the language's own names stay put."""
    if isinstance(binding.value, ModuleType):
        return False
    if inspect.isroutine(binding.value) and _is_library(binding.value):
        return False
    if binding.namespace is None:
        return binding.cell is not None
    home = str(binding.namespace.get("__name__", ""))
    return home.partition(".")[0] not in _LIBRARIES or ".kernels" in home


def _chains(source: str) -> Iterator[tuple[str, ...]]:
    """Yield each dotted name of a function's body once: ``("tl", "load")``, ``("BLOCK",)``.

    Decorators, annotations and defaults are no part of it: they were evaluated long ago.
    """
    found: dict[tuple[str, ...], None] = {}
    tree = ast.parse(textwrap.dedent(source)).body[0]
    body = ast.Module(tree.body if isinstance(tree, ast.FunctionDef) else [tree], [])
    for node in ast.walk(body):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            found[(node.id, *reversed(names))] = None
    return iter(sorted(found))


def _resolve(function: FunctionType, chain: tuple[str, ...]) -> Binding | None:
    """Follow a dotted name through modules to what it is bound to; None for local names, also
    where a global has the same one: scripts name their arrays as kernels do their parameters.
    """
    root, *rest = chain
    code, namespace = function.__code__, function.__globals__
    if root in code.co_varnames or root in code.co_cellvars:
        return None
    if root in code.co_freevars:
        cell = (function.__closure__ or ())[code.co_freevars.index(root)]
        binding = Binding(root, cell.cell_contents, cell=cell)
    elif root in namespace:
        binding = Binding(root, namespace[root], namespace)
    elif hasattr(builtins, root):
        return Binding(root, getattr(builtins, root))
    else:
        return None
    for name in rest:
        if not isinstance(binding.value, ModuleType) or not hasattr(binding.value, name):
            break
        binding = Binding(name, getattr(binding.value, name), vars(binding.value))
    return binding


def _is_library(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return module.partition(".")[0] in _LIBRARIES and ".kernels" not in module


def _user_function(value: Any) -> FunctionType | None:
    """Return the Python function of a user's helper (plain, or wrapped by a `jit`)."""
    while not inspect.isfunction(value):
        inner = getattr(value, "fn", None)
        if inner is None or inspect.isclass(value) or isinstance(value, ModuleType):
            return None
        value = inner
    return None if _is_library(value) else value


def describe(value: Any) -> str:
    """Return the text that stands for a constant in a key; a helper's is its fingerprint."""
    if (helper := _user_function(value)) is not None:
        return fingerprint(helper).digest
    match value:
        case ModuleType():
            return value.__name__
        case bool() | int() | float() | str() | None:
            return repr(value)
        case _ if type(value).__name__ == "constexpr":
            return repr(value.value)
        case _ if callable(value):
            name: str = getattr(value, "__qualname__", repr(value))
            return f"{getattr(value, '__module__', '')}.{name}"
        case _:
            return f"{type(value).__qualname__} {value!r}"


@cache
def compiler_digest() -> str:
    """Return a hash of the version and of the compiler's own sources (computed once a process).

    A source is told by path, size and time of change: reading all of them would cost more than the
    rest of a cache hit.
    """
    digest = hashlib.sha256(__version__.encode(), usedforsecurity=False)
    for entry in sorted(_sources(str(Path(__file__).parent.parent)), key=lambda one: one.path):
        facts = entry.stat()
        digest.update(f"{entry.path} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif "." not in entry.name and entry.name != "__pycache__":
                yield from _sources(entry.path)
