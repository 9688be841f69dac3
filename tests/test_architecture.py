"""The tree keeps its own rules: imports run downward and in no circle, files stay short.

Every import counts: also those for type checkers and those inside functions.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tawa"

# From the bottom up: a folder or module may import those before it, and itself.
ORDER = (
    "version",
    "collector",
    "syntax",
    "constants",
    "element_types",
    "errors",
    "integers",
    "axon",
    "target",
    "layouts",
    "integers",
    "ir",
    "language",
    "ir.build",
    "frontend",
    "analysis",
    "plan",
    "passes",
    "codegen",
    "verify",
    "simulator",
    "runtime",
    "testing",
    "ppl",
    "tools",
    "kernels",
    "axon.fuse",
    "torch",
)
# What stands on the core, and all of it that these may import, besides one another.
ABOVE = ("kernels", "torch", "jax", "cypress", "axon", "axon.fuse", "ppl")
DOOR = (
    *("version", "syntax", "errors", "target", "layouts", "integers", "language"),
    *("ir.build", "plan", "runtime"),
)
# The compile driver and what it keeps: of the runtime, what is nobody else's.
DRIVER = (
    *("build", "codec", "compiler", "crash", "cubins", "nvrtc", "refusals", "resident", "sass"),
    *("stages", "launcher", "maps"),
)
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    inside = path.relative_to(SOURCE.parent).with_suffix("")
    return ".".join(inside.parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


def part_of(module: str) -> str:
    """The folder or module of `ORDER` that a module is in; "" for the package itself."""
    inside = module.removeprefix("tawa").removeprefix(".")
    deep = ".".join(inside.split(".")[:2])
    return deep if deep in ORDER else inside.split(".")[0]


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements within a node: at the top, in definitions and in blocks; no expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr):
            yield from statements(child)


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules of tawa that a file imports, anywhere in it; a name of one counts as it."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names if alias.name in MODULES}
            case ast.ImportFrom(module=str() as home) if home in MODULES:
                inner = [f"{home}.{alias.name}" for alias in node.names]
                found |= {name if name in MODULES else home for name in inner}
            case _:
                pass
    return frozenset(found)


def test_imports_run_downward() -> None:
    wrong: list[str] = []
    for module, path in MODULES.items():
        if (part := part_of(module)) in ORDER:
            # The package itself brings users their names; the command line has a word for all.
            allowed = {"", *ORDER[: ORDER.index(part) + 1], *(ABOVE if part == "tools" else ())}
            wrong += [f"{module}: {m}" for m in imported(path) if part_of(m) not in allowed]
    assert wrong == []


def test_what_stands_on_the_core_goes_through_the_door() -> None:
    wrong: list[str] = []
    for module, path in MODULES.items():
        if part_of(module) in ABOVE:
            for other in imported(path):
                part, inner = part_of(other), other.removeprefix("tawa.runtime.")
                if part not in ("", *DOOR, *ABOVE) or (part == "runtime" and inner in DRIVER):
                    wrong.append(f"{module}: {other}")
    assert wrong == []


def circles() -> list[list[str]]:
    """The modules that import one another, by Tarjan's strongly connected components."""
    graph = {name: set(imported(path)) - {name} for name, path in MODULES.items()}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            place = stack.index(name)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_imports_make_no_circle() -> None:
    assert circles() == []


def test_files_are_a_page_or_owe_a_reason() -> None:
    for path in FILES:
        text = path.read_text()
        if text.count("\n") > 600:
            doc = ast.get_docstring(ast.parse(text)) or ""
            assert "Length:" in doc, f"split {path}, or say after 'Length:'"


def test_version_is_stated_once() -> None:
    version = (SOURCE / "version.py").read_text().split('"')[-2]
    others = [p for p in FILES if p.name != "version.py" and f'"{version}"' in p.read_text()]
    assert others == []
