"""Lemma 4 against the aref program: a kernel copies, writes and multiplies what it asks for.

After `insert_arefs` a kernel is one sequence of operations. What is kept of it are its accesses
through descriptors, as terms (`values.py`): the descriptor, the offsets as functions of the launch
and of the iterations around it, the box, under which condition it is made, and which tile of which
ring it is. Passes after that may move a copy some iterations: each copy of the final kernel is a
part of one of these boxes, for iteration i + p in the loop, 0 .. p - 1 before it, or the last one
after it, as the number of those before says. Together the parts are the box, under its condition,
and a buffer holds one tile of one ring, the one whose name it has. Of what threads write, and of
products, the amounts are compared, by condition.

Where there is no aref program, as for hopper IR that was written by hand, none of this is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import combinations, takewhile
from math import prod
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from tawa.analysis.memory import reached, roots_of
from tawa.analysis.statements import accessed, is_volatile
from tawa.ir import aref, hopper, tile
from tawa.ir.types import ViewType, shape_of
from tawa.ir.walk import all_of, walk
from tawa.verify.footprints import place_of
from tawa.verify.forwarded import loops_around, role_of
from tawa.verify.rings import VIEWS
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import NEVER, Condition, Conditions, Key, Term, Terms
from tawa.verify.values import Span, Values

_EFFECTS = (tile.Atomic, tile.CompareExchange, hopper.NextProgram)
_Transfer: TypeAlias = hopper.TmaLoad | hopper.TmaStore
_Box: TypeAlias = tuple[tuple[int, int], ...]
"""By axis: where it starts, and how far it extends."""
_FAR = 1 << 31
"""Further than any number of iterations."""
_ACCESSES = (tile.DescLoad, tile.DescStore, tile.DescAtomic)
_PRODUCTS = (tile.Dot, hopper.Wgmma, hopper.Mma, hopper.FmaDot)
_BY_THREADS = (tile.Store, tile.Atomic, tile.CompareExchange, tile.AsmEffect, *_PRODUCTS)
Place: TypeAlias = tuple[str, frozenset[int] | None, tuple[tuple[Term, Term], ...]]
"""What is done, through which arguments, and the length and step of the loops around it."""
Parts: TypeAlias = tuple[tuple[int, int], ...]
"""Which iterations of the loops that instances share: the part, and of how many."""
_By: TypeAlias = tuple[int, Operation | None, Parts]
"""Which copies make one box: what is asked for, of a load the role, and iterations shared."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One access through a descriptor in the aref program."""

    number: int
    key: Place
    desc: Term
    offsets: tuple[Term, ...]
    box: tuple[int, ...]
    name: str
    loops: tuple[Span, ...]
    """The loops around it, the outermost first."""
    tile: tuple[int, int] | None
    """Which tile of which ring it is."""
    guard: Condition
    """Under which it is made in an iteration of these loops."""

    @property
    def label(self) -> str:
        """What a message calls it."""
        return self.name or "a box"


@dataclass(slots=True)
class Program:
    """What is kept of an aref program to compare the final kernel with."""

    terms: Terms
    by_threads: Amounts
    """What is written by no descriptor."""
    asked: list[Asked] = field(default_factory=list[Asked])
    effects: dict[Key, list[Term]] = field(default_factory=dict[Key, list[Term]])
    """What operations gave that need not give the same twice."""

    def values_of(self, kernel: tile.Kernel, cluster: int) -> Values:
        """Return the values of the final kernel, in the terms of this program: what an atomic gives
        is what the same one of as many gave here.
        """
        values = Values(kernel, cluster, self.terms)
        for key, results in _unknown(kernel, values).items():
            known = self.effects.get(key, [])
            if len(known) == len(results):
                values.same |= dict(zip(results, known, strict=True))
        return Values(kernel, cluster, self.terms, values.same)


def _unknown(kernel: tile.Kernel, values: Values) -> dict[Key, list[SSAValue]]:
    """Return the results that need not be the same twice, by what operation on what gives them."""
    found: dict[Key, list[SSAValue]] = {}
    for operation in walk(kernel):
        if isinstance(operation, _EFFECTS) or is_volatile(operation):
            depth = len(loops_around(operation))
            pointers = [values.terms.blurred(values.of(each)) for each in operation.operands[:1]]
            found.setdefault((operation.name, depth, *pointers), []).append(operation.results[0])
    return found


def program_of(kernel: tile.Kernel, cluster: int) -> Program:
    """Read a kernel after `insert_arefs`. `cluster`: the blocks of a cluster that the plan has."""
    values = Values(kernel, cluster)
    program = Program(values.terms, by_threads=Amounts(values))
    operations = walk(kernel)
    for name, results in _unknown(kernel, values).items():
        program.effects[name] = [values.of(each) for each in results]
    tiles: dict[SSAValue, tuple[int, int]] = {}
    rings: list[SSAValue] = [each.result for each in operations if isinstance(each, aref.Create)]
    for operation in operations:
        if isinstance(operation, aref.PutExit) and isinstance(operation.slot.owner, aref.PutEnter):
            ring = rings.index(operation.slot.owner.aref)
            tiles |= {value: (ring, place) for place, value in enumerate(operation.values)}
    for operation in operations:
        if isinstance(operation, _ACCESSES):
            program.asked.append(_asked(operation, len(program.asked), values, tiles))
        elif isinstance(operation, _BY_THREADS):
            program.by_threads.add(operation)
    return program


def _asked(
    operation: tile.DescLoad | tile.DescStore | tile.DescAtomic,
    number: int,
    values: Values,
    tiles: dict[SSAValue, tuple[int, int]],
) -> Asked:
    moved = operation.result if isinstance(operation, tile.DescLoad) else operation.value
    loops, key = _place(values, operation, _kind(operation), roots_of(operation.desc))
    label = operation.attributes.get("label")
    return Asked(
        number,
        key,
        values.of(operation.desc),
        tuple(values.of(offset) for offset in operation.offsets),
        shape_of(moved.type),
        getattr(label, "data", ""),
        loops,
        tiles.get(moved),
        values.guard(operation),
    )


def _place(
    values: Values, operation: Operation, kind: str, roots: frozenset[int] | None
) -> tuple[tuple[Span, ...], Place]:
    """Return the loops around an operation, and what tells where it is and what it does."""
    loops = tuple(values.course(loop) for loop in reversed(loops_around(operation)))
    blurred = values.terms.blurred
    return loops, (kind, roots, tuple((blurred(e.length), blurred(e.step)) for e in loops))


def _kind(operation: Operation) -> str:
    match operation:
        case tile.DescLoad() | tile.Load():
            return "load"
        case tile.DescStore() | tile.Store():
            return "store"
        case tile.DescAtomic(function=function) | tile.Atomic(function=function):
            return function.data
        case _:
            return "product" if isinstance(operation, _PRODUCTS) else operation.name


class Amounts:
    """How many elements operations access, or products they add: by place and, where instances
    share loops over tiles, by which iterations these are, so many times each condition."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.conditions = Conditions(values.terms)
        self.of: dict[Place, dict[Parts, Condition]] = {}

    def add(self, operation: Operation) -> None:
        """Count what an operation accesses through pointers, or the products that it adds."""
        roots, size = frozenset[int](), 1
        if isinstance(operation, _PRODUCTS):
            kind = operation.a.type
            rows = kind.shape if isinstance(kind, ViewType) else shape_of(kind)
            size = rows[-1] * prod(shape_of(operation.result.type))
        else:
            roots = reached(operation)
            if not isinstance(operation, tile.AsmEffect):
                size = prod(shape_of(accessed(operation).type))
        loops, key = _place(self.values, operation, _kind(operation), roots)
        self.put(key, _parts_of(loops), self.values.guard(operation), size)

    def put(self, key: Place, parts: Parts, guard: Condition, size: int) -> None:
        """Count so many elements more where a condition holds."""
        guard = self.conditions.blurred(guard)
        found = self.of.setdefault(key, {})
        found[parts] = self.conditions.sum(((found.get(parts, NEVER), 1), (guard, size)))

    def within(self, key: Place, guard: Condition) -> Condition:
        """Return a condition where the loops around it iterate at all."""
        for length, step in key[2]:
            if step != self.values.terms.zero:
                guard = self.conditions.both(guard, self.conditions.positive(length))
        return guard

    def total(self, key: Place) -> dict[Parts, Condition]:
        """Return what is counted in a place, where its loops iterate."""
        return {parts: self.within(key, e) for parts, e in self.of.get(key, {(): NEVER}).items()}

    def take_in(self, wanted: Amounts) -> None:
        """Count the last iteration, where it stands beside its loop, for those in the loop."""
        terms = self.values.terms
        for key in list(self.of):
            kind, roots, loops = key
            if kind == "load" or not loops:
                continue
            *outer, (length, step) = loops
            beside = kind, roots, tuple(outer)
            whole = kind, roots, (*outer, (terms.blurred(terms.add(length, step)), step))
            same = key in wanted.of and self.total(beside) == wanted.total(beside)
            if whole in wanted.of and not same:
                at = terms.iteration(len(outer))
                last = self.values.last(whole[2][-1][0], step)
                for parts, guard in self.of.pop(key).items():
                    self.put(whole, parts, guard, 1)
                    guard = self.within(whole, guard)
                    there = self.conditions.replaced(guard, at, last)
                    self.put(beside, parts, guard if there is None else there, -1)


def _parts_of(loops: Iterable[Span]) -> Parts:
    """Return which iterations of the loops that instances share are meant."""
    return tuple((each.part, each.share) for each in loops if each.share > 1)


# --- the final kernel -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy as a part of a box that was asked for, in an iteration of the program's inner loop."""

    operation: _Transfer
    asked: Asked
    box: _Box
    when: Term | None
    """None: it is that of the loop around the copy."""
    loop: Operation | None
    """The loop around it that stands as deep as the inner one of the program."""


def check_coordinates(kernel: tile.Kernel, values: Values, program: Program) -> None:
    """Raise Refused where a kernel copies what the aref program does not ask for, or not under the
    same conditions, or where it writes more or less than that."""
    copies, made, wanted = _Copies(values, program), Amounts(values), Amounts(values)
    for operation in walk(kernel):
        if isinstance(operation, _Transfer):
            if not copies.conditions.is_never(values.guard(operation)):
                copies.add(operation)
        elif isinstance(operation, (tile.Load, *_BY_THREADS)):
            made.add(operation)
    for parts in copies.of.values():
        copies.check(parts)
    for key, guards in program.by_threads.of.items():
        wanted.put(key, (), guards[()], 1)
    for asked in program.asked:
        if copies.conditions.is_never(asked.guard):
            continue
        found = {parts for number, _, parts in copies.of if number == asked.number}
        if not found and asked.key[0] != "load":
            wanted.put(asked.key, (), asked.guard, prod(asked.box))
        elif not _is_whole(found) or not (found or asked.key in made.of):
            raise Refused(rule("coordinates"), f"{asked.label} is copied nowhere", kernel)
    made.take_in(wanted)
    for key in {**wanted.of, **made.of}:
        parts = made.total(key)
        alike = {*parts.values()} == {*wanted.total(key).values()} and _is_whole(parts)
        if key[0] != "load" and not alike:
            names = [kernel.argument_names[each] for each in sorted(key[1] or ())]
            raise Refused(
                rule("effects"),
                f"{key[0]}{' through ' * bool(names)}{' or '.join(names)} is not made as often, or "
                "not under the conditions, that the aref program says",
                kernel,
            )


def _is_whole(parts: Collection[Parts]) -> bool:
    """Tell whether instances that share loops make all of their iterations."""
    return all(len(parts) == prod(share for _, share in each) for each in parts)


class _Copies:
    """The copies of the final kernel by TMA, each as a part of what the program asks for."""

    def __init__(self, values: Values, program: Program) -> None:
        self.values = values
        self.terms = values.terms
        self.conditions = Conditions(values.terms)
        self.program = program
        self.of: dict[_By, list[_Copy]] = {}
        self.users: dict[SSAValue, set[Operation | None]] = {}
        for slot in all_of(values.kernel, hopper.Slot):
            self.users.setdefault(slot.buffer, set()).add(role_of(slot))
        self.labels = {shared.label.data for shared in all_of(values.kernel, hopper.Shared)}
        self.names: dict[SSAValue, tuple[int, int] | None] = {}
        self.holders: dict[tuple[int, int], SSAValue] = {}
        self.latest: dict[tuple[Operation | None, tuple[int, int]], Asked] = {}

    def add(self, operation: _Transfer) -> None:
        """Find the box that a copy is a part of: of those that it may be of that whose loop
        iterates as often, in the nearest iteration, that no copy has. Raises Refused where there is
        none.
        """
        owner, kind, role = operation.map.owner, "load", role_of(operation)
        assert isinstance(owner, hopper.TensorMap)
        if isinstance(operation, hopper.TmaStore):
            kind = "store" if operation.reduce is None else operation.reduce.data
        desc = self.values.of(owner.desc)
        offsets = tuple(self.values.of(each) for each in operation.offsets)
        parts = _parts_of(self.values.course(loop) for loop in loops_around(operation))
        found: list[tuple[tuple[int, ...], _Copy, _By]] = []
        for asked in self.program.asked:
            if (asked.key[0], asked.desc) == (kind, desc) and len(asked.offsets) == len(offsets):
                by = asked.number, role if kind == "load" else None, parts
                before = self.of.get(by, [])
                if (copy := self._fitted(operation, asked, offsets, before)) is not None:
                    found.append((self._distance(copy, before), copy, by))
        if not found:
            told = ", ".join(map(self.terms.text, offsets))
            raise Refused(
                rule("coordinates"),
                f"{operation.name} moves the box at ({told}) of {self.terms.text(desc)}, which is "
                "not shown to be one that the program asks for here",
                operation,
            )
        _, copy, by = min(found, key=lambda each: each[0])
        self.of.setdefault(by, []).append(copy)
        if isinstance(operation, hopper.TmaLoad):
            self._check_tile(operation, copy.asked, role)

    def _distance(self, copy: _Copy, before: list[_Copy]) -> tuple[int, ...]:
        terms, loops, when = self.terms, copy.asked.loops, copy.when
        more = None
        if copy.loop is not None:
            length = self.values.course(copy.loop).length
            more = terms.ratio(terms.sub(loops[-1].length, length), loops[-1].step)
            if when is not None:
                when = terms.sub(when, terms.iteration(len(loops) - 1))
        late = 0 if when is None else terms.number(when)
        taken = any((e.when, e.box) == (copy.when, copy.box) for e in before)
        return *(_FAR if each is None else abs(each) for each in (more, late)), taken

    def _fitted(
        self, operation: _Transfer, asked: Asked, offsets: tuple[Term, ...], before: list[_Copy]
    ) -> _Copy | None:
        """Return a copy as a part of a box, in the iteration whose turn it is: of copies before a
        loop that of their number, in the loop as many later, and behind it the last one.
        """
        terms, loop = self.terms, self._inner(operation, asked)
        main = [each.loop for each in before if each.loop not in (None, loop)]
        counts = Counter(each.box for each in before if each.loop is None)
        for ahead in {0, *counts.values()}:
            when: Term | None = None
            fixed = not asked.loops or (loop is None and bool(main))
            if fixed:
                when = self._last(asked) if asked.loops else None
            elif loop is None:
                when = terms.constant(ahead)
            elif late := ahead + sum(self._first(each, asked) for each in dict.fromkeys(main)):
                when = terms.add(terms.iteration(len(asked.loops) - 1), terms.constant(late))
            box = self._box(operation, asked, offsets, when)
            if box is not None and (fixed or counts[box] == ahead):
                return _Copy(operation, asked, box, when, loop)
        return None

    def _box(
        self, operation: _Transfer, asked: Asked, offsets: tuple[Term, ...], when: Term | None
    ) -> _Box | None:
        """Return which part of the box of an iteration a copy moves; None where it is none."""
        terms, wanted = self.terms, list(asked.offsets)
        if when is not None:
            at = terms.iteration(len(asked.loops) - 1)
            wanted = _known(terms.replaced(each, at, when) for each in wanted)
        if len(asked.loops) > len(loops_around(operation)):  # the last iteration has two names
            last, span = self._last(asked), asked.loops[-1]
            left = terms.iterations(terms.sub(span.length, span.step), span.step)
            named = [terms.replaced(each, left, last) for each in offsets]
            offsets = tuple(b if a is None else a for a, b in zip(named, offsets, strict=True))
        # A box of windows has taps, and the windows of an image, behind the offsets of its block.
        rank, behind = len(asked.box), (1,) * (len(offsets) - len(asked.box))
        view = operation.view.type
        assert isinstance(view, ViewType)
        shape = (*(1 for _ in range(rank - len(view.shape))), *view.shape)[-rank:] if rank else ()
        starts = _known(
            terms.number(terms.sub(got, want)) for got, want in zip(offsets, wanted, strict=False)
        )
        box = tuple(zip(starts, (*shape, *behind), strict=False))
        if len(box) < len(offsets) or any(
            at < 0 or at + extent > whole
            for (at, extent), whole in zip(box, (*asked.box, *behind), strict=True)
        ):
            return None
        if isinstance(operation, hopper.TmaLoad):
            own = _start(operation.view)
            own = (0,) * (rank - len(own)) + own
            buffer = place_of(operation.view, operation).buffer
            if tuple(starts[:rank]) != own[-rank:] or not self._is_of(buffer, asked):
                return None
        return box[:rank]

    def _last(self, asked: Asked) -> Term:
        span = asked.loops[-1]
        return self.values.last(span.length, span.step)

    def _inner(self, copy: Operation, asked: Asked) -> Operation | None:
        """Return the loop around a copy that stands as deep as the inner one of the program's."""
        around = loops_around(copy)
        return around[-len(asked.loops)] if len(around) >= len(asked.loops) > 0 else None

    def _first(self, loop: Operation | None, asked: Asked) -> int:
        """Return how many first iterations a loop makes that stands before the one of all others:
        the lesser one of a number and of as many as there are. Else 0.
        """
        terms, wanted = self.terms, asked.loops[-1]
        if loop is None or (span := self.values.course(loop)).step != wanted.step:
            return 0
        least, ends = terms.bounded(span.length) or (True, (span.length,))
        number = max(terms.ratio(each, span.step) or 0 for each in ends)
        both = {wanted.length, terms.scale(span.step, number)}
        numbers = _known(map(terms.number, both))
        alike = terms.number(span.length) == min(numbers) if len(numbers) == len(both) else False
        return number if alike or (least and set(ends) == both) else 0

    def _check_tile(self, load: hopper.TmaLoad, asked: Asked, role: Operation | None) -> None:
        """A buffer holds one tile of one ring, whose loads are copied in the program's order."""
        buffer, why = place_of(load.view, load).buffer, ""
        shared = buffer.owner
        assert isinstance(shared, hopper.Shared)
        if self.names.setdefault(buffer, asked.tile) != asked.tile:
            why = f"{shared.label.data} is filled with tiles of different rings"
        elif asked.tile is not None:
            if self.holders.setdefault(asked.tile, buffer) is not buffer:
                why = f"{asked.label} is copied into buffers that nothing tells apart"
            latest = self.latest.setdefault((role, asked.tile), asked)
            self.latest[role, asked.tile] = asked
            if latest.number > asked.number:
                why = f"{latest.label} is copied before {asked.label}"
        if why:
            raise Refused(rule("coordinates"), why, load)

    def _is_of(self, buffer: SSAValue, asked: Asked) -> bool:
        """Tell whether a buffer has the name of a load that fills it. A load that no buffer is
        called after shares that of another, in one role, which reads what it has loaded last.
        """
        shared = buffer.owner
        assert isinstance(shared, hopper.Shared)
        names = {asked.name}
        if asked.tile is not None:
            names = {each.name for each in self.program.asked if each.tile == asked.tile}
        if shared.label.data in names:
            return True
        alone = len(self.users[buffer]) == 1
        return asked.tile is None and alone and asked.name not in self.labels

    def check(self, copies: list[_Copy]) -> None:
        """The parts of each iteration make the box once, under the program's condition, and no
        iteration is left out."""
        asked = copies[0].asked
        outside = {each.when for each in copies if each.loop is None}
        loops = list(dict.fromkeys(each.loop for each in copies if each.loop is not None))
        places: dict[tuple[Term | None, Operation | None], dict[_Box, list[_Copy]]] = {}
        for copy in copies:
            places.setdefault((copy.when, copy.loop), {}).setdefault(copy.box, []).append(copy)
        for parts in places.values():
            size = sum(prod(extent for _, extent in box) for box in parts)
            if size != prod(asked.box) or any(_meet(*pair) for pair in combinations(parts, 2)):
                what = f"the copies of {asked.label} are not its parts, each once"
                raise Refused(rule("coordinates"), what, copies[0].operation)
            for same in parts.values():
                guards = [(self.values.guard(copy.operation), 1) for copy in same]
                wanted = self._guard(same[0])
                if wanted is None or self._within(same[0], self.conditions.sum(guards)) != (
                    self._within(same[0], wanted)
                ):
                    what = f"{asked.label} is not copied once under the program's condition"
                    raise Refused(rule("effects"), what, same[0].operation)
        number = self.terms.constant(len(outside))
        whole = bool(loops) or not asked.loops
        whole = (
            whole or self.terms.iterations(asked.loops[-1].length, asked.loops[-1].step) == number
        )
        whole = whole and len(loops) - sum(self._first(each, asked) > 0 for each in loops[:-1]) < 2
        behind = bool(loops) and copies[-1].loop is None
        for copy in copies:
            first = copy.loop not in (None, *loops[-1:])
            if not whole or not self._is_around(copy, first, len(outside), behind):
                what = f"the copies of {asked.label} are not those of all iterations in turn"
                raise Refused(rule("coordinates"), what, copy.operation)

    def _within(self, copy: _Copy, guard: Condition) -> Condition:
        """Return a condition where the loops around a copy, and the program's, iterate at all."""
        loops = [self.values.course(loop) for loop in loops_around(copy.operation)]
        if copy.loop is not None:
            loops.append(copy.asked.loops[-1])
        for span in loops:
            if span.step != self.terms.zero:
                guard = self.conditions.both(guard, self.conditions.positive(span.length))
        return self.conditions.blurred(guard)

    def _guard(self, copy: _Copy) -> Condition | None:
        """Return under which condition the program asks for the box of an iteration."""
        asked, when, terms = copy.asked, copy.when, self.terms
        if when is None:
            return asked.guard
        span, at = asked.loops[-1], terms.iteration(len(asked.loops) - 1)
        guard = self.conditions.replaced(asked.guard, at, when)
        left = terms.sub(span.length, terms.mul(span.step, when))
        if when == self._last(asked):
            left = span.length
        elif copy.loop is not None:
            length = self.values.course(copy.loop).length
            more = terms.sub(left, terms.sub(length, terms.mul(span.step, at)))
            if (terms.ratio(more, span.step) or 0) >= (more != terms.zero):
                return guard  # the loop makes no iteration more
        return guard and self.conditions.both(guard, self.conditions.positive(left))

    def _is_around(self, copy: _Copy, first: bool, out: int, behind: bool) -> bool:
        """Tell whether the loops around a copy are those that the program has, but for the
        iterations of the inner one that were taken out of it, or are left out by a condition, and
        but for the inner one where it makes the `first` iterations.
        """
        asked = copy.asked
        loops = list(reversed(loops_around(copy.operation)))
        if len(loops) != len(asked.loops) - (bool(asked.loops) and copy.loop is None):
            return False
        for loop, wanted in zip(loops, asked.loops, strict=False):
            span, less, terms = self.values.course(loop), (0,), self.terms
            if loop is copy.loop:
                less = (out,) if behind else (0, out)
            if wanted.step == terms.zero:  # a `while`
                alike = terms.blurred(span.length) == terms.blurred(wanted.length)
            else:
                taken = terms.ratio(terms.sub(wanted.length, span.length), wanted.step)
                alike = taken in less or (first and loop is copy.loop)
            if span.step != wanted.step or not alike:
                return False
        return True


def _known(items: Iterable[int | None]) -> list[int]:
    """Return the items before the first that is None."""
    return list(takewhile(lambda each: each is not None, items))  # type: ignore


def _meet(one: _Box, other: _Box) -> bool:
    """Tell whether two boxes have an element in common."""
    return all(a < b + its and b < a + size for (a, size), (b, its) in zip(one, other, strict=True))


def _start(view: SSAValue) -> tuple[int, ...]:
    """Return where in its slot's tile a view that is a slice starts."""
    owner = view.owner
    kind = view.type
    assert isinstance(kind, ViewType)
    if isinstance(owner, hopper.SliceView):
        before = _start(owner.view)
        own = tuple(each.data for each in owner.start)
        return tuple(a + b for a, b in zip(before, own, strict=True))
    if isinstance(owner, VIEWS):
        return _start(owner.view)
    return (0,) * len(kind.shape)
