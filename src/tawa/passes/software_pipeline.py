"""Purpose: overlap iterations of a loop: statements have stages, and iteration t of the new loop
runs the statements of stage s for iteration t - s.

Before -> after (stages 0 and 1)::

    %y = scf.for %i .. (%x = %x0) {           %y = scf.if %lb < %ub {
      %a = f(%i)            // 0                %a = f(%lb)
      %x2 = g(%a, %x)       // 1                %x1, %a1 = scf.for %i = %lb + step .. (%x = %x0,
      scf.yield %x2                 ->              %a' = %a) {
    }                                             %a2 = f(%i)
                                                  %x2 = g(%a', %x)
                                                  scf.yield %x2, %a2
                                                }
                                                g(%a1, %x1)
                                              } else { %x0 }

It knows nothing of products: a `Schedule` says what stands where (`passes.coarse` makes one).
Requires: carried values made by statements. Ensures: the same values, for every
trip count from 0: a loop of fewer iterations than stages overlap runs as it stood.
Declines: never; a schedule that breaks a dependence is an InternalError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tawa.analysis.ranges import range_of
from tawa.analysis.stages import Stages, carried_roots, defined_in, statements, used_by
from tawa.analysis.statements import VIEWS
from tawa.errors import InternalError
from tawa.ir import aref, hopper, tile
from tawa.ir.types import PtrType, element_type, i1, shape_of
from tawa.ir.walk import home_of
from tawa.passes.dead import replace_control
from tawa.passes.fold import integer_of
from tawa.passes.lower.emit import Emitter, erase

_RENAMED = (tile.Constant, tile.Splat, tile.Arange, tile.ExpandDims, tile.Broadcast, *VIEWS)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What `pipeline_loop` carries out.

    `order` is an iteration of the new loop, `stage` the stage of each statement. Each of `breaks`
    is an index into `order`: tensors computed before it and used after it are pinned there.
    """

    order: tuple[Operation, ...]
    stage: Mapping[Operation, int]
    breaks: tuple[int, ...] = ()


def pipeline_loop(loop: scf.ForOp, schedule: Schedule) -> None:
    """Replace `loop` by prologue, steady state and epilogue.

    Requires: carried values made by statements; a statement's stage is not below that of what it
    reads, less the iterations between them, and `order` respects what meets in one iteration.
    Raises InternalError for a schedule that breaks this.
    """
    roots = carried_roots(loop)
    if roots is None:
        raise InternalError("a loop whose carried values exchange places cannot be pipelined")
    stages = Stages(schedule.stage, roots)
    if set(schedule.order) != set(statements(loop.body.block)):
        raise InternalError("a schedule must name every statement of the body once")
    if stages.count < 2:
        raise InternalError("a schedule of one stage overlaps nothing")
    if (broken := stages.broken(schedule.order)) is not None:
        raise InternalError(f"a schedule lets {broken.name} run before what it reads")
    _Pipeliner(loop, schedule, stages).run()


Lookup = Callable[[SSAValue, Operation], SSAValue]


@dataclass(slots=True, eq=False)
class _Slot:
    """A value carried by the new loop: `source` as it was `distance` iterations ago."""

    source: SSAValue
    distance: int
    initial: SSAValue
    named: SSAValue
    argument: SSAValue | None = None
    result: SSAValue | None = None


@dataclass(slots=True)
class _Pipeliner:
    loop: scf.ForOp
    schedule: Schedule
    stages: Stages
    early: dict[tuple[SSAValue, int], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, int], SSAValue]
    )
    slots: list[_Slot] = field(default_factory=list[_Slot])
    slot_of: dict[tuple[SSAValue, int], _Slot] = field(
        default_factory=dict[tuple[SSAValue, int], _Slot]
    )

    @property
    def _depth(self) -> int:
        """The iterations begun before the steady state."""
        return self.stages.count - 1

    def run(self) -> None:
        loop = self.loop
        outer = _Emit(Block())
        then = Block()
        results = self._pipelined(_Emit(then), outer)
        block = home_of(loop)
        if _always(loop, self._depth):
            block.insert_ops_before([*_taken(outer.block), *_taken(then)], loop)
            for old, new in zip(loop.results, results, strict=True):
                old.replace_all_uses_with(new)
            erase(loop)
            return
        begun = outer.index(loop.lb, self._depth - 1, loop.step)
        condition = outer.apply("lt", begun, loop.ub)
        block.insert_ops_before(_taken(outer.block), loop)
        then.add_op(scf.YieldOp(*results))
        otherwise = Block()
        if self._depth == 1:
            otherwise.add_op(scf.YieldOp(*loop.iter_args))
        else:
            plain = loop.clone()
            otherwise.add_ops([plain, scf.YieldOp(*plain.results)])
        branch = scf.IfOp(condition, loop.result_types, Region(then), Region(otherwise))
        replace_control(loop, branch, range(len(loop.results)))
        branch.attributes.clear()

    def _pipelined(self, emit: _Emit, outer: _Emit) -> list[SSAValue]:
        depth, order = self._depth, self.schedule.order
        for step in range(depth):
            for operation in order:
                if self.stages.of[operation] <= step:
                    iteration = step - self.stages.of[operation]
                    copy = emit.copy(operation, self._at_start(iteration, outer))
                    for old, new in zip(operation.results, copy.results):
                        self.early[old, iteration] = new
        wanted = [self._final(index) for index in range(len(self.loop.results))]
        for operation in order:
            for value in self._read(operation):
                found = self.stages.distance(value, operation)
                if found is not None:
                    for far in range(1, found[1] + 1):
                        self._carry(value, found[0], far)
        for value, source, far in (item for item in wanted if item is not None):
            if far > 0:
                self._carry(value, source, far)
        self._steady(emit, outer)
        late = self._epilogue(emit)
        results: list[SSAValue] = []
        for index, item in enumerate(wanted):
            if item is None:
                results.append(self.loop.iter_args[index])
                continue
            value, source, far = item
            results.append(late[source, -far] if far <= 0 else self._result(value, far))
        return results

    # --- values ---------------------------------------------------------------------------------

    def _read(self, operation: Operation) -> list[SSAValue]:
        """Return the values of the body that an operation reads, each once."""
        block = self.loop.body.block
        found = [v for v in used_by(operation) if v in block.args or defined_in(v, block)]
        return list(dict.fromkeys(found))

    def _final(self, index: int) -> tuple[SSAValue, SSAValue, int] | None:
        """Return a result of the loop as (argument, its source, iterations before the last one's
        end).

        None where it is what the loop started with.
        """
        argument = self.loop.body.block.args[index + 1]
        root = self.stages.roots[argument]
        if root.lag == 0:
            return None
        source = root.value.owner
        assert isinstance(source, Operation)
        return argument, root.value, root.lag - self.stages.of[source]

    def _initial(self, value: SSAValue, source: SSAValue, distance: int) -> SSAValue:
        """Return what `value` is when the steady state begins."""
        owner = source.owner
        assert isinstance(owner, Operation)
        iteration = self._depth - distance - self.stages.of[owner]
        root = self.stages.roots.get(value)
        if root is not None and iteration + root.lag < root.lag:
            return root.inits[iteration + root.lag]
        return self.early[source, iteration]

    def _carry(self, value: SSAValue, source: SSAValue, distance: int) -> None:
        if (value, distance) in self.slot_of:
            return
        initial = self._initial(value, source, distance)
        for slot in self.slots:
            same = slot.source is source and slot.distance == distance
            if same and slot.initial is initial:
                self.slot_of[value, distance] = slot
                return
        slot = _Slot(source, distance, initial, value)
        self.slots.append(slot)
        self.slot_of[value, distance] = slot

    def _result(self, value: SSAValue, distance: int) -> SSAValue:
        result = self.slot_of[value, distance].result
        assert result is not None, "the steady state stands before what follows it"
        return result

    # --- parts ----------------------------------------------------------------------------------

    def _at_start(self, iteration: int, outer: _Emit) -> Lookup:
        loop = self.loop

        def look(value: SSAValue, user: Operation) -> SSAValue:
            if value is loop.body.block.args[0]:
                return outer.index(loop.lb, iteration, loop.step)
            root = self.stages.roots.get(value)
            if root is None:
                return self.early[value, iteration]
            if root.lag == 0:
                return root.value
            if iteration < root.lag:
                return root.inits[iteration]
            return self.early[root.value, iteration - root.lag]

        return look

    def _steady(self, emit: _Emit, outer: _Emit) -> None:
        loop = self.loop
        old = loop.body.block
        block = Block(arg_types=[old.args[0].type, *(slot.initial.type for slot in self.slots)])
        block.args[0].name_hint = old.args[0].name_hint
        for slot, argument in zip(self.slots, block.args[1:], strict=True):
            slot.argument = argument
            argument.name_hint = slot.named.name_hint
        inner = _Emit(block)
        now: dict[SSAValue, SSAValue] = {}

        def look(value: SSAValue, user: Operation) -> SSAValue:
            if value is old.args[0]:
                return inner.index(block.args[0], -self.stages.of[user], loop.step)
            found = self.stages.distance(value, user)
            if found is None:
                return self.stages.roots[value].value
            source, distance = found
            if distance == 0:
                return now[source]
            argument = self.slot_of[value, distance].argument
            assert argument is not None
            return argument

        stops = set(self.schedule.breaks)
        start = 0
        for number, operation in enumerate(self.schedule.order):
            if number in stops:
                self._pin(inner, now, start, number)
                start = number
            copy = inner.copy(operation, look)
            now.update(zip(operation.results, copy.results))
        block.add_op(scf.YieldOp(*(self._next(slot, now) for slot in self.slots)))
        first = outer.index(loop.lb, self._depth, loop.step)
        steady = scf.ForOp(
            first, loop.ub, loop.step, [slot.initial for slot in self.slots], Region(block)
        )
        steady.attributes.update(loop.attributes)
        steady.location = loop.location
        emit.put(steady)
        for slot, result in zip(self.slots, steady.results, strict=True):
            slot.result = result
            result.name_hint = slot.named.name_hint

    def _next(self, slot: _Slot, now: Mapping[SSAValue, SSAValue]) -> SSAValue:
        if slot.distance == 1:
            return now[slot.source]
        argument = self.slot_of[slot.named, slot.distance - 1].argument
        assert argument is not None
        return argument

    def _pin(self, emit: _Emit, now: dict[SSAValue, SSAValue], start: int, stop: int) -> None:
        """Pin the tensors computed in part of an iteration that the rest, or the next one, uses."""
        order = self.schedule.order
        later = {
            source[0]
            for op in order[stop:]
            for value in self._read(op)
            if (source := self.stages.distance(value, op)) is not None and source[1] == 0
        }
        later |= {slot.source for slot in self.slots if slot.distance == 1}
        made = (v for op in order[start:stop] for v in op.results if _is_computed(v))
        for value in filter(later.__contains__, made):
            # One pin each: tensors in one pin would have to share a layout.
            pin = hopper.Pin.make([now[value]], results=[[value.type]])
            pin.location = order[stop].location
            emit.put(pin)
            pin.res[0].name_hint = value.name_hint
            now[value] = pin.res[0]

    def _epilogue(self, emit: _Emit) -> dict[tuple[SSAValue, int], SSAValue]:
        """Finish the iterations begun; values are kept by the iteration after the last one."""
        loop = self.loop
        late: dict[tuple[SSAValue, int], SSAValue] = {}
        for iteration in range(self._depth):

            def look(value: SSAValue, user: Operation, iteration: int = iteration) -> SSAValue:
                if value is loop.body.block.args[0]:
                    return self._last_index(emit, iteration - self.stages.of[user])
                found = self.stages.distance(value, user)
                if found is None:
                    return self.stages.roots[value].value
                source, distance = found
                if distance <= iteration:
                    return late[source, iteration - distance]
                return self._result(value, distance - iteration)

            for operation in self.schedule.order:
                if self.stages.of[operation] > iteration:
                    copy = emit.copy(operation, look)
                    late.update(
                        {(v, iteration): new for v, new in zip(operation.results, copy.results)}
                    )
        return late

    def _last_index(self, emit: _Emit, back: int) -> SSAValue:
        """Return the index of the iteration `back` (< 0) from the end."""
        loop = self.loop
        if emit.end is None:
            span = emit.apply("sub", loop.ub, loop.lb)
            short = emit.apply("sub", span, emit.constant(1, loop.lb.type))
            whole = emit.apply("idiv", short, loop.step)
            emit.end = emit.apply("add", loop.lb, emit.apply("mul", whole, loop.step))
        return emit.index(emit.end, back + 1, loop.step)


class _Emit(Emitter):
    """Appends to a block; indices of iterations are computed once each."""

    def __init__(self, block: Block) -> None:
        super().__init__(InsertPoint.at_end(block))
        self.end: SSAValue | None = None
        self.indices: dict[tuple[SSAValue, int], SSAValue] = {}

    def index(self, start: SSAValue, steps: int, step: SSAValue) -> SSAValue:
        """Return start + steps * step."""
        if steps == 0:
            return start
        if (start, steps) not in self.indices:
            value = step
            if abs(steps) > 1:
                value = self.apply("mul", step, self.constant(abs(steps), step.type))
            function = "add" if steps > 0 else "sub"
            self.indices[start, steps] = self.apply(function, start, value)
        return self.indices[start, steps]

    def copy(self, operation: Operation, look: Lookup) -> Operation:
        """Append a copy of an operation with the values that `look` gives for what it reads."""
        mapping: dict[SSAValue, SSAValue] = {}
        for value in dict.fromkeys(used_by(operation)):
            owner = value.owner
            inside = owner if isinstance(owner, Block) else owner.parent
            if inside is operation.parent:
                mapping[value] = look(value, operation)
        return self.put(operation.clone(mapping))


def _is_computed(value: SSAValue) -> bool:
    """Tell whether threads work out a value that is worth keeping: addresses and masks are not."""
    element = element_type(value.type)
    if not shape_of(value.type) or element == i1 or isinstance(element, PtrType):
        return False
    return not isinstance(value.owner, (aref.GetEnter, tile.Dot, *_RENAMED))


def _always(loop: scf.ForOp, iterations: int) -> bool:
    """Tell whether a loop surely makes at least `iterations` iterations."""
    low, step = integer_of(loop.lb), integer_of(loop.step)
    if low is None or step is None:
        return False
    return low + (iterations - 1) * step < range_of(loop.ub).low


def _taken(block: Block) -> list[Operation]:
    """Take all operations out of a block."""
    operations = list(block.ops)
    for operation in operations:
        operation.detach()
    return operations
