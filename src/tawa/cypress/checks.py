"""Legality of a node: privileges at launches, and iterations of a prange that are independent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import gcd

from tawa.cypress.machine import NONE, THREAD, WARP
from tawa.cypress.mapping import Instance
from tawa.cypress.size import Int, affine, evaluate, key, leaves
from tawa.cypress.tensor import Held, Tensor
from tawa.cypress.trace import Launch, Loop, walk
from tawa.cypress.tree import Node
from tawa.errors import MappingError
from tawa.integers.expressions import ONE, ZERO, Expr, Symbol, make, of_atom


def check_leaf_names(instance: Instance) -> None:
    """Refuse a leaf that cannot be: without memory for a tensor, or with calls."""
    for name, memory in instance.memory.items():
        if memory == NONE:
            raise instance.error(
                f" is a leaf and maps {name} to NONE",
                why="a leaf reads and writes elements, and NONE has none",
                remedy="map it to a memory that its level sees",
            )
    if instance.calls:
        raise instance.error(
            f" is a leaf and calls {', '.join(instance.calls)}", why="leaves launch nothing"
        )


def check_privileges(node: Node) -> None:
    """Refuse a launch that asks for more than its parent has, or takes one tensor twice."""
    own = {id(tensor): tensor.name for tensor in node.parameters}
    variant = node.instance.variant
    for launch, child in node.children:
        called = child.instance.variant
        given = list(zip(called.parameters, launch.arguments, strict=True))
        for name, tensor in given:
            mine = own.get(id(tensor.local))
            if mine is None:
                continue
            for word, asked, has in (
                ("writes", called.writes, variant.writes),
                ("reads", called.reads, variant.reads),
            ):
                if name in asked and mine not in has:
                    other = "reads" if word == "writes" else "writes"
                    raise node.instance.error(
                        f" {word} {mine}, which it declares {other}",
                        place=launch.place,
                        why=f'"{child.instance.name}" {word} its {name}',
                        remedy=f'declare {word}="... {mine}" at {variant.name}, or launch another '
                        "variant",
                    )
        for (one, first), (other, second) in combinations(given, 2):
            written = {one, other} & called.writes
            if written and first.root is second.root:
                raise child.instance.error(
                    f" is given parts of {first.root.name} as {one} and {other}",
                    place=launch.place,
                    why=f"it writes {' and '.join(sorted(written))}, and its tensors are distinct",
                )


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """A tensor that a launch in a loop takes: the index of its part, and the loops inside."""

    tensor: Tensor
    launch: Launch
    writes: bool
    inner: tuple[Loop, ...]

    @property
    def index(self) -> tuple[Int, ...]:
        """The indices of its part, from the variant's tensor down."""
        pieces = self.tensor.path[len(self.tensor.local.path) :]
        # By THREAD all have the same of A, and of B always.
        own = (("C", WARP), ("C", THREAD), ("A", WARP))
        told = [p for p in pieces if p.held is None or (p.held.operand, p.held.level) in own]
        return tuple(each for piece in told for each in piece.index)

    @property
    def keys(self) -> list[Expr]:
        """Its indices as expressions."""
        return list(map(key, self.index))

    @property
    def partition(self) -> list[tuple[Held | None, tuple[Expr, ...]]]:
        """The partitions it is a part of."""
        pieces = self.tensor.path[len(self.tensor.local.path) :]
        return [(piece.held, tuple(map(key, piece.block))) for piece in pieces]


def check_prange(node: Node) -> None:
    """Refuse a prange whose iterations may write what another one reads or writes."""
    for loop in [each for each, _ in walk(node.statements) if isinstance(each, Loop)]:
        if loop.kind != "prange" or all(key(extent) == ONE for extent in loop.extents):
            continue
        uses = list(_uses(node, loop))
        for use in uses:
            if use.writes:
                for other in uses:
                    if other.tensor.local is use.tensor.local:
                        _check_pair(loop, use, other)


def _uses(node: Node, loop: Loop) -> Iterator[_Use]:
    found = list(walk(loop.body))
    # What an iteration makes is its own.
    made = {id(each.tensor) for each, _ in found if not isinstance(each, Launch | Loop)}
    for statement, inner in found:
        if isinstance(statement, Launch):
            variant = node.child(statement).instance.variant
            for name, tensor in zip(variant.parameters, statement.arguments, strict=True):
                if id(tensor.local) not in made:
                    yield _Use(tensor, statement, name in variant.writes, inner)


def _check_pair(loop: Loop, one: _Use, other: _Use) -> None:
    name = one.tensor.local.name
    verb = "writes overlapping parts of" if other.writes else "writes what others read of"
    if one.partition != other.partition:
        raise MappingError(
            f"{loop}: cannot show that its parts of {name} are disjoint",
            place=one.launch.place,
            why=f"{one.tensor} and {other.tensor} are of two partitions",
            remedy="part the tensor once",
        )
    found = _overlap(loop, one, other)
    if found is None:
        return
    alike = one.keys == other.keys
    shown = str(one.tensor) if alike else f"{one.tensor} and {other.tensor}"
    if isinstance(found, str):
        raise MappingError(
            f"{loop}: cannot show that its parts of {name} are disjoint",
            place=one.launch.place,
            why=f"{shown}: {found}",
            remedy="index by sums of loop indices with constant factors",
        )
    first, second = (", ".join(f"{i} = {at[i.symbol]}" for i in loop.indices) for at in found)
    same = "is the same block" if alike else "are the same block"
    raise MappingError(
        f"{loop} {verb} {name}",
        place=one.launch.place,
        why=f"{shown} {same} for {first} and {second}",
        remedy="give each iteration a part of its own, or loop with cy.srange",
    )


_At = dict[Symbol, int]


def _overlap(loop: Loop, one: _Use, other: _Use) -> tuple[_At, _At] | str | None:
    """Return two iterations that meet, why none can be excluded, or None where none does.

    With known extents all iterations are compared. Else, for equal affine indices: F x = F y means
    F (x - y) = 0; differences of indices with known extents are tried each, and the others must
    then be none (the rows of F, solved one by one, say so). Else a small box is searched for a
    witness.
    """
    loops = {id(each): each for each in (loop, *one.inner, *other.inner)}.values()
    extents = {
        i.symbol: n for each in loops for i, n in zip(each.indices, each.extents, strict=True)
    }
    ours = [i.symbol for i in loop.indices]
    outer = {n for i in (*one.index, *other.index) for n in leaves(i)} - set(extents)
    bounded = {name: n for name, n in extents.items() if isinstance(n, int)}
    exact = len(bounded) == len(extents) and not outer
    box = {
        name: bounded.get(name, 4) if exact else min(4, bounded.get(name, 4)) for name in extents
    }
    if (found := _witness(one, other, ours, box, outer)) is not None:
        return found
    if exact:
        return None
    if one.keys != other.keys:
        return "the two are indexed apart, by sizes that only a call knows"
    rows = [affine(each, frozenset(extents)) for each in one.index]
    if None in rows:
        return "its index is not affine"
    apart = [sum((of_atom(s) * n for s, n in row.items()), ZERO) for row in rows if row is not None]
    for step in product(*(range(1 - n, n) for n in bounded.values())):
        known = dict(zip(bounded, step, strict=True))
        free = [name for name in ours if name not in bounded]
        moved = any(known.get(name) for name in ours)
        if _meets([row.substitute(known) for row in apart], free, moved):
            return f"iterations that differ by {known or 'some distance'} may meet"
    return None


def _witness(
    one: _Use, other: _Use, ours: list[Symbol], box: _At, outer: set[Symbol]
) -> tuple[_At, _At] | None:
    """Return two different iterations of a box that take one part."""
    fixed = dict.fromkeys(outer, 4)
    seen: dict[tuple[int, ...], list[_At]] = {}
    points = [dict(zip(box, point, strict=True)) for point in product(*map(range, box.values()))]
    for point in points:
        at = tuple(evaluate(each, {**fixed, **point}) for each in one.index)
        seen.setdefault(at, []).append(point)
    for point in points:
        at = tuple(evaluate(each, {**fixed, **point}) for each in other.index)
        for before in seen.get(at, ()):
            if any(before[name] != point[name] for name in ours):
                first, second = sorted((before, point), key=lambda at: [*at.values()])
                return first, second
    return None


def _meets(rows: list[Expr], free: list[Symbol], moved: bool) -> bool:
    """Tell whether rows can all be zero where one of `free` is not, or another has `moved`."""
    solved: dict[Symbol, Expr] = {}
    for row in rows:
        row = row.substitute(solved)
        if row.value is not None:
            if row.value:
                return False
            continue
        if row.offset % (shared := gcd(*(n for m, n in row.terms.items() if m))):
            return False
        row = make({m: n // shared for m, n in row.terms.items()})
        found = {s: e for s in row.symbols if (e := row.solved(s)) is not None}
        if not found:
            return True
        found = dict([*found.items()][:1])
        solved = {s: e.substitute(found) for s, e in solved.items()} | found
    return moved or any(solved.get(each) != ZERO for each in free)
