"""Write docs/reference from the docstrings: the operations, the errors, the passes; and, from the
JSON of the runs, the page of figures `benchmarks/results/trust.md`.

`python docs/generate.py` writes the pages; `--check` fails when one is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path

import trust

import tawa.language as tl
from tawa import errors
from tawa.frontend.inline import inline
from tawa.frontend.names import REFUSED
from tawa.ir import aref, build, hopper, tile
from tawa.language import constant
from tawa.language.extra import cuda, libdevice
from tawa.runtime import jit, program, tile_function
from tawa.runtime.compiled import CompiledKernel

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "tawa"


def dialect_page(module: object, dialect: object) -> str:
    """Return the page of one dialect: its introduction, then each operation in order."""
    about = (inspect.getdoc(module) or "").partition("\n\nLength:")[0]
    lines = [f"# The {dialect.name} dialect", "", about, ""]
    for operation in dialect.operations:
        lines += [f"## `{operation.name}`", "", inspect.getdoc(operation) or "", ""]
    return "\n".join(lines)


def kinds_of_errors() -> list[type[errors.TawaError]]:
    """Return every class of `tawa.errors`, in the order of the file."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, errors.TawaError)]


def errors_page() -> str:
    """Return the list of errors: a line a class, with the link to its page."""
    lines = ["# Errors", "", inspect.getdoc(errors).partition("\n\nLength:")[0], ""]
    for kind in kinds_of_errors():
        summary = inspect.getdoc(kind).partition("\n")[0]
        lines.append(f"- [{kind.__name__}](errors/{kind.__name__}.md): {summary}")
    return "\n".join([*lines, ""])


def error_page(kind: type[errors.TawaError]) -> str:
    """Return the page of one error: its docstring, the indented blocks as code."""
    lines = [f"# {kind.__name__}", ""]
    for part in re.split(
        r"^(\w+)::\n\n((?:    .*\n|\n)*)", inspect.getdoc(kind) + "\n", flags=re.M
    ):
        if part.startswith("    "):
            language = "python" if lines[-2] == "## Example" else "text"
            lines += [f"```{language}", textwrap.dedent(part).strip("\n"), "```", ""]
        elif part.isidentifier():
            lines += [f"## {part}", ""]
        elif part.strip():
            text = re.sub(r"^(Why|Remedy): ", r"**\1.** ", part.strip(), flags=re.M)
            lines += [text, ""]
    return "\n".join(lines)


def mapping_page() -> str:
    """Return the page of `MappingError`, with every message that the code of task programs has."""
    lines = [error_page(errors.MappingError), "## Every message", ""]
    lines += ["What a message names stands as `…`; alternatives stand with `|` between them.", ""]
    for path in sorted((SOURCE / "cypress").glob("*.py")):
        tree = ast.parse(path.read_text())
        made = list(_refusals(tree, path.stem, 0))
        if made:
            about = (ast.get_docstring(tree) or "").partition("\n\n")[0]
            lines += [f"### {' '.join(about.split())}", "", *made, ""]
    return "\n".join(lines)


def _refusals(node: ast.AST, name: str, first: int) -> Iterator[str]:
    """Yield a line of the page for each error that code makes, under the name that it links to:
    the function it is made in, and on which of its lines.
    """
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            start = min([each.lineno, *(mark.lineno for mark in each.decorator_list)])
            yield from _refusals(each, f"{name}.{each.name}", start)
            continue
        if isinstance(each, ast.Call) and _is_refusal(each):
            yield f'- <a id="{name}-{each.lineno - first}"></a>{_refusal(each)}'
        yield from _refusals(each, name, first)


def _is_refusal(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("MappingError") | ast.Attribute(attr="error"):
            return bool(call.args) and _words(call.args[0]).strip("…") != ""
        case _:
            return False


def _refusal(call: ast.Call) -> str:
    """Return a line of the page: what an error says, why, and what to do."""
    said = {each.arg: _words(each.value) for each in call.keywords}
    # An instance's error begins with its name.
    what = ('"…"' if isinstance(call.func, ast.Attribute) else "") + _words(call.args[0])
    forms = {": {}": said.get("why", "…"), ". **Do:** {}": said.get("remedy", "…")}
    more = [(form, text) for form, text in forms.items() if text.strip("…")]
    return f"`{what}`" + "".join(form.format(text) for form, text in more) + "."


def _words(node: ast.expr) -> str:
    """Return the text that an expression makes, with `…` for what only a call knows."""
    match node:
        case ast.Constant(str() as text):
            return text
        case ast.JoinedStr(values):
            return "".join(map(_words, values))
        case ast.BinOp(left, ast.Add(), right):
            return _words(left) + _words(right)
        case ast.IfExp(_, then, other):
            return f"{_words(then)} | {_words(other)}"
        case ast.BoolOp(ast.Or(), values):
            return _words(values[-1])
        case _:
            return "…"


# In the order of the page; what is named in none of them goes to the module that defines it.
_CHAPTERS = {
    "program": "Programs, loops, hints and checks",
    "memory": "Memory",
    "atomics": "Atomic operations",
    "values": "Values and annotations",
    "tensors": "Shapes, types and products",
    "math": "Functions of elements",
    "reduction": "Reductions and scans",
    "sorting": "Sorting",
    "random": "Random numbers",
}


def language_page() -> str:
    """Return the page of the language: every function with its signature and first sentence."""
    lines = ["# The language", "", inspect.getdoc(tl).partition("\n\n")[0], ""]
    lines += [
        "`import tawa.language as tl`. Triton's own objects of these names mean the same.",
        "",
    ]
    for module, title in _CHAPTERS.items():
        made = [name for name in sorted(tl.__all__) if _home(getattr(tl, name)) == module]
        lines += [
            f"## {title}",
            "",
            *(_entry(f"tl.{name}", getattr(tl, name)) for name in made),
            "",
        ]
    for module, title in ((libdevice, "The device library"), (cuda, "Launches and warps")):
        path = module.__name__.removeprefix("tawa.language.")
        names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
        lines += [f"## {title}: tl.{path}", ""]
        lines += [*(_entry(name, getattr(module, name)) for name in names), ""]
    types = [name for name in tl.__all__ if type(getattr(tl, name)) is tl.dtype]
    lines += ["## Element types", "", ", ".join(f"`tl.{name}`" for name in types), ""]
    lines += ["## Classes of values: tawa.aggregate", "", *_docs_of(constant.aggregate), ""]
    members = [
        *(_member(name, vars(jit.Launchable)[name]) for name in ("run", "warmup")),
        *(_member(name, vars(jit.JitFunction)[name]) for name in ("add_pre_run_hook", "cache_key")),
        _member("__getitem__", CompiledKernel.__getitem__),
    ]
    lines += ["## Methods of Triton's kernels", "", *members, ""]
    refused = [f"- `tl.{name}`: {why}; {remedy}." for name, (why, remedy) in REFUSED.items()]
    refused += [f"- `{name}` of a kernel: {instead}." for name, instead in jit.REFUSED.items()]
    lines += ["## Refused by name", "", *refused, ""]
    return "\n".join(lines)


def _home(thing: object) -> str:
    return getattr(getattr(thing, "fn", thing), "__module__", "").rpartition(".")[2]


def _entry(name: str, thing: object, doc: str = "") -> str:
    written, shown = getattr(thing, "fn", thing), ""
    if not isinstance(written, EnumType):  # how one is called is Python's, and changes with it
        signature = inspect.signature(written)
        taken = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown = signature.replace(
            parameters=[p for p in taken if p.name != "self"], return_annotation=signature.empty
        )
    summary = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return f"- `{name}{shown}`: {doc or summary}"


def build_page() -> str:
    """Return the page of the builder: every public method, in the order of the source."""
    lines = ["# Building kernels without source", "", inspect.getdoc(build), ""]
    parts = (
        (build.KernelBuilder, "KernelBuilder(name, options=None)"),
        (build.Value, "Value"),
        (build.Desc, "Desc"),
        (build.Loop, "Loop"),
        (build.Branch, "Branch"),
    )
    for kind, title in parts:
        lines += [f"## `{title}`", "", *_docs_of(kind), ""]
        for home in reversed(kind.__mro__):
            for name, member in vars(home).items():
                if home.__module__.startswith(build.__name__) and _is_public(name, member):
                    lines.append(_member(name, member))
        lines.append("")
    lines += ["## Compiling and launching", ""]
    made = (inline, tile_function.compile_ir, program.Program, program.Step, program.Buffer)
    for thing in (*made, tile_function.CompiledIr):
        lines += [f"### `tawa.{thing.__name__}`", "", *_docs_of(thing), ""]
    return "\n".join(lines)


# What values ask of their builder: not for users, though of a public class.
_INNER = ("apply", "operator", "unary", "index", "described", "name", "end")


def _is_public(name: str, member: object) -> bool:
    inner = name in _INNER and not isinstance(member, property)
    return (
        not name.startswith("_")
        and not inner
        and bool(inspect.getdoc(member))
        and (callable(member) or isinstance(member, property))
    )


def _docs_of(thing: object) -> list[str]:
    """Return a docstring with its example, which begins with >>>, as code."""
    text, mark, example = (inspect.getdoc(thing) or "").partition("\n\n>>>")
    shown = (mark.strip() + example).replace("  # doctest: +SKIP", "")
    return [text, *(["", "```python", shown, "```"] if example else [])]


def _member(name: str, member: object) -> str:
    doc = " ".join((inspect.getdoc(member) or "").split())
    return f"- `{name}`: {doc}" if isinstance(member, property) else _entry(name, member, doc)


def passes_page() -> str:
    """Return the page of passes: the module docstring of each file."""
    lines = ["# Passes", ""]
    for path in sorted((SOURCE / "passes").rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text()))
        if doc and path.name != "__init__.py":
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            lines += [f"## {name}", "", doc, ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the text of every generated page by file name."""
    return {
        "tile.md": dialect_page(tile, tile.Tile),
        "aref.md": dialect_page(aref, aref.Aref),
        "hopper.md": dialect_page(hopper, hopper.Hopper),
        "errors.md": errors_page(),
        "passes.md": passes_page(),
        "language.md": language_page(),
        "build.md": build_page(),
        **{f"errors/{kind.__name__}.md": error_page(kind) for kind in kinds_of_errors()},
        "errors/MappingError.md": mapping_page(),
    }


def main() -> int:
    """Write the pages, or with --check compare them; the exit status says whether all agreed."""
    folder = DOCS / "reference"
    (folder / "errors").mkdir(parents=True, exist_ok=True)
    stale = 0
    written = pages()
    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).as_posix() not in written:
            print(f"{path.name} describes nothing any more: remove it")
            stale += 1
    texts = {folder / name: text for name, text in written.items()}
    for path, text in (texts | {trust.RESULTS / "trust.md": trust.page()}).items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is out of date: run python docs/generate.py")
            stale += 1
    return int(stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
