"""What the functions of one CUDA file share, and the lines, blocks and loops of their text."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tawa.analysis.contiguity import Contiguity
from tawa.codegen.names import Names
from tawa.codegen.wrappers.core import Wrapper


class Module:
    """One CUDA file: its constants, the wrappers it uses, and names taken at file scope."""

    def __init__(self, names: Names, *, lines: bool) -> None:
        self.names = names
        self.lines = lines
        self.constants: list[str] = []
        self.maps: list[str] = []
        self.contiguity = Contiguity()
        self.wrappers: dict[str, Wrapper] = {}
        self._tables: dict[tuple[int, ...], str] = {}
        self._thread_tables: dict[tuple[int, ...], str] = {}

    def call(self, wrapper: Wrapper, *arguments: object, template: str = "") -> str:
        """Return a call of a wrapper, which the file will then define."""
        self.wrappers.setdefault(wrapper.head, wrapper)
        angle = f"<{template}>" if template else ""
        return f"{wrapper.name}{angle}({', '.join(map(str, arguments))})"

    def constant(self, hint: str, value: int) -> str:
        """Declare a named constant and return its name."""
        name = self.names.fresh(hint)
        self.constants.append(f"{name} = {value},")
        return name

    def table(self, values: Sequence[int]) -> str:
        """Return a function that looks an irregular index map up; folds once loops are unrolled."""
        key = tuple(values)
        if key not in self._tables:
            name = self.names.fresh("register_map")
            entries = ", ".join(map(str, key))
            self.maps.append(
                f"struct {name} {{ __device__ static constexpr int at(int r) {{ "
                f"constexpr int map[] = {{{entries}}}; return map[r]; }} }};"
            )
            self._tables[key] = name
        return self._tables[key]

    def thread_table(self, values: Sequence[int]) -> str:
        """Return an array of small numbers that threads index by their own: it lies in memory.

        As an array of a function it would be made anew on each thread's stack.
        """
        key = tuple(values)
        if key not in self._thread_tables:
            name = self.names.fresh("thread_map")
            kind = "unsigned char" if max(key) < 256 else "unsigned short"
            entries = ", ".join(map(str, key))
            self.maps.append(f"__device__ const {kind} {name}[] = {{{entries}}};")
            self._thread_tables[key] = name
        return self._thread_tables[key]


@dataclass(frozen=True, slots=True)
class RoleShape:
    """Where a role's threads lie in the block; `registers` is what a thread is built with."""

    label: str
    first_warp: int
    warps: int
    registers: int = 255

    @property
    def warpgroups(self) -> int:
        """Warpgroups of the role, a part of one counted as one."""
        return max(1, self.warps // 4)


class Writer:
    """Writes the lines of one function's body."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.text: list[str] = []
        self._indent = 1

    def line(self, text: str) -> None:
        """Write one line."""
        self.text.append("  " * self._indent + text)

    def call(self, wrapper: Wrapper, *arguments: object, template: str = "") -> str:
        """Return a call of a wrapper as an expression."""
        return self.module.call(wrapper, *arguments, template=template)

    def do(self, wrapper: Wrapper, *arguments: object, template: str = "") -> None:
        """Write a call of a wrapper as a statement."""
        self.line(self.call(wrapper, *arguments, template=template) + ";")

    @contextmanager
    def block(self, head: str = "") -> Generator[None]:
        """Write a block in braces, or nothing but its contents when `head` is empty."""
        if not head:
            yield
            return
        self.line(head)
        with self._braces(" {"):
            yield

    def when(self, condition: str) -> AbstractContextManager[None]:
        """Write a block for where a condition holds; its contents alone where there is none."""
        return self.block(f"if ({condition})" if condition else "")

    def scope(self) -> AbstractContextManager[None]:
        """Write a block of its own, for names that end with it."""
        self.line("")
        return self._braces("{")

    def otherwise(self) -> AbstractContextManager[None]:
        """Go on from the block just closed with its else branch."""
        return self._braces(" else {")

    @contextmanager
    def _braces(self, opening: str) -> Generator[None]:
        self.text[-1] += opening
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, variable: str, count: int, step: int = 1) -> Generator[str]:
        """Write an unrolled loop over 0..count; gives its variable, or "0" for a single
        iteration.
        """
        if count <= step:
            yield "0"
            return
        self.line("#pragma unroll")
        advance = f"++{variable}" if step == 1 else f"{variable} += {step}"
        with self.block(f"for (int {variable} = 0; {variable} < {count}; {advance})"):
            yield variable
