"""Purpose: let the maximum under which exponentials are summed lag, so that sums are seldom
scaled.

Before -> after (an online softmax; `headroom` is 8 for powers of two)::

    %above = "max"(%top, %m)                     %above = "max"(%top, %m)
    %p = "exp2"("sub"(%x, %above))               %rises = "gt"(%above, %kept + headroom)
    %r = "exp2"("sub"(%top, %above))       ->    %base = "select"(%rises, %above, %kept)
    %acc2 = tile.dot %p, %v, "mul"(%acc, %r)     %p = "exp2"("sub"(%x, %base))
    scf.yield %acc2, %above                      %r = "exp2"("sub"(%kept, %base))
                                                 %acc2 = tile.dot %p, %v, "mul"(%acc, %r)
                                                 scf.yield %acc2, %above, %base
                                               } // and %acc times exp2(%base - %above) after it

The factor %r then is one nearly always, and a product's accumulator is not touched
(`lower.accumulators`). Why it is the same: what is computed from %p is linear in it, so a base
lower by d makes everything summed 2 ** d times as large, the carried sums with it; after the loop
that factor is taken out again. The pass proves the linearity statement by statement. Sums differ by
rounding: weights are at most 2 ** headroom times theirs.
Requires: tile IR. Ensures: carried values and results as before, up to rounding.
Declines when: a value depends on the maximum otherwise, weights become a type without room for the
factor, or no carried sum is wide enough for it to pay. Not run under ``strict``.

How the values of a loop depend on the running maximum that its exponentials are taken from.

A value has *degree one* when a maximum lower by d makes it exp(d) times as large: weights
``exp(x - above)`` themselves, and what is linear in them: their sums, their products with what does
not depend on the maximum. Carried sums have degree one under the maximum of the iteration before;
the ratio ``exp(top - above)`` brings them under that of this iteration. All else must not depend on
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tawa.analysis.stages import used_by
from tawa.analysis.statements import VIEWS
from tawa.ir import tile
from tawa.ir.types import element_type, is_float, shape_of, spell
from tawa.ir.walk import all_of, terminator, yielded
from tawa.passes.fold import constant_of
from tawa.passes.lower.emit import Emitter, append_operands, widen_for
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

HEADROOM = 8.0
"""Binary orders by which the maximum may rise before sums follow it: 2 ** 8 of f16's 2 ** 15."""
LEAST_COLUMNS = 128
"""Columns of an accumulator from which it pays: 64 lose 1.5 percent, 128 gain 2, 256 gain 10 (H200,
attention by head dim).
"""


def rescale_lazily(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Rewrite each loop that carries sums of exponentials under a running maximum."""
    notes: list[Declined] = []
    for loop in all_of(kernel, scf.ForOp):
        for index in range(len(loop.iter_args)):
            above = _running_maximum(loop.body.block, index)
            if above is None:
                continue
            degrees = find_degrees(loop, index, above)
            if reason := degrees.reason or _why_not_worth(degrees):
                name = loop.body.block.args[index + 1].name_hint or "a carried maximum"
                notes.append(Declined(f"letting {name} lag", reason))
                continue
            _rewrite(loop, index, above, degrees)
            break
    return tuple(notes)


def _running_maximum(block: Block, index: int) -> tile.Elementwise | None:
    """Return what carried value `index` becomes, if that is its maximum with something else."""
    argument, value = block.args[index + 1], yielded(block, index)
    row = isinstance(element_type(argument.type), Float32Type) and len(shape_of(argument.type)) == 1
    above = value.owner
    if not row or not isinstance(above, tile.Elementwise) or above.parent is not block:
        return None
    largest = above.function.data in ("max", "max_nan") and argument in above.inputs
    return above if largest else None


def _why_not_worth(degrees: Degrees) -> str:
    widest = max((shape_of(value.type)[-1] for value in degrees.sums if _is_wide(value)), default=0)
    if widest < LEAST_COLUMNS:
        return f"the widest sum that a product makes has {widest} columns, too few for it to pay"
    lift = HEADROOM + degrees.lift
    if degrees.orders is not None and lift > degrees.orders:
        return f"weights of 2 ** {lift:g} do not fit the type they are multiplied in"
    return ""


def _is_wide(value: SSAValue) -> bool:
    """Tell whether a carried sum is the accumulator of a product."""
    return len(shape_of(value.type)) == 2


def _rewrite(loop: scf.ForOp, index: int, above: tile.Elementwise, degrees: Degrees) -> None:
    block = loop.body.block
    wide = widen_for(loop, [loop.iter_args[index]])
    top, kept = block.args[index + 1], block.args[-1]
    kept.name_hint = "kept"
    after = above.next_op
    assert after is not None, "a body ends with what it yields"
    emitter = Emitter.before(after)
    unit = 1.0 if degrees.function == "exp2" else math.log(2)
    limit = emitter.apply("add", kept, emitter.constant(HEADROOM * unit, top.type))
    rises = emitter.apply("gt", above.result, limit)
    base = emitter.apply("select", rises, above.result, kept)
    base.name_hint = "base"
    choice = (rises.owner, base.owner)
    end = terminator(block)
    above.result.replace_uses_with_if(
        base, lambda use: use.operation is not end and use.operation not in choice
    )
    top.replace_uses_with_if(kept, lambda use: use.operation is not above)
    append_operands(end, [base])
    uses = [list(result.uses) for result in wide.results]
    results = _settled(Emitter.after(wide), wide, index, degrees)
    for old, new, users in zip(wide.results, results, uses, strict=True):
        if new is not old:
            new.name_hint, old.name_hint = old.name_hint, None
        for use in users:
            use.operation.operands[use.index] = new


def _settled(emitter: Emitter, loop: scf.ForOp, index: int, degrees: Degrees) -> list[SSAValue]:
    """Return the results of the loop as they were: sums under the maximum itself."""
    top, base = loop.results[index], loop.results[-1]
    same = emitter.apply("eq", base, top)  # both may be infinite
    lower = emitter.apply("sub", base, top)
    scale = emitter.apply(degrees.function, lower)
    one = emitter.constant(1.0, top.type)
    factor = emitter.apply("select", same, one, scale)
    results: list[SSAValue] = list(loop.results)
    assert degrees.ratio is not None, "a sum is multiplied by it"
    for argument, multiplier in degrees.sums.items():
        number = argument.index - 1
        spread = _like(emitter, multiplier, degrees.ratio, factor)
        results[number] = emitter.apply("mul", loop.results[number], spread)
    return results


def _like(emitter: Emitter, value: SSAValue, ratio: SSAValue, factor: SSAValue) -> SSAValue:
    """Return `factor` spread as `value` is spread from `ratio`."""
    if value is ratio:
        return factor
    view = value.owner
    assert isinstance(view, (tile.Broadcast, *VIEWS)), "a factor is a view of the ratio"
    inner = _like(emitter, view.operands[0], ratio, factor)
    again = view.clone()
    again.operands[0] = inner
    return emitter.put(again).results[0]


# --- degrees --------------------------------------------------------------------------------------


_EXPONENTIALS = ("exp2", "exp")
# Binary orders above one that a type has room for; types with the range of float32 are not here.
_ORDERS = {"f16": 15.0, "f8e4m3": 8.0, "f8e5m2": 15.0}


class _Kind(Enum):
    OLD = auto()  # the maximum of the iteration before
    BASE = auto()  # that of this iteration, less a constant
    EXPONENT = auto()  # something less the base
    STEP = auto()  # the old maximum less that of this iteration
    RATIO = auto()
    CARRIED = auto()  # a sum under the old maximum
    WEIGHT = auto()  # of degree one


@dataclass(slots=True)
class Degrees:
    """What was found: `reason` why the maximum may not lag, or nothing.

    `sums` gives, by carried argument of degree one, what it is multiplied by: a view of `ratio`.
    `function` is the exponential. Weights are at most 2 ** `lift`, and are converted to types that
    hold 2 ** `orders` at least (None: as much as float32).
    """

    reason: str = ""
    sums: dict[BlockArgument, SSAValue] = field(default_factory=dict[BlockArgument, SSAValue])
    ratio: SSAValue | None = None
    function: str = ""
    lift: float = 0.0
    orders: float | None = None


class _OtherwiseError(Exception):
    """A statement that is none of those that keep degrees."""


def find_degrees(loop: scf.ForOp, index: int, above: tile.Elementwise) -> Degrees:
    """Find how the body depends on carried value `index`, a maximum that becomes `above`."""
    finder = _Finder(loop, index, above)
    try:
        finder.run()
    except _OtherwiseError as error:
        return Degrees(reason=str(error))
    return finder.found


@dataclass(slots=True)
class _Finder:
    loop: scf.ForOp
    index: int
    above: tile.Elementwise
    found: Degrees = field(default_factory=Degrees)
    kinds: dict[SSAValue, _Kind] = field(default_factory=dict[SSAValue, _Kind])
    lifts: dict[SSAValue, float] = field(default_factory=dict[SSAValue, float])

    def run(self) -> None:
        block = self.loop.body.block
        self.kinds[block.args[self.index + 1]] = _Kind.OLD
        for argument in block.args[1:]:
            if argument.index != self.index + 1 and is_float(element_type(argument.type)):
                self._assume_sum(argument)
        end = terminator(block)
        for operation in block.ops:
            if operation is self.above:
                self.kinds[self.above.result] = _Kind.BASE
                self.lifts[self.above.result] = 0.0
            elif operation is not end:
                self._visit(operation)
        self._check_carried(end)

    def _assume_sum(self, argument: BlockArgument) -> None:
        """Take a carried value that is only multiplied for a sum; `_product` checks by what."""
        uses = list(argument.uses)
        if len(uses) == 1 and _is(uses[0].operation, "mul"):
            self.kinds[argument] = _Kind.CARRIED

    def _check_carried(self, end: Operation) -> None:
        block = self.loop.body.block
        for number, value in enumerate(end.operands):
            argument, kind = block.args[number + 1], self.kinds.get(value)
            if number == self.index:
                continue
            carried = argument in self.found.sums
            if carried != (kind is _Kind.WEIGHT) or (kind is not None and not carried):
                raise _OtherwiseError(f"{argument.name_hint} is carried on under another maximum")
        if not self.found.sums:
            raise _OtherwiseError("no carried sum follows it")

    def _visit(self, operation: Operation) -> None:
        kinds = [self.kinds.get(value) for value in operation.operands]
        captured = [self.kinds.get(value) for value in used_by(operation)]
        if not any(captured):
            return
        if operation.regions and not isinstance(operation, tile.Reduce):
            raise _OtherwiseError(f"{operation.name} reads it")
        match operation:
            case tile.Broadcast() | tile.Transpose() | tile.Reshape() | tile.ExpandDims():
                kind = kinds[0]
                if operation.operands[0] in self.lifts:
                    self.lifts[operation.results[0]] = self.lifts[operation.operands[0]]
            case tile.Cast():
                kind = self._cast(operation)
            case tile.Reduce():
                kind = self._reduce(operation, kinds)
            case tile.Dot():
                kind = self._dot(operation)
            case tile.Elementwise():
                kind = self._elementwise(operation, kinds)
            case _:
                kind = None
        if kind is None or (kind is _Kind.CARRIED):
            raise _OtherwiseError(
                f"{operation.name} reads what depends on it otherwise than linearly"
            )
        self.kinds[operation.results[0]] = kind

    def _cast(self, cast: tile.Cast) -> _Kind | None:
        target = element_type(cast.result.type)
        if self.kinds[cast.value] is not _Kind.WEIGHT or not is_float(target):
            return None
        orders = _ORDERS.get(spell(target))
        if orders is not None:
            self.found.orders = min(orders, self.found.orders or orders)
        return _Kind.WEIGHT

    def _reduce(self, reduce: tile.Reduce, kinds: list[_Kind | None]) -> _Kind | None:
        body = list(reduce.body.block.ops)
        adds = len(body) == 2 and _is(body[0], "add") and len(kinds) == 1
        return _Kind.WEIGHT if adds and kinds == [_Kind.WEIGHT] else None

    def _dot(self, dot: tile.Dot) -> _Kind | None:
        a, b, acc = (self.kinds.get(value) for value in (dot.a, dot.b, dot.acc))
        once = {a, b} == {None, _Kind.WEIGHT}
        starts = acc is _Kind.WEIGHT or (acc is None and constant_of(dot.acc) == 0)
        return _Kind.WEIGHT if once and starts else None

    def _elementwise(self, op: tile.Elementwise, kinds: list[_Kind | None]) -> _Kind | None:
        match op.function.data, kinds:
            case "sub", [None, _Kind.BASE]:
                return self._exponent(op)
            case "sub", [_Kind.OLD, _Kind.BASE] if self.lifts[op.inputs[1]] == 0:
                return _Kind.STEP
            case "sub" | "add", [_Kind.BASE, None]:
                return self._lifted(op)
            case function, [_Kind.EXPONENT] if function in _EXPONENTIALS:
                return self._exponential(function, _Kind.WEIGHT)
            case function, [_Kind.STEP] if function in _EXPONENTIALS:
                if self.found.ratio is not None:
                    return None
                self.found.ratio = op.result
                return self._exponential(function, _Kind.RATIO)
            case "mul", [_Kind.CARRIED, _Kind.RATIO] | [_Kind.RATIO, _Kind.CARRIED]:
                argument, factor = op.inputs if kinds[0] is _Kind.CARRIED else reversed(op.inputs)
                assert isinstance(argument, BlockArgument), "a carried sum"
                self.found.sums[argument] = factor
                return _Kind.WEIGHT
            case "add" | "sub", [_Kind.WEIGHT, _Kind.WEIGHT]:
                return _Kind.WEIGHT
            case ("mul", [_Kind.WEIGHT, None] | [None, _Kind.WEIGHT]) | (
                "div" | "div_rn",
                [_Kind.WEIGHT, None],
            ):
                return _Kind.WEIGHT
            case "select", [None, first, second]:
                return self._select(op, first, second)
            case _:
                return None

    def _select(
        self, op: tile.Elementwise, first: _Kind | None, second: _Kind | None
    ) -> _Kind | None:
        """Either side is of degree one, or zero."""
        sides = zip((first, second), op.inputs[1:], strict=True)
        linear = all(kind is _Kind.WEIGHT or constant_of(value) == 0 for kind, value in sides)
        return _Kind.WEIGHT if linear else None

    def _exponential(self, function: str, kind: _Kind) -> _Kind | None:
        if self.found.function not in ("", function):
            return None
        self.found.function = function
        return kind

    def _lifted(self, op: tile.Elementwise) -> _Kind | None:
        number = constant_of(op.inputs[1])
        if number is None:
            return None
        lift = number if op.function.data == "sub" else -number
        self.lifts[op.result] = self.lifts[op.inputs[0]] + lift
        return _Kind.BASE

    def _exponent(self, op: tile.Elementwise) -> _Kind:
        """Weights are at most one, lifted, where the maximum is taken over what they come from."""
        top = self.loop.body.block.args[self.index + 1]
        highest = next(value for value in self.above.inputs if value is not top)
        bounded = _is_maximum(highest, op.inputs[0])
        lift = self.lifts[op.inputs[1]] if bounded else float("inf")
        self.found.lift = max(self.found.lift, lift)
        return _Kind.EXPONENT


def _is(operation: Operation, function: str) -> bool:
    return isinstance(operation, tile.Elementwise) and operation.function.data == function


def _is_maximum(row: SSAValue, values: SSAValue) -> bool:
    """Tell whether `row` is the maximum of each row of `values`, or both are that much scaled."""
    match row.owner, values.owner:
        case tile.Reduce() as reduce, _ if len(reduce.inputs) == 1 and reduce.inputs[0] is values:
            (combine, *_) = reduce.body.block.ops
            return _is(combine, "max") or _is(combine, "max_nan")
        case tile.Elementwise() as one, tile.Elementwise() as other:
            if not (_is(one, "mul") and _is(other, "mul")):
                return False
            return any(
                _uniform(one.inputs[1 - i]) is not None
                and _uniform(one.inputs[1 - i]) == _uniform(other.inputs[1 - j])
                and _is_maximum(one.inputs[i], other.inputs[j])
                for i in (0, 1)
                for j in (0, 1)
            )
        case _:
            return False


def _uniform(value: SSAValue) -> SSAValue | float | None:
    """Return the scalar that fills a tensor."""
    number = constant_of(value)
    if number is not None:
        return float(number)
    while isinstance(value.owner, (tile.Broadcast, *VIEWS)):
        value = value.owner.operands[0]
    return value.owner.value if isinstance(value.owner, tile.Splat) else None
