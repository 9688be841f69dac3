"""Lemma 4 against the aref program: copies move the boxes that the program asks for.

After `insert_arefs` a kernel is one sequence of operations. What is kept of it are its accesses
through descriptors, as terms (`values.py`): the descriptor, the offsets as functions of the launch
and of the iterations around it, the box, and which tile of which ring it is. Passes after that
may move a copy some iterations: each copy of the final kernel is a part of one of these boxes, for
iteration i + p in the loop, 0 .. p - 1 before it, or the last one after it. Together the parts are
the box, and a buffer holds one tile of one ring, the one whose name it has.

Where there is no aref program, as for hopper IR that was written by hand, none of this is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.memory import reached, roots_of
from tawa.analysis.statements import accessed
from tawa.ir import aref, hopper, tile
from tawa.ir.types import ViewType, shape_of
from tawa.ir.walk import all_of, walk
from tawa.verify.footprints import place_of
from tawa.verify.forwarded import loops_around, role_of
from tawa.verify.rings import VIEWS
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import NEVER, Condition, Conditions, Term, Terms
from tawa.verify.values import Span, Values

_EFFECTS = (tile.Atomic, tile.CompareExchange, hopper.NextProgram)
_Effect: TypeAlias = tile.Atomic | tile.CompareExchange | hopper.NextProgram
_Extent: TypeAlias = tuple[int, int]
"""Where a box starts, and how far it extends."""
_FAR = 1 << 31
"""Further than any number of iterations."""
_ACCESSES = (tile.DescLoad, tile.DescStore, tile.DescAtomic)
_BY_THREADS = (tile.Store, tile.Atomic, tile.CompareExchange, tile.AsmEffect)
Key: TypeAlias = tuple[str, frozenset[int] | None, tuple[tuple[Term, Term], ...]]
"""What is done, through which arguments, and the length and step of the loops around it."""
Parts: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """One access through a descriptor in the aref program."""

    number: int
    kind: str
    """load, store, or what a reduction does."""
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
    key: Key


@dataclass(slots=True)
class Program:
    """What is kept of an aref program to compare the final kernel with."""

    terms: Terms
    by_threads: Amounts
    """What is written by no descriptor."""
    asked: list[Asked] = field(default_factory=list[Asked])
    effects: dict[str, list[tuple[int, Term]]] = field(
        default_factory=dict[str, list[tuple[int, Term]]]
    )
    """What operations gave that need not give the same twice, by the operation's name, and how
    many loops are around each."""

    def values_of(self, kernel: tile.Kernel, cluster: int) -> Values:
        """Return the values of the final kernel, in the terms of this program: what an atomic gives
        is what the same one of as many gave here.
        """
        values = Values(kernel, cluster, self.terms)
        found: dict[str, list[_Effect]] = {}
        for operation in walk(kernel):
            if isinstance(operation, _EFFECTS):
                found.setdefault(operation.name, []).append(operation)
        for name, operations in found.items():
            known = self.effects.get(name, [])
            if [len(loops_around(each)) for each in operations] == [depth for depth, _ in known]:
                values.same |= {
                    operation.result: term
                    for operation, (_, term) in zip(operations, known, strict=True)
                }
        return values


def program_of(kernel: tile.Kernel, cluster: int) -> Program:
    """Read a kernel after `insert_arefs`. `cluster`: the blocks of a cluster that the plan has."""
    values = Values(kernel, cluster)
    program = Program(values.terms, by_threads=Amounts(values.terms))
    operations = walk(kernel)
    for operation in operations:
        if isinstance(operation, _EFFECTS):
            effect = len(loops_around(operation)), values.of(operation.result)
            program.effects.setdefault(operation.name, []).append(effect)
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
            program.by_threads.add(values, operation)
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
        key[0],
        values.of(operation.desc),
        tuple(values.of(offset) for offset in operation.offsets),
        shape_of(moved.type),
        getattr(label, "data", ""),
        loops,
        tiles.get(moved),
        values.guard(operation),
        key,
    )


def _place(
    values: Values, operation: Operation, kind: str, roots: frozenset[int] | None
) -> tuple[tuple[Span, ...], Key]:
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
            return operation.name


class Amounts:
    """How many elements operations access: by place and, where instances share loops over tiles,
    by which iterations these are, so many times each condition."""

    def __init__(self, terms: Terms) -> None:
        self.conditions = Conditions(terms)
        self.of: dict[Key, dict[Parts, Condition]] = {}

    def add(self, values: Values, operation: Operation) -> None:
        """Count what an operation accesses through pointers."""
        loops, key = _place(values, operation, _kind(operation), reached(operation))
        ptx = isinstance(operation, tile.AsmEffect)
        size = 1 if ptx else prod(shape_of(accessed(operation).type))
        self.put(key, _parts_of(loops), values.guard(operation), size)

    def put(self, key: Key, parts: Parts, guard: Condition, size: int) -> None:
        """Count so many elements more where a condition holds."""
        guard = self.conditions.mapped(guard, self.conditions.terms.blurred) or NEVER
        found = self.of.setdefault(key, {})
        found[parts] = self.conditions.sum(((found.get(parts, NEVER), 1), (guard, size)))

    def within(self, key: Key, guard: Condition) -> Condition:
        """Return a condition where the loops around it iterate at all."""
        for length, step in key[2]:
            if step != self.conditions.terms.zero:
                guard = self.conditions.both(guard, self.conditions.positive(length))
        return guard

    def take_in(self, wanted: Amounts) -> None:
        """Count the last iteration, where it stands behind its loop, for those in the loop."""
        terms = self.conditions.terms
        for key in set(self.of) - set(wanted.of):
            kind, roots, loops = key
            if kind == "load" or not loops:
                continue
            *outer, (length, step) = loops
            around = tuple(outer)
            whole = kind, roots, (*around, (terms.add(length, step), step))
            if whole not in wanted.of:
                continue
            for parts, guard in self.of.pop(key).items():
                self.put(whole, parts, guard, 1)
                self.put((kind, roots, around), parts, self.within(whole, guard), -1)


def _parts_of(loops: Iterable[Span]) -> Parts:
    """Return which iterations of the loops that instances share are meant."""
    return tuple((each.part, each.share) for each in loops if each.share > 1)


# --- the final kernel -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Match:
    """A copy as a part of a box that was asked for, and of which iteration."""

    asked: Asked
    start: tuple[int, ...]
    shape: tuple[int, ...]
    when: Term | None
    """None: of the same iteration of all loops around it."""


def check_coordinates(kernel: tile.Kernel, values: Values, program: Program) -> None:
    """Raise Refused where a copy by TMA moves what the aref program does not ask for."""
    checker = _Checker(values, program)
    names: dict[SSAValue, tuple[int, int] | None] = {}
    holders: dict[tuple[int, int], SSAValue] = {}
    matches: dict[tuple[int, object], list[tuple[_Match, hopper.TmaLoad | hopper.TmaStore]]] = {}
    found: dict[int, set[Parts]] = {}
    by_threads, wanted = Amounts(values.terms), Amounts(values.terms)
    for operation in walk(kernel):
        if isinstance(operation, (tile.Load, *_BY_THREADS)):
            by_threads.add(values, operation)
        if not isinstance(operation, hopper.TmaLoad | hopper.TmaStore):
            continue
        match = checker.match(operation)
        parts = _parts_of(map(values.course, loops_around(operation)))
        found.setdefault(match.asked.number, set()).add(parts)
        by = role_of(operation) if isinstance(operation, hopper.TmaLoad) else parts
        matches.setdefault((match.asked.number, by), []).append((match, operation))
        if isinstance(operation, hopper.TmaLoad):
            _check_tile(operation, match.asked, names, holders)
    for copies in matches.values():
        checker.check_parts(copies)
    for key, amounts in program.by_threads.of.items():
        for guard in amounts.values():
            wanted.put(key, (), guard, 1)
    for asked in program.asked:
        if asked.number in found:
            lost = not _is_whole(found[asked.number])
        elif asked.kind == "load":
            lost = asked.key not in by_threads.of
        else:
            lost = False
            wanted.put(asked.key, (), asked.guard, prod(asked.box))
        if lost:
            raise Refused(rule("coordinates"), f"{asked.name or 'a box'} is copied nowhere", kernel)
    by_threads.take_in(wanted)
    for key in {**wanted.of, **by_threads.of}:
        if key[0] == "load":
            continue
        asked_for = wanted.within(key, wanted.of.get(key, {}).get((), NEVER))
        made = by_threads.of.get(key, {(): NEVER})
        alike = all(wanted.within(key, each) == asked_for for each in made.values())
        if not alike or not _is_whole(made):
            raise Refused(
                rule("effects"),
                f"{key[0]} through {_arguments(kernel, key[1])} is not done as often, or not under "
                "the conditions, that the aref program says",
                kernel,
            )


def _is_whole(parts: Collection[Parts]) -> bool:
    """Tell whether instances that share loops make all of their iterations."""
    return all(len(parts) == prod(share for _, share in each) for each in parts)


def _arguments(kernel: tile.Kernel, roots: frozenset[int] | None) -> str:
    names = list(kernel.argument_names)
    return "unknown pointers" if roots is None else " or ".join(names[each] for each in roots)


def _check_tile(
    load: hopper.TmaLoad,
    asked: Asked,
    names: dict[SSAValue, tuple[int, int] | None],
    holders: dict[tuple[int, int], SSAValue],
) -> None:
    buffer = place_of(load.view, load).buffer
    shared = buffer.owner
    assert isinstance(shared, hopper.Shared)
    if names.setdefault(buffer, asked.tile) != asked.tile:
        raise Refused(
            rule("coordinates"),
            f"{shared.label.data} is filled with tiles of different rings",
            load,
        )
    if asked.tile is not None and holders.setdefault(asked.tile, buffer) is not buffer:
        raise Refused(
            rule("coordinates"),
            f"{asked.name} is copied into buffers that nothing tells apart",
            load,
        )


class _Checker:
    def __init__(self, values: Values, program: Program) -> None:
        self.values = values
        self.terms = values.terms
        self.conditions = Conditions(values.terms)
        self.program = program
        copies = all_of(values.kernel, hopper.TmaLoad, hopper.TmaStore)
        self.copies = len(copies)
        self.users: dict[SSAValue, set[Operation | None]] = {}
        for slot in all_of(values.kernel, hopper.Slot):
            self.users.setdefault(slot.buffer, set()).add(role_of(slot))
        self.taken: set[tuple[Operation | None, _Match]] = set()
        self.labels = {shared.label.data for shared in all_of(values.kernel, hopper.Shared)}

    def match(self, operation: hopper.TmaLoad | hopper.TmaStore) -> _Match:
        """Find the box that a copy is a part of. Raises Refused where there is none."""
        owner, kind = operation.map.owner, "load"
        assert isinstance(owner, hopper.TensorMap)
        if isinstance(operation, hopper.TmaStore):
            kind = "store" if operation.reduce is None else operation.reduce.data
        desc = self.values.of(owner.desc)
        offsets = tuple(self.values.of(each) for each in operation.offsets)
        placed = operation.view.type
        assert isinstance(placed, ViewType)
        shape = placed.shape
        found: list[_Match] = []
        for asked in self.program.asked:
            if (asked.kind, asked.desc) == (kind, desc) and len(asked.offsets) == len(offsets):
                found += self._parts(asked, offsets, shape, len(loops_around(operation)))
        if isinstance(operation, hopper.TmaLoad):
            start = _start(operation.view)
            shared = place_of(operation.view, operation).buffer
            found = [
                each
                for each in found
                if not any(each.start[: -len(start)])
                and each.start[-len(start) :] == start
                and self._is_of(shared, each.asked)
            ]
        if not found:
            told = ", ".join(map(self.terms.text, offsets))
            raise Refused(
                rule("coordinates"),
                f"{operation.name} moves the box at ({told}) of {self.terms.text(desc)}, which is "
                "not shown to be one that the program asks for here",
                operation,
            )
        chosen = min(found, key=lambda each: self._distance(operation, each))
        self.taken.add((role_of(operation), chosen))
        return chosen

    def _distance(self, copy: Operation, match: _Match) -> tuple[int, ...]:
        """Return how far a copy is from a load that it may be of: of those that ask for its box it
        is of the one whose loop iterates as often, of the nearest iteration, that no other has.
        """
        terms, loops = self.terms, match.asked.loops
        loop, more = self._inner(copy, match.asked), None
        late = 0 if match.when is None else terms.number(match.when)
        if isinstance(loop, scf.ForOp):
            span = loops[-1]
            more = terms.ratio(terms.sub(span.length, self.values.span(loop).length), span.step)
            if match.when is not None:
                late = terms.number(terms.sub(match.when, terms.iteration(len(loops) - 1)))
        again = match.asked.kind != "load" or self.varies(match.asked)
        taken = again and (role_of(copy), match) in self.taken
        return *(_FAR if each is None else abs(each) for each in (more, late)), taken

    def _parts(
        self, asked: Asked, offsets: tuple[Term, ...], shape: tuple[int, ...], depth: int
    ) -> Iterator[_Match]:
        # A box of windows has taps, and the windows of an image, behind the offsets of its block.
        behind = (1,) * (len(offsets) - len(asked.box))
        rank = len(asked.box)
        part = (*(1 for _ in range(rank - len(shape))), *shape)[-rank:] if rank else ()
        if len(asked.loops) > depth:  # behind the loop: the last iteration has two names
            last, left = self._last(asked), self._left(asked)
            named = [self.terms.replaced(each, left, last) for each in offsets]
            offsets = tuple(
                each if found is None else found for each, found in zip(offsets, named, strict=True)
            )
        for wanted, when in self._moved(asked, offsets):
            start = [
                self.terms.number(self.terms.sub(got, want))
                for got, want in zip(offsets, wanted, strict=True)
            ]
            inside = [
                at is not None and at >= 0 and at + extent <= whole
                for at, extent, whole in zip(
                    start, (*part, *behind), (*asked.box, *behind), strict=True
                )
            ]
            if all(inside):
                yield _Match(asked, tuple(at or 0 for at in start[:rank]), part, when)
                return

    def _moved(
        self, asked: Asked, offsets: tuple[Term, ...]
    ) -> Iterator[tuple[tuple[Term, ...], Term | None]]:
        """Yield the offsets that are asked for, and those of other iterations of its inner loop."""
        yield asked.offsets, None
        depth = len(asked.loops) - 1
        if depth < 0:
            return
        at = self.terms.iteration(depth)
        solved = False
        for got, want in zip(offsets, asked.offsets, strict=True):
            parts = self.terms.linear(want, at)
            factor = None if parts is None else self.terms.number(parts[1])
            if parts is None or not factor:
                continue
            solved = True
            moved = self.terms.quotient(self.terms.sub(got, parts[0]), factor)
            if moved is not None and self._is_iteration(moved, asked, at):
                yield from self._at(asked, at, moved)
        if solved:
            return
        # Functions of the iteration are not solved for it: all that copies may move to are tried.
        yield from self._at(asked, at, self._last(asked))
        for number in range(self.copies):
            yield from self._at(asked, at, self.terms.constant(number))
            yield from self._at(asked, at, self.terms.add(at, self.terms.constant(number + 1)))

    def _at(self, asked: Asked, at: Term, moved: Term) -> Iterator[tuple[tuple[Term, ...], Term]]:
        changed = [self.terms.replaced(each, at, moved) for each in asked.offsets]
        if all(each is not None for each in changed):
            yield tuple(each for each in changed if each is not None), moved

    def _is_iteration(self, term: Term, asked: Asked, at: Term) -> bool:
        """Tell whether a term is a number, some iterations ahead, or the last iteration."""
        for origin in (term, self.terms.sub(term, at)):
            number = self.terms.number(origin)
            if number is not None:
                return number >= 0
        return term == self._last(asked)

    def _last(self, asked: Asked) -> Term:
        span = asked.loops[-1]
        return self.values.quotient(self.terms.sub(span.length, self.terms.one), span.step)

    def _left(self, asked: Asked) -> Term:
        """Return the last iteration as a loop counts that makes all others, where there is one."""
        span = asked.loops[-1]
        return self.terms.iterations(self.terms.sub(span.length, span.step), span.step)

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

    def check_parts(self, parts: list[tuple[_Match, hopper.TmaLoad | hopper.TmaStore]]) -> None:
        """The parts of each iteration make the box once, and no iteration is left out."""
        asked, operation = parts[0][0].asked, parts[0][1]
        at = self.terms.iteration(len(asked.loops) - 1)
        if asked.loops and not self.varies(asked):
            parts = self._in_turn(asked, parts)
        ahead = {
            late: self._inner(copy, asked)
            for match, copy in parts
            if match.when is not None
            and (late := self.terms.number(self.terms.sub(match.when, at))) is not None
        }
        order: dict[tuple[Term | None, int], list[Operation]] = {}
        by: dict[tuple[Term | None, int], dict[tuple[_Extent, ...], Condition]] = {}
        for match, copy in parts:
            place = match.when, self._first(copy, match, ahead)
            order.setdefault(place, []).append(copy)
            starts = by.setdefault(place, {})
            box = tuple(zip(match.start, match.shape, strict=True))
            guard = self._within(copy, asked, self.values.guard(copy))
            starts[box] = self.conditions.sum(((starts.get(box, NEVER), 1), (guard, 1)))
        for (when, first), starts in by.items():
            size = sum(prod(extent for _, extent in box) for box in starts)
            if size != prod(asked.box) or any(_meet(*pair) for pair in combinations(starts, 2)):
                raise Refused(
                    rule("coordinates"),
                    f"the copies of {asked.name or 'a box'} are not its parts, each once",
                    operation,
                )
            copy = order[when, first][0]
            wanted = self._within(copy, asked, self._guard(copy, asked, when, first))
            if any(guard != wanted for guard in starts.values()):
                raise Refused(
                    rule("effects"),
                    f"{asked.name or 'a box'} is not copied once under the condition that the "
                    "program says",
                    copy,
                )
        last = self._last(asked) if asked.loops and set(by) != {(None, 0)} else None
        early, inner = 0, -1
        out = sum(
            self.terms.number(when) is not None or when == last
            for when, _ in by
            if when is not None
        )
        for (when, first), copies in order.items():
            number = None if when is None else self.terms.number(when)
            late = 0 if when is None else self.terms.number(self.terms.sub(when, at))
            if first:
                turn, around = early == 0 and inner < 0, True
                early = first
            elif late is not None:
                turn, around = inner < 0 and late == early, True
                inner = late
            elif number is not None and inner < 0:
                turn, around = number == early, False
                early += 1
            else:
                turn, around = inner == early and when == last, False
            for copy in copies:
                if not turn or not self._is_around(copy, asked, around, out, first):
                    raise Refused(
                        rule("coordinates"),
                        f"the copies of {asked.name or 'a box'} are not those of all iterations "
                        "in turn",
                        copy,
                    )

    def _within(self, copy: Operation, asked: Asked, guard: Condition) -> Condition:
        """Return a condition where the loops around a copy, and the program's, iterate at all."""
        around = loops_around(copy)
        loops = [self.values.course(loop) for loop in around]
        if self._inner(copy, asked) is not None:
            loops.append(asked.loops[-1])
        for span in loops:
            if span.step != self.terms.zero:
                guard = self.conditions.both(guard, self.conditions.positive(span.length))
        return self.conditions.mapped(guard, self.terms.blurred) or NEVER

    def _guard(self, copy: Operation, asked: Asked, when: Term | None, first: int) -> Condition:
        """Return under which condition the program asks for the box of an iteration."""
        if when is None:
            return asked.guard
        terms, span, at = self.terms, asked.loops[-1], self.terms.iteration(len(asked.loops) - 1)
        guard = self.conditions.mapped(asked.guard, lambda x: terms.replaced(x, at, when)) or NEVER
        left = terms.sub(span.length, terms.mul(span.step, when))
        if when == self._last(asked):
            left = span.length
        loop = self._inner(copy, asked)
        if isinstance(loop, scf.ForOp):
            own = terms.sub(self.values.span(loop).length, terms.mul(span.step, at))
            if (terms.ratio(terms.sub(left, own), span.step) or -1) >= 0 or left == own:
                return guard
        return self.conditions.both(guard, self.conditions.positive(left))

    def varies(self, asked: Asked) -> bool:
        """Tell whether a box is another one in each iteration of the inner loop around it."""
        return ("iteration", len(asked.loops) - 1) in self.terms.support_of(asked.offsets)

    def _inner(self, copy: Operation, asked: Asked) -> Operation | None:
        """Return the loop around a copy that stands as deep as the inner one of the program's."""
        around = loops_around(copy)
        return around[-len(asked.loops)] if len(around) >= len(asked.loops) > 0 else None

    def _in_turn(
        self, asked: Asked, parts: list[tuple[_Match, hopper.TmaLoad | hopper.TmaStore]]
    ) -> list[tuple[_Match, hopper.TmaLoad | hopper.TmaStore]]:
        """Of a box that is the same in all iterations say of each copy which one it is of: its
        offsets do not, and the iteration whose turn it is has the same box.
        """
        at, span = self.terms.iteration(len(asked.loops) - 1), asked.loops[-1]
        main = [loop for _, copy in parts if (loop := self._inner(copy, asked)) is not None][-1:]
        early, in_loop = 0, False
        before: dict[tuple[int, ...], int] = {}
        found: list[tuple[_Match, hopper.TmaLoad | hopper.TmaStore]] = []
        for match, copy in parts:
            loop, when = self._inner(copy, asked), None
            if loop is None and in_loop:
                when = self._last(asked)
            elif loop is None:
                number = before.setdefault(match.start, 0)
                before[match.start] += 1
                early, when = max(early, number + 1), self.terms.constant(number)
            elif loop in main or not isinstance(loop, scf.ForOp):
                in_loop = True
                when = self.terms.add(at, self.terms.constant(early)) if early else None
            elif (least := self.values.span(loop).length) != span.length:
                _, ends = self.terms.bounded(least) or (True, (least,))
                early = max(self.terms.ratio(each, span.step) or 0 for each in ends)
            found.append((replace(match, when=when), copy))
        return found

    def _first(self, copy: Operation, match: _Match, ahead: Mapping[int, Operation | None]) -> int:
        """Return of how many first iterations a copy is, where a loop of its own makes these: as
        many as there are, and no more than copies in the loop after it are `ahead`. Else 0.
        """
        loop = self._inner(copy, match.asked)
        if match.when is not None or not isinstance(loop, scf.ForOp):
            return 0
        span, wanted = self.values.span(loop), match.asked.loops[-1]
        for late, other in ahead.items():
            most = self.terms.scale(span.step, late)
            least = span.step == wanted.step and self._is_least(span.length, wanted.length, most)
            if late > 0 and other is not loop and least:
                return late
        return 0

    def _is_least(self, term: Term, *both: Term) -> bool:
        """Tell whether a term is the lesser one of two."""
        numbers = [n for each in (term, *both) if (n := self.terms.number(each)) is not None]
        if len(numbers) == 1 + len(both):
            return numbers[0] == min(numbers[1:])
        found = self.terms.bounded(term)
        return found is not None and found[0] and set(found[1]) == set(both)

    def _is_around(self, copy: Operation, asked: Asked, inside: bool, out: int, first: int) -> bool:
        """Tell whether the loops around a copy are those that the program has, but for the
        iterations of the inner one that were taken out of it, or are left out by a condition, and
        but for the inner one where it makes the `first` iterations.
        """
        loops = list(reversed(loops_around(copy)))
        if len(loops) != len(asked.loops) - (not inside):
            return False
        for place, (loop, wanted) in enumerate(zip(loops, asked.loops, strict=False)):
            span, inner = self.values.course(loop), place == len(asked.loops) - 1
            if span.share > 1 or (inner and first):
                continue
            taken = self.terms.ratio(self.terms.sub(wanted.length, span.length), span.step)
            if span.step != wanted.step or taken not in (0, out if inner else 0):
                return False
        return True


def _meet(one: tuple[_Extent, ...], other: tuple[_Extent, ...]) -> bool:
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
