"""How the values of a loop depend on the running maximum that its exponentials are taken from.

A value has *degree one* when a maximum lower by d makes it exp(d) times as large: weights
``exp(x - above)`` themselves, and what is linear in them: their sums, their products with what does
not depend on the maximum. Carried sums have degree one under the maximum of the trip before; the
ratio ``exp(top - above)`` brings them under that of this trip. All else must not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.effects import VIEWS
from tawa.analysis.stages import used_by
from tawa.ir import tile
from tawa.ir.control import terminator
from tawa.ir.types import element_type, is_float, spell
from tawa.passes.fold import constant_of

_EXPONENTIALS = ("exp2", "exp")
# Binary orders above one that a type has room for; types with the range of float32 are not here.
_ORDERS = {"f16": 15.0, "f8e4m3": 8.0, "f8e5m2": 15.0}


class _Kind(Enum):
    OLD = auto()  # the maximum of the trip before
    BASE = auto()  # that of this trip, less a constant
    EXPONENT = auto()  # something less the base
    STEP = auto()  # the old maximum less that of this trip
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
