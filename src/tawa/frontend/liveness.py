"""Which variables are still needed after a statement, and at the top of each loop body.

A loop carries, and an `if` joins, only variables that are read later. So two loops in a row may
reuse a name for tensors of different types, and no dead value occupies registers.
The sets are upper bounds: an early return counts as if execution went on.

What is known of a part of a tree is kept: kernels share functions, which are read once, and every
specialization asks the same again.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

Names = frozenset[str]
_NONE: Names = frozenset()


@dataclass(slots=True)
class Liveness:
    """`after[s]`: names read after statement s; `head[s]`: at the top of loop s, by the test of a
    ``while`` and by the body.
    """

    after: dict[ast.stmt, Names] = field(default_factory=dict[ast.stmt, Names])
    head: dict[ast.stmt, Names] = field(default_factory=dict[ast.stmt, Names])

    def _note(self, table: dict[ast.stmt, Names], statement: ast.stmt, names: Names) -> None:
        table[statement] = table.get(statement, _NONE) | names

    def block(self, statements: Sequence[ast.stmt], out: Names) -> Names:
        """Return the names live before `statements`, given those live after."""
        for statement in reversed(statements):
            self._note(self.after, statement, out)
            out = self._statement(statement, out)
        return out

    def _statement(self, statement: ast.stmt, out: Names) -> Names:
        match statement:
            case ast.If():
                then = self.block(statement.body, out)
                other = self.block(statement.orelse, out)
                return then | other | reads(statement.test)
            case ast.For():
                head = self._loop(statement, statement.body, out, writes(statement.target))
                return head | reads(statement.iter)
            case ast.While():
                # The test stands at the top as well: what it reads is carried, though the body
                # writes it before it reads it.
                test = reads(statement.test)
                self._note(self.head, statement, test)
                return self._loop(statement, statement.body, out | test, _NONE)
            case ast.AugAssign():
                return out | reads(statement.value) | writes(statement.target)
            case ast.Assign():
                killed = _NONE.union(*(writes(target) for target in statement.targets))
                used = _NONE.union(*(reads(target) for target in statement.targets))
                return (out - killed) | used | reads(statement.value)
            case ast.AnnAssign():
                kept = out - writes(statement.target)
                return kept | reads(statement.value) if statement.value else out
            case _:
                return out | reads(statement)

    def _loop(self, loop: ast.stmt, body: Sequence[ast.stmt], out: Names, target: Names) -> Names:
        head = _NONE
        while True:
            # The body may be left to the code after it or to its own top.
            grown = self.block(body, out | head) - target
            self._note(self.head, loop, grown)
            if grown <= head:
                return out | head
            head |= grown


@lru_cache(maxsize=256)
def analyse(function: ast.FunctionDef) -> Liveness:
    """Compute the liveness of a function's body."""
    found = Liveness()
    found.block(function.body, _NONE)
    return found


@lru_cache(maxsize=16384)
def reads(node: ast.AST) -> Names:
    """Return the names an expression or statement reads, nested ones included."""
    return frozenset(
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    )


@lru_cache(maxsize=16384)
def writes(node: ast.AST) -> Names:
    """Return the names a target, statement or expression assigns, nested statements included, or
    assigns an attribute of: those of a comprehension are its own.
    """
    nodes = list(ast.walk(node))
    targets = [inner.target for inner in nodes if isinstance(inner, ast.comprehension)]
    own = {inner for target in targets for inner in ast.walk(target)}
    stores = [each for each in nodes if isinstance(getattr(each, "ctx", None), ast.Store)]
    names = [each.value if isinstance(each, ast.Attribute) else each for each in stores]
    return frozenset(each.id for each in names if isinstance(each, ast.Name) and each not in own)


def assigned(statements: Sequence[ast.stmt]) -> Names:
    """Return the names a list of statements may assign."""
    return _NONE.union(*(writes(statement) for statement in statements))


def returns(statements: Sequence[ast.stmt]) -> ast.Return | None:
    """Return the first `return` in a list of statements, nested ones included."""
    return next(filter(None, map(_return_in, statements)), None)


@lru_cache(maxsize=16384)
def _return_in(statement: ast.stmt) -> ast.Return | None:
    return next((inner for inner in ast.walk(statement) if isinstance(inner, ast.Return)), None)
