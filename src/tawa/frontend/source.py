"""A Python function as source: its syntax tree, places in its file, and the names it can see."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from tawa.errors import Place, UnsupportedSyntax
from tawa.syntax import parse

UNSET = object()
"""The value of a variable that has none yet: a helper that is defined further down."""
_FILES: WeakKeyDictionary[FunctionType, list[str]] = WeakKeyDictionary()
"""The lines of the file that a function comes from, as they were when first asked for."""
_TEXTS: WeakKeyDictionary[FunctionType, str] = WeakKeyDictionary()
"""The texts of functions that stand for others, with a text that is not that of their file."""
_OTHERS: WeakKeyDictionary[FunctionType, dict[str, FunctionType | None]] = WeakKeyDictionary()
"""Those functions, by the function that they stand for and their text; None: it has it itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of one function.

    `first_line` is the line of the tree's line 1 in the file, `indent` the columns removed from it.
    """

    function: Any  # a FunctionType; so declared, reading the field would bind it as a method
    tree: ast.FunctionDef
    file: str
    first_line: int
    indent: int

    @property
    def name(self) -> str:
        """The function's name."""
        return self.tree.name

    def place(self, node: ast.AST) -> Place:
        """Return where a node of the tree stands in the file."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        same_line = getattr(node, "end_lineno", line) == line and end is not None
        return Place(
            self.file,
            self.first_line + line - 1,
            self.indent + column,
            self.indent + (end if same_line and end is not None else column + 1),
        )

    def lookup(self, name: str) -> tuple[bool, Any]:
        """Find a name in the function's closure, its module and Python's builtins, in this order.

        Returns whether it was found, and the object.
        """
        code, closure = self.function.__code__, self.function.__closure__ or ()
        for free, cell in zip(code.co_freevars, closure):
            if free == name:
                value = contents(cell)
                return value is not UNSET, value
        module: dict[str, Any] = self.function.__globals__
        if name in module:
            return True, module[name]
        if hasattr(builtins, name):
            return True, getattr(builtins, name)
        return False, None


def contents(cell: CellType) -> Any:
    """Return the value in a cell of a closure; UNSET where the function around gave it none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def underlying(function: object) -> FunctionType | None:
    """Return the Python function behind wrappers that hold one as ``.fn``, or None."""
    seen: set[int] = set()
    inner: Any = function
    while type(inner) is not FunctionType:
        if id(inner) in seen or not hasattr(inner, "fn"):
            return None
        seen.add(id(inner))
        inner = held_by(inner)
    return unwrapped(inner)


def held_by(holder: Any) -> Any:
    """Return what an object holds as ``.fn``. Where a Triton function holds it that says it has
    another text than the file, as libraries make kernels from templates, return another function,
    one for each text, which has that: several may hold the same.
    """
    inner = holder.fn
    text = getattr(holder, "src", None)
    if not isinstance(text, str) or type(inner) is not FunctionType:
        return inner
    inner = unwrapped(inner)
    others = _OTHERS.setdefault(inner, {})
    if text not in others:
        made = _twin(inner)
        _TEXTS[made] = text
        others[text] = made if source_of(made) == text else None
    return others[text] or inner


def _twin(function: FunctionType) -> FunctionType:
    code, names = function.__code__, function.__globals__
    cells = function.__closure__
    made = FunctionType(code, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    made.__dict__.update({n: v for n, v in vars(function).items() if n != "__wrapped__"})
    return made


def unwrapped(function: FunctionType) -> FunctionType:
    """Return the function that one stands for which `functools.wraps` made."""
    inner = inspect.unwrap(function)
    return inner if isinstance(inner, FunctionType) else function


def lines_of(function: FunctionType) -> list[str]:
    """Return the lines of a function's file from its first line on; OSError where there are none.

    They are those of the first time, which is when the function is decorated: a file that changes
    afterwards holds another program than the one that is running.
    """
    if (lines := _FILES.get(function)) is None:
        file = function.__code__.co_filename
        linecache.checkcache(file)
        if lines := linecache.getlines(file, function.__globals__):
            _FILES[function] = lines
    if not (found := lines[function.__code__.co_firstlineno - 1 :]):
        raise OSError(f"the source of {function.__qualname__} is not to be had")
    return found


def source_of(function: FunctionType) -> str:
    """Return a function's text, decorators included; raises OSError when it is not to be had.

    Where a Triton function holds it and has another text than the file, as libraries make kernels
    from templates, that is the text.
    """
    text = _TEXTS.get(function)
    try:
        written = _written(function)
    except OSError:
        if text is None:
            raise
        return text
    return written if text is None or text.strip() in textwrap.dedent(written) else text


def _written(function: FunctionType) -> str:
    """Return the text of a function in its file.

    What inspect.getsource gives, without its tokenizer, which costs more than a whole cache hit
    may: from the first line to the end of the last instruction, and on to the next line that stands
    no deeper than the first.
    """
    lines, code = lines_of(function), function.__code__
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


def read_source(function: Callable[..., object] | object) -> Source:
    """Read and parse the source of a function; raises UnsupportedSyntax when there is none."""
    if (plain := underlying(function)) is None:
        raise UnsupportedSyntax(
            f"{function!r} is not a kernel",
            why="a kernel is a Python function, or an object that holds one as `.fn`",
            remedy="decorate a function with @tawa.jit",
        )
    try:
        text = source_of(plain)
    except OSError:
        raise UnsupportedSyntax(
            f"the source of {plain.__qualname__} is not available",
            why="a kernel is compiled from its source text, which Python reads from a file",
            remedy="define the kernel in a file or a notebook cell, not through exec()",
        ) from None
    flat = textwrap.dedent(text)
    first_line = plain.__code__.co_firstlineno
    indent = _indentation(text)
    tree = _parse_function(flat)
    file = plain.__code__.co_filename
    if tree is None:
        raise UnsupportedSyntax(
            f"{plain.__qualname__} is not defined by `def`",
            place=Place(file, first_line),
            why="a kernel is a function with a name; a lambda has only an expression",
            remedy="write it with `def`",
        )
    return Source(plain, tree, file, first_line, indent)


@lru_cache(maxsize=256)  # a helper is read at each call; nothing changes a tree
def _parse_function(text: str) -> ast.FunctionDef | None:
    try:
        module = parse(text)
    except SyntaxError:
        # A lambda in the middle of an expression: its lines alone are not Python.
        return None
    found = module.body[0] if module.body else None
    if not isinstance(found, ast.FunctionDef):
        return None
    if made := made_by(found):  # a constructor gives what it makes of its first parameter
        end = ast.Return(ast.Name(made, ast.Load()))
        found.body.append(ast.fix_missing_locations(ast.copy_location(end, found.body[-1])))
    return found


def made_by(function: ast.FunctionDef) -> str:
    """Return the name of what a constructor makes, its first parameter; "" for others."""
    first = [*function.args.posonlyargs, *function.args.args][:1]
    return first[0].arg if function.name == "__init__" and first else ""
