"""Guards and demands (`tawa.runtime.guards`) as functions in C.

A function returns 1 where its condition holds, 0 where it does not, -2 where a number leaves 64
bits, and another negative number where a bounded number of iterations does not tell, or a number
has no value. Then a guard sends the launch to the ordinary kernel, as in Python, and a demand
refuses what has left 64 bits, for the kernel's numbers have wrapped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from tawa.errors import InternalError
from tawa.frontend.signature import DescriptorArg, PointerArg
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dtypes import BYTES
from tawa.runtime.guards import pairs_of
from tawa.syntax import parse
from tawa.tools.aot.expressions import Translation
from tawa.tools.aot.names import Fields

_LISTED = 1 << 18
"""Iterations that a launch looks at, at most: as many as in Python."""
_AXES = range(3)
_VARIABLES: Mapping[str, str] = {
    **{f"program{axis}": f"program{axis}" for axis in _AXES},
    **{f"grid{axis}": f"grid[{axis}]" for axis in _AXES},
}


def paired(kernels: Iterable[CompiledKernel]) -> set[str]:
    """Return the arguments whose memory guards ask to be apart."""
    return {name for kernel in kernels for *pair, _ in pairs_of(kernel) for name in pair}


class Condition:
    """One condition as a function in C called `name`; `used`: the numbers among the arguments that
    it reads.
    """

    def __init__(self, name: str, condition: str, fields: Fields) -> None:
        self._fields = fields
        self.used: list[str] = []
        head = f"static int {name}(const {fields.struct} *arguments, const int64_t grid[3])"
        first = "int failed = 0, *const bad = &failed;"
        lines = [first, "(void)arguments, (void)grid, (void)bad;", *self._body(condition)]
        body = "".join(f"    {line}\n" for line in lines)
        self.text = f"/* {comment(condition)} */\n{head}\n{{\n{body}}}\n"

    def _body(self, condition: str) -> list[str]:
        match parse(condition, "eval").body:
            case ast.Call(func=ast.Name("disjoint"), args=[ast.Name(first), ast.Name(second)]):
                return [
                    *self._span("first", first),
                    *self._span("second", second),
                    "return failed ? -1 : tawa_apart(first, second);",
                ]
            case ast.Call(func=ast.Name("never_negative"), args=[inner, *walks]):
                return self._ask(inner, walks, "found >= 0")
            case ast.Call(
                func=ast.Name("always_multiple"), args=[inner, ast.Constant(int(unit)), *walks]
            ):
                return self._ask(inner, walks, f"found % {unit} == 0")
            case ast.Call(func=ast.Name("always_within"), args=[inner, least, most, *walks]):
                bounds = Translation(self._fields)
                low, high = bounds.text(least), bounds.text(most)
                return self._ask(inner, walks, f"{low} <= found && found <= {high}")
            case whole:
                return self._ask(whole, (), "found != 0")

    def _span(self, name: str, argument: str) -> list[str]:
        fields = self._fields
        place = f"arguments->{fields.names.get(argument)}"
        match fields.signature.get(argument):
            case DescriptorArg(dtype=dtype, block_shape=block):
                measure = f"tawa_span(&{place}, {len(block)}, {BYTES[dtype]}, {name}, bad);"
                return [f"int64_t {name}[2];", measure]
            case PointerArg():
                size = f"tawa_wide(arguments->{fields.sized[argument]}, bad)"
                end = f"tawa_add((int64_t){place}, {size}, bad)"
                return [f"const int64_t {name}[2] = {{(int64_t){place}, {end}}};"]
            case _:
                raise InternalError(f"a guard asks for the memory of '{argument}', no array")

    def _ask(self, inner: ast.expr, walks: Sequence[ast.expr], holds: str) -> list[str]:
        """Return the statements that ask it in every program and every iteration of some loops."""
        iterations = {f"iteration{place}": f"iteration{place}" for place in range(len(walks))}
        translation = Translation(self._fields, {**_VARIABLES, **iterations})
        loops: list[tuple[str, str, str]] = []
        for walk in walks:
            assert isinstance(walk, ast.Tuple), "a loop is start, end and step"
            start, end, step = map(translation.text, walk.elts)
            loops.append((start, end, step))
        found = translation.text(inner)
        self.used = translation.used
        lines = ["int64_t seen = 0;"] if walks else []
        indent = ""
        for axis in _AXES:
            if f"program{axis}" in translation.met:
                counted = f"int64_t program{axis} = 0; program{axis} < grid[{axis}]"
                lines.append(f"{indent}for ({counted}; ++program{axis}) {{")
                indent += "    "
        for place, (start, end, step) in enumerate(loops):
            lines += [
                f"{indent}const int64_t count{place} = tawa_trips({start}, {end}, {step}, bad);",
                f"{indent}if (failed) return -failed;",
                f"{indent}for (int64_t iteration{place} = 0; iteration{place} < count{place};"
                f" ++iteration{place}) {{",
            ]
            indent += "    "
            lines.append(f"{indent}if (++seen > INT64_C({_LISTED})) return -1;")
        lines += [
            f"{indent}const int64_t found = {found};",
            f"{indent}if (failed) return -failed;",
            f"{indent}if (!({holds})) return 0;",
        ]
        while indent:
            indent = indent[4:]
            lines.append(f"{indent}}}")
        return [*lines, "return 1;"]


def comment(text: str) -> str:
    """Return text that may stand within a comment of C."""
    return text.replace("*/", "* /").replace("\n", " ")
