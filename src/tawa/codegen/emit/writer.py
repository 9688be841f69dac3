"""Lines, blocks and loops of C++ text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tawa.codegen.emit.module import Module
from tawa.codegen.wrappers.core import Wrapper


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
        self.line(f"{head} {{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def scope(self) -> Generator[None]:
        """Write a block of its own, for names that end with it."""
        self.line("{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """Go on from the block just closed with its else branch."""
        self.text[-1] += " else {"
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, variable: str, count: int, step: int = 1) -> Generator[str]:
        """Write an unrolled loop over 0..count; gives its variable, or "0" for a single trip."""
        if count <= step:
            yield "0"
            return
        self.line("#pragma unroll")
        advance = f"++{variable}" if step == 1 else f"{variable} += {step}"
        with self.block(f"for (int {variable} = 0; {variable} < {count}; {advance})"):
            yield variable
