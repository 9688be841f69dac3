"""H1, one control: what scalars of different roles are the same function of the launch.

Each scalar becomes a term over arguments, the block, words of memory that nobody writes, and the
numbers of the iterations around it. A scalar that a loop carries is a recurrence: its start, and
what an iteration makes of it. Where that adds a constant it is a sum, where it closes over itself
it is an atom of both, so that two roles with the same recurrence have the same term. A scalar that
a role takes out of shared memory is the one that its only store has put there (`_received`): of a
ring, what the other role put in the same iteration (`check_received`).

A term says nothing of who computes it: two equal terms are equal numbers at equal iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.memory import roots_of
from tawa.analysis.statements import is_volatile
from tawa.ir import aref, hopper, tile
from tawa.ir.types import bit_width, element_type, is_signed, shape_of
from tawa.ir.walk import all_of, yielded
from tawa.verify.forwarded import (
    Received,
    around,
    loops_around,
    only_stores,
    paired,
    told_before,
    written_arguments,
)
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import ALWAYS, RANK, UNKNOWN, Condition, Conditions, Leaf, Term, Terms

_BLOCK = ("launch", "block_id", 0)
_COMMUTE = frozenset({"and", "or", "xor", "min", "max", "eq", "ne", "mulhi"})


@dataclass(frozen=True, slots=True)
class Span:
    """How often a loop over numbers iterates: while `length - step * i > 0`, for i = 0, 1, ...

    Of the iterations only those with i mod `share` = `part` are this role's: an instance takes each
    second tile, and numbers its iterations as the loop over all tiles does.
    """

    length: Term
    step: Term
    share: int = 1
    part: int = 0


@dataclass(slots=True)
class Values:
    """The terms of the scalars of one kernel."""

    kernel: tile.Kernel
    cluster: int = 1
    terms: Terms = field(default_factory=Terms)
    same: dict[SSAValue, Term] = field(default_factory=dict[SSAValue, Term])
    """Results of which nothing is known, but that they are those of another program."""
    obligations: dict[Operation, Received] = field(default_factory=dict[Operation, Received])
    _known: dict[SSAValue, Term] = field(default_factory=dict[SSAValue, Term])
    _open: list[SSAValue] = field(default_factory=list[SSAValue])
    _spans: dict[Operation, Span] = field(default_factory=dict[Operation, Span])
    _instances: set[Operation] | None = None
    _stores: dict[SSAValue, list[hopper.SharedStore]] | None = None
    _written: list[frozenset[int] | None] = field(default_factory=list[frozenset[int] | None])

    def of(self, value: SSAValue) -> Term:
        """Return the term of a scalar."""
        known = self._known.get(value)
        if known is not None:
            return known
        term = self._find(value)
        if not any(kind == "self" for kind, _ in self.terms.support(term)):
            self._known[value] = term
        return term

    def _unknown(self, value: SSAValue) -> Term:
        """A number that is equal to nothing else, at any iteration. Of most nothing is known; those
        of programs are never negative, and each program of a kernel is handed out as the same.
        """
        if value in self.same:
            return self.same[value]
        inside = value.block if isinstance(value, BlockArgument) else value.owner
        depth = len(loops_around(inside))
        leaves = frozenset(("iteration", each) for each in range(depth)) | {RANK}
        if isinstance(value.owner, hopper.NextProgram):
            return self.terms.atom(("program", value), leaves)
        return self.terms.atom(("unknown", value), leaves | {UNKNOWN})

    def _find(self, value: SSAValue) -> Term:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        operation = value.owner
        assert isinstance(operation, Operation)
        match operation:
            case tile.Constant(value=IntAttr(data=number)):
                return self.terms.constant(number)
            case tile.Constant(value=number) if _is_one(value):
                return self.terms.atom(("constant", number, value.type))
            case tile.Elementwise() if _is_one(value):
                return self.function(operation, self._inputs(operation))
            case tile.Cast() | tile.Bitcast() if _is_one(value):
                kinds = element_type(operation.value.type), element_type(value.type)
                name = "cast" if isinstance(operation, tile.Cast) else "bitcast"
                return self.terms.function(name, " ".join(map(str, kinds)), self._inputs(operation))
            case tile.Splat() if _is_one(value):
                return self.of(operation.value)
            case tile.Reduce() if len(operation.inputs) == 1 and _is_one(operation.inputs[0]):
                return self.of(operation.inputs[0])  # one element: nothing is combined
            case hopper.BlockId(axis=IntAttr(data=0)):
                return self.terms.atom(_BLOCK, frozenset({RANK}))
            case hopper.BlockId() | hopper.NumBlocks() | hopper.GridExtent():
                return self.terms.atom(("launch", operation.name[7:], operation.axis.data))
            case tile.ProgramId(axis=IntAttr(data=0)):  # a block has one program
                return self.terms.atom(_BLOCK, frozenset({RANK}))
            case tile.ProgramId():
                return self.terms.atom(("launch", "block_id", operation.axis.data))
            case tile.NumPrograms():
                return self.terms.atom(("launch", "num_blocks", operation.axis.data))
            case tile.MakeDesc():
                return self.terms.function("descriptor", str(value.type), self._inputs(operation))
            case hopper.ClusterRank():
                return self.terms.atom(("launch", "cluster_rank"), frozenset({RANK}))
            case hopper.Counter():
                return self.terms.atom(("launch", operation.name[7:]))
            case tile.DescExtent():
                what = f"{operation.what.data} {operation.axis.data}"
                return self.terms.function("extent", what, self._inputs(operation))
            case tile.PtrAdd() if _is_one(value):
                return self.terms.function("pointer", str(value.type), self._inputs(operation))
            case tile.Load() if _is_one(value):
                return self._load(operation)
            case hopper.SharedLoad() if _is_one(value):
                return self._received(operation)
            case aref.GetEnter() if (put := _put_before(operation)) is not None:
                assert isinstance(value, OpResult)
                return self.of(put.values[value.index])
            case scf.IfOp():
                return self._chosen(operation, value)
            case scf.ForOp() | scf.WhileOp():
                return self._last(operation, value)
            case _:
                return self._unknown(value)

    def _argument(self, value: BlockArgument) -> Term:
        owner = value.block.parent_op()
        match owner:
            case tile.Kernel():
                return self.terms.atom(("argument", value.name_hint or "", value.index))
            case scf.ForOp() if value.index == 0:
                span, first = self.span(owner), self.of(owner.lb)
                if span.share > 1:
                    first = self.terms.add(first, span.step, -span.part)
                at = self.iteration(owner)
                return self.terms.add(first, self.terms.mul(span.step, at))
            case scf.ForOp():
                return self._carried(
                    value, owner.iter_args[value.index - 1], yielded(value.block, value.index - 1)
                )
            case scf.WhileOp() if value.block is owner.before_region.block:
                follows = yielded(owner.after_region.block, value.index)
                return self._carried(value, owner.operands[value.index], follows)
            case scf.WhileOp():
                return self.of(yielded(owner.before_region.block, value.index + 1))
            case _:
                return self._unknown(value)

    def iteration(self, loop: Operation) -> Term:
        """Return the number of the iteration of a loop: 0 in the first."""
        return self.terms.iteration(len(loops_around(loop)))

    def span(self, loop: scf.ForOp) -> Span:
        """Return how often a loop iterates, and which iterations of a loop over tiles these are."""
        found = self._spans.get(loop)
        if found is None:
            terms = self.terms
            first, step = self.of(loop.lb), self.of(loop.step)
            unit, share = terms.primitive(step)
            part = terms.multiple_in(first, unit) if share > 1 else 0
            if share > 1 and 0 <= part < share and loop in self._shared_loops():
                length = terms.sub(self.of(loop.ub), terms.add(first, unit, -part))
                found = Span(length, unit, share, part)
            else:
                found = Span(terms.sub(self.of(loop.ub), first), step)
            if not any(kind == "self" for kind, _ in terms.support_of((found.length, found.step))):
                self._spans[loop] = found
        return found

    def course(self, loop: Operation) -> Span:
        """Return what decides how often a loop iterates: of a `while` its condition."""
        if isinstance(loop, scf.ForOp):
            return self.span(loop)
        assert isinstance(loop, scf.WhileOp)
        return Span(self.of(yielded(loop.before_region.block, 0)), self.terms.zero)

    def guard(self, operation: Operation) -> Condition:
        """Return the condition under which an operation runs in an iteration of its loops."""
        conditions, found = Conditions(self.terms), ALWAYS
        for inside, branch in around(operation):
            if isinstance(branch, scf.IfOp):
                own = conditions.of(self.of(branch.cond))
                holds = inside.parent is branch.true_region.block
                found = conditions.both(found, own if holds else conditions.negated(own))
        return found

    def _shared_loops(self) -> set[Operation]:
        """Return the loops of roles of which each makes one of so many iterations, and together
        all, once."""
        if self._instances is None:
            found: dict[tuple[Term, int], dict[int, list[Operation]]] = {}
            for role in all_of(self.kernel, hopper.Role):
                for loop in role.body.block.ops:
                    if not isinstance(loop, scf.ForOp):
                        continue
                    first, step = self.of(loop.lb), self.of(loop.step)
                    unit, share = self.terms.primitive(step)
                    if share > 1:
                        part = self.terms.multiple_in(first, unit)
                        found.setdefault((unit, share), {}).setdefault(part, []).append(loop)
            self._instances = {
                loop
                for (_, share), parts in found.items()
                if set(parts) == set(range(share))
                and all(len(each) == 1 for each in parts.values())
                for (loop,) in parts.values()
            }
        return self._instances

    # --- functions --------------------------------------------------------------------------------

    def _inputs(self, operation: Operation) -> list[Term]:
        return [self.of(each) for each in operation.operands]

    def function(self, operation: tile.Elementwise, inputs: list[Term]) -> Term:
        """Return what an operation makes of scalars that have these terms."""
        terms, name = self.terms, operation.function.data
        kind = element_type(operation.inputs[-1].type)
        wraps = name in ("add", "sub", "mul", "neg") and bit_width(kind) < 32
        if type(kind) is not IntegerType or wraps:  # nobody asks a launch whether such a sum wraps
            return terms.function(name, _tag(kind), inputs)
        match name, inputs:
            case "add", [a, b]:
                return terms.add(a, b)
            case "sub", [a, b]:
                return terms.sub(a, b)
            case "mul", [a, b]:
                return terms.mul(a, b)
            case "neg", [a]:
                return terms.scale(a, -1)
            case (("min" | "max"), [a, b]) if a == b:
                return a
            case "select", [_, a, b] if a == b:
                return a
            case "idiv", [a, b] if (length := self._rounded_up(a, b)) is not None:
                return terms.iterations(length, b)
            case "idiv", [a, b] if terms.key(a) == _BLOCK and terms.number(b) == self.cluster:
                return terms.atom(("launch", "cluster_id", 0))  # of all blocks of the cluster
            case _:
                pass
        if name in _COMMUTE:
            inputs.sort()
        return terms.function(name, _tag(kind), inputs)

    def _rounded_up(self, a: Term, step: Term) -> Term | None:
        """Return x where a is max(x, 0) + step - 1 for a step that is a number above 0."""
        number = self.terms.number(step)
        if number is None or number < 1:
            return None
        match self.terms.key(self.terms.sub(a, self.terms.constant(number - 1))):
            case ("function", "max", _, int(x), int(y)) if self.terms.zero in (x, y):
                return y if x == self.terms.zero else x
            case _:
                return None

    def last(self, length: Term, step: Term) -> Term:
        """Return the number of the last iteration of a loop that makes one."""
        return self.terms.function("idiv", "i32", [self.terms.sub(length, self.terms.one), step])

    def _chosen(self, branch: scf.IfOp, value: SSAValue) -> Term:
        assert isinstance(value, OpResult)
        sides = [
            self.of(yielded(region.block, value.index))
            for region in (branch.true_region, branch.false_region)
        ]
        if sides[0] == sides[1]:
            return sides[0]
        inputs = [self.of(branch.cond), *sides]
        return self.terms.function("select", _tag(element_type(value.type)), inputs)

    # --- loops ------------------------------------------------------------------------------------

    def _carried(self, value: BlockArgument, first: SSAValue, follows: SSAValue) -> Term:
        """A recurrence, closed over itself. What is open already refers to itself by its place."""
        terms = self.terms
        if not _is_one(value):
            return self._unknown(value)
        if value in self._open:
            place = self._open.index(value)
            return terms.atom(("self", place), frozenset({("self", place)}))
        loop = value.block.parent_op()
        assert loop is not None
        if isinstance(loop, scf.ForOp) and self.span(loop).share > 1:
            # An instance counts iterations of its own: only what stays the same has a term.
            return self.of(first) if follows is value else self._unknown(value)
        place = len(self._open)
        start = self.of(first)
        self._open.append(value)
        after = self.of(follows)
        self._open.pop()
        own = ("self", place)
        itself = terms.atom(own, frozenset({own}))
        depth = len(loops_around(loop))
        change = terms.sub(after, itself)
        if not terms.support(change) & {own, ("iteration", depth)}:
            term = terms.add(start, terms.mul(change, self.iteration(loop)))
        elif (known := self._shifted(loop, own, start, after)) is not None:
            term = known
        else:
            leaves = (terms.support(after) - {own}) | terms.support(start)
            leaves |= {("iteration", depth)}
            term = terms.atom(("carried", depth, place, start, after), frozenset(leaves))
        if place and not any(kind == "self" for kind, _ in terms.support(term)):
            # It does not depend on what is open: name it as it is named from anywhere else.
            kept, self._open = self._open, []
            term = self._carried(value, first, follows)
            self._open = kept
        return term

    def _shifted(self, loop: Operation, own: Leaf, start: Term, after: Term) -> Term | None:
        """Return f(i) where a loop carries f(0) and then f(i + 1), which the iteration before has
        computed ahead."""
        if own in self.terms.support(after):
            return None
        at, zero = self.iteration(loop), self.terms.zero
        found = self.terms.replaced(after, at, self.terms.sub(at, self.terms.one))
        return (
            found if found is not None and self.terms.replaced(found, at, zero) == start else None
        )

    def _last(self, loop: scf.ForOp | scf.WhileOp, value: SSAValue) -> Term:
        """What a loop leaves: what it carries, at the iteration that it does not make."""
        terms = self.terms
        if not _is_one(value) or not isinstance(value, OpResult):
            return self._unknown(value)
        depth = len(loops_around(loop))
        if isinstance(loop, scf.WhileOp):
            inside = self.of(yielded(loop.before_region.block, value.index + 1))
            iterations = self.of(yielded(loop.before_region.block, 0))
            if ("iteration", depth) not in terms.support(inside):
                return inside
        else:
            inside = self.of(loop.body.block.args[value.index + 1])
            if ("iteration", depth) not in terms.support(inside):
                return inside
            span = self.span(loop)
            if span.share > 1:
                return self._unknown(value)
            iterations = terms.iterations(span.length, span.step)
            found = terms.replaced(inside, self.iteration(loop), iterations)
            if found is not None:
                return found
        leaves = terms.support_of((inside, iterations)) - {("iteration", depth)}
        return terms.atom(("last", depth, inside, iterations), leaves)

    # --- memory -----------------------------------------------------------------------------------

    def _load(self, load: tile.Load) -> Term:
        """A word of memory that nobody writes while the kernel runs is a function of its place."""
        roots = roots_of(load.pointer)
        if not self._written:
            self._written.append(written_arguments(self.kernel))
        written = self._written[0]
        if is_volatile(load) or roots is None or written is None or roots & written:
            return self._unknown(load.result)
        kind = f"{load.result.type} {load.mask is None} {load.other is None}"
        return self.terms.function("load", kind, self._inputs(load))

    def _received(self, load: hopper.SharedLoad) -> Term:
        """What a role takes out of shared memory is what its only store has put there."""
        slot = load.view.owner
        if self._stores is None:
            self._stores = only_stores(self.kernel)
        stores = self._stores.get(slot.buffer, []) if isinstance(slot, hopper.Slot) else []
        kind = element_type(load.result.type)
        alike = all(_is_one(e.value) and element_type(e.value.type) == kind for e in stores)
        if not isinstance(slot, hopper.Slot) or len(stores) != 1 or not alike:
            return self._unknown(load.result)
        (store,) = stores
        put = store.view.owner
        if told_before(store, load):
            same = isinstance(put, hopper.Slot) and self.of(put.index) == self.of(slot.index)
            return self.of(store.value) if same else self._unknown(load.result)
        pair = paired(store, load)
        if pair is None:
            return self._unknown(load.result)
        self.obligations[load] = pair
        return self.of(store.value)

    def check_received(self) -> None:
        """Refuse scalars taken from a ring in loops that are not those in which they are put.

        The ring's waits and phases are as many as the iterations, and the run shows that each wait
        is for the phase of its number.
        """
        for pair in list(self.obligations.values()):
            put, got = (
                [self.course(loop) for loop in loops_around(each)]
                for each in (pair.store, pair.load)
            )
            if put != got:
                raise Refused(
                    rule("received"),
                    "a number is taken from a ring in a loop that is not the one in which it is "
                    "put",
                    pair.load,
                )


def _put_before(get: aref.GetEnter) -> aref.PutExit | None:
    """Return the put that a get takes, of a program that is still one sequence: each put is got
    before the next one."""
    before = get.prev_op
    while before is not None:
        if isinstance(before, aref.PutExit):
            entered = before.slot.owner
            if isinstance(entered, aref.PutEnter) and entered.aref is get.aref:
                return before
        before = before.prev_op
    return None


def _tag(kind: Attribute) -> str:
    """Return a short name of a type: i for signed integers and conditions, u for unsigned ones."""
    if type(kind) is not IntegerType:
        return str(kind)
    width = bit_width(kind)
    return f"i{width}" if width == 1 or is_signed(kind) else f"u{width}"


def _is_one(value: SSAValue) -> bool:
    """Tell whether a value is a scalar, or a tensor of one element that stands for it."""
    return prod(shape_of(value.type)) == 1
