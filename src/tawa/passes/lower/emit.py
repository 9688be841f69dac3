"""Small tools for changing IR in place: an emitter with a point, and carrying scalars through
structured control flow.

The lowering needs ring indices, trip counters and the like as loop-carried scalars; `Carrier` adds
them to whatever `scf` operations enclose their updates, so that no pass knows about loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tawa.ir import hopper, tile
from tawa.ir.operation import TawaOperation
from tawa.ir.types import element_type, i32, int_array, shape_of, with_shape
from tawa.ir.walk import terminator, walk
from tawa.passes.dead import replace_control
from tawa.passes.fold import constant, elementwise

AnyOperation = TypeVar("AnyOperation", bound=Operation)
Key: TypeAlias = Hashable
State: TypeAlias = dict[Key, SSAValue]
Shape: TypeAlias = Sequence[int]
Operands: TypeAlias = SSAValue | Sequence[SSAValue]


class Emitter:
    """Inserts operations at one point of `block`, in order, at the Python place of `near`."""

    def __init__(self, point: InsertPoint, near: Operation | None = None) -> None:
        self.block = point.block
        self._builder = Builder(point)
        self._near = near

    @classmethod
    def before(cls, operation: Operation) -> Emitter:
        """Return an emitter that inserts before `operation`."""
        return cls(InsertPoint.before(operation), operation)

    @classmethod
    def after(cls, operation: Operation) -> Emitter:
        """Return an emitter that inserts after `operation`."""
        return cls(InsertPoint.after(operation), operation)

    @classmethod
    def at_end(cls, block: Block) -> Emitter:
        """Return an emitter that appends to `block`."""
        return cls(InsertPoint.at_end(block), block.last_op)

    @classmethod
    def at_start(cls, block: Block) -> Emitter:
        """Return an emitter that inserts at the start of `block`."""
        return cls(InsertPoint.at_start(block), block.first_op)

    def comes_after(self, operation: Operation) -> bool:
        """Tell whether an operation, or what it stands in in the block, is before the point."""
        place = self.block.find_ancestor_op_in_block(operation)
        following = self._builder.insertion_point.insert_before
        if place is None or following is None:
            return place is not None
        return place.is_before_in_block(following)

    def put(self, operation: AnyOperation, hint: str | None = None) -> AnyOperation:
        """Insert `operation`, name its first result and return it."""
        if self._near is not None:
            operation.location = self._near.location
        self._builder.insert(operation)
        if hint and operation.results:
            name = re.sub(r"[^A-Za-z0-9_$.-]", "_", hint)
            operation.results[0].name_hint = name if not name[0].isdigit() else f"_{name}"
        return operation

    def made(
        self,
        op: type[TawaOperation],
        operands: Sequence[Operands],
        kind: Attribute,
        hint: str | None = None,
        **told: Attribute | int | str | None,
    ) -> SSAValue:
        """Insert an operation of one result, of type `kind`, and attributes; return the result."""
        return self.put(op.make(*operands, results=[kind], attributes=told), hint).results[0]

    def one_thread(self) -> Emitter:
        """Insert what one thread of the role runs; return an emitter for it."""
        return Emitter.at_end(self.put(hopper.OneThread.make(regions=[new_region()])).body.block)

    def constant(
        self, value: int | float, kind: Attribute = i32, hint: str | None = None
    ) -> SSAValue:
        """Insert a constant of scalar or tensor type `kind`."""
        return self.put(constant(value, kind), hint).result

    def apply(self, function: str, *inputs: SSAValue, hint: str | None = None) -> SSAValue:
        """Insert an element function; the result type follows from its table row."""
        return self.put(elementwise(function, *inputs), hint).result

    # Tensors that have no layouts yet.

    def cast(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """Return a value converted to elements of type `kind`; as it is where it has these."""
        if element_type(value.type) == kind:
            return value
        return self.made(tile.Cast, [value], with_shape(shape_of(value.type), kind))

    def splat(self, value: SSAValue, shape: Shape) -> SSAValue:
        """Return a scalar in every element of a tensor."""
        return self.made(tile.Splat, [value], with_shape(shape, value.type))

    def reshape(self, value: SSAValue, shape: Shape) -> SSAValue:
        """Return a tensor's elements under another shape; the tensor where it has that."""
        if shape_of(value.type) == tuple(shape):
            return value
        return self.made(tile.Reshape, [value], with_shape(shape, element_type(value.type)))

    def transpose(self, value: SSAValue, order: Shape) -> SSAValue:
        """Return a tensor with its dimensions permuted; as it is where they have that order."""
        if list(order) == sorted(order):
            return value
        shape = [shape_of(value.type)[dim] for dim in order]
        kind = with_shape(shape, element_type(value.type))
        return self.made(tile.Transpose, [value], kind, permutation=int_array(order))

    def expand(self, value: SSAValue, axis: int) -> SSAValue:
        """Return a tensor with a new dimension of extent 1."""
        shape = shape_of(value.type)
        kind = with_shape((*shape[:axis], 1, *shape[axis:]), element_type(value.type))
        return self.made(tile.ExpandDims, [value], kind, axis=axis)

    def broadcast(self, value: SSAValue, shape: Shape) -> SSAValue:
        """Return a tensor repeated along its dimensions of extent 1."""
        return self.made(tile.Broadcast, [value], with_shape(shape, element_type(value.type)))

    def along(self, value: SSAValue, axis: int, shape: Shape) -> SSAValue:
        """Return a tensor repeated along a new `axis` of `shape`."""
        return self.broadcast(self.expand(value, axis), shape)

    def line(self, extent: int) -> SSAValue:
        """Return 0, 1, 2 .."""
        return self.made(tile.Arange, [], with_shape((extent,), i32), start=0)

    def spread(self, line: SSAValue, dim: int, shape: Shape) -> SSAValue:
        """Return a vector along `dim` of a tensor of that shape, repeated along all others."""
        for axis in [axis for axis in range(len(shape)) if axis != dim]:
            line = self.expand(line, axis)
        return self.broadcast(line, shape)

    def reduce(self, values: Sequence[SSAValue], axis: int, body: Region) -> list[SSAValue]:
        """Return tensors reduced along `axis` by a copy of `body`."""
        shape = shape_of(values[0].type)
        left = (*shape[:axis], *shape[axis + 1 :])
        kinds = [with_shape(left, element_type(value.type)) for value in values]
        made = tile.Reduce.make(values, results=[kinds], regions=[body.clone()], axis=axis)
        return list(self.put(made).res)


def combining(function: str, kind: Attribute) -> Region:
    """Return the body of a reduction by an element function."""
    body = Block(arg_types=[kind, kind])
    both = elementwise(function, *body.args)
    body.add_ops([both, tile.Yield.make([both.result])])
    return Region(body)


def replace(operation: Operation, values: Sequence[SSAValue]) -> None:
    """Replace the results of `operation` by `values` and erase it."""
    for old, new in zip(operation.results, values, strict=True):
        if new.name_hint is None:
            new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    operation.detach()
    operation.erase()


def erase(operation: Operation) -> None:
    """Remove an operation whose results have no uses."""
    operation.detach()
    operation.erase()


def retype(value: SSAValue, kind: Attribute) -> None:
    """Change the type of a value in place (its identity, and so every table of it, stays)."""
    value._type = kind  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def widen_for(loop: scf.ForOp, initial: Sequence[SSAValue]) -> scf.ForOp:
    """Return `loop` rebuilt with more loop-carried values; the yield is the caller's to complete.

    The new block arguments are the last ones of the body, the new results the last ones.
    """
    block = loop.body.block
    for value in initial:
        block.insert_arg(value.type, len(block.args))
    wide = scf.ForOp(
        loop.lb, loop.ub, loop.step, [*loop.iter_args, *initial], loop.detach_region(loop.body)
    )
    replace_control(loop, wide, range(len(loop.results)))
    return wide


def widen_if(branch: scf.IfOp, kinds: Sequence[Attribute]) -> scf.IfOp:
    """Return `branch` rebuilt with more results (an else branch is made when there is none)."""
    if not branch.false_region.blocks:
        branch.false_region.add_block(Block([scf.YieldOp()]))
    wide = scf.IfOp(
        branch.cond,
        [*branch.result_types, *kinds],
        branch.detach_region(branch.true_region),
        branch.detach_region(branch.regions[0]),
    )
    replace_control(branch, wide, range(len(branch.results)))
    return wide


def widen_while(loop: scf.WhileOp, initial: Sequence[SSAValue]) -> scf.WhileOp:
    """Return `loop` rebuilt with more values carried through both of its regions."""
    for region in (loop.before_region, loop.after_region):
        for value in initial:
            region.block.insert_arg(value.type, len(region.block.args))
    kinds = [value.type for value in initial]
    wide = scf.WhileOp(
        [*loop.arguments, *initial],
        [*loop.result_types, *kinds],
        loop.detach_region(loop.before_region),
        loop.detach_region(loop.regions[0]),
    )
    replace_control(loop, wide, range(len(loop.results)))
    return wide


def append_operands(operation: Operation, values: Sequence[SSAValue]) -> None:
    """Append operands to an operation whose last operand group is variadic."""
    operation.operands = [*operation.operands, *values]


def ask_launch(kernel: tile.Kernel, attribute: str, conditions: Iterable[str]) -> None:
    """Leave conditions of a launch (`tawa.runtime.guards`) on a kernel, each once."""
    if texts := [StringAttr(text) for text in dict.fromkeys(conditions)]:
        kernel.attributes[attribute] = ArrayAttr(texts)


class Carrier:
    """Walks a block and carries named scalars through the control flow that updates them.

    `touched(op)` gives the keys an operation (not counting its regions) may update, `visit(op,
    state)` performs the update by changing `state`. Loops and branches that contain touched
    operations get the keys as carried values or results. `approach` is called before such an
    operation is entered, `leave` at the end of each block.
    """

    def __init__(
        self,
        touched: Callable[[Operation], Sequence[Key]],
        visit: Callable[[Operation, State], None],
        approach: Callable[[Operation, State], None],
        leave: Callable[[Block, State], None],
    ) -> None:
        self._touched = touched
        self._visit = visit
        self._approach = approach
        self._leave = leave

    def run(self, block: Block, state: State) -> None:
        """Process `block` with `state` on entry; `state` holds the values at its end."""
        for operation in list(block.ops):
            keys = self._inside(operation)
            if keys:
                self._approach(operation, state)
            match operation:
                case scf.ForOp() if keys:
                    self._for(operation, keys, state)
                case scf.IfOp() if keys:
                    self._if(operation, keys, state)
                case scf.WhileOp() if keys:
                    self._while(operation, keys, state)
                case _:
                    self._visit(operation, state)
        self._leave(block, state)

    def _inside(self, operation: Operation) -> list[Key]:
        """Return the keys touched in the regions of `operation`, in order of appearance."""
        found: dict[Key, None] = {}
        for region in operation.regions:
            for inner in walk(region):
                found.update(dict.fromkeys(self._touched(inner)))
        return list(found)

    def _for(self, loop: scf.ForOp, keys: list[Key], state: State) -> None:
        wide = widen_for(loop, [state[key] for key in keys])
        block = wide.body.block
        inner = state | _named(keys, block.args[-len(keys) :], "")
        self.run(block, inner)
        append_operands(terminator(block), [inner[key] for key in keys])
        state.update(_named(keys, wide.results[-len(keys) :], "_end"))

    def _if(self, branch: scf.IfOp, keys: list[Key], state: State) -> None:
        wide = widen_if(branch, [state[key].type for key in keys])
        for region in (wide.true_region, wide.false_region):
            inner = dict(state)
            self.run(region.block, inner)
            append_operands(terminator(region.block), [inner[key] for key in keys])
        state.update(_named(keys, wide.results[-len(keys) :], ""))

    def _while(self, loop: scf.WhileOp, keys: list[Key], state: State) -> None:
        wide = widen_while(loop, [state[key] for key in keys])
        for region in (wide.before_region, wide.after_region):
            block = region.block
            inner = state | _named(keys, block.args[-len(keys) :], "")
            self.run(block, inner)
            append_operands(terminator(block), [inner[key] for key in keys])
        state.update(_named(keys, wide.results[-len(keys) :], "_end"))


def _named(keys: Sequence[Key], values: Sequence[SSAValue], suffix: str) -> State:
    """Pair keys with values, called by the last part of the key (slot, phase ...)."""
    for key, value in zip(keys, values, strict=True):
        value.name_hint = f"{key[-1]}{suffix}" if isinstance(key, tuple) else None
    return dict(zip(keys, values))


def recomputed(
    value: SSAValue,
    stays: Callable[[Operation], bool],
    put: Callable[[Operation], Operation],
    known: dict[SSAValue, SSAValue],
) -> SSAValue:
    """Return a value as clones of what makes it compute it, which `put` inserts; what `stays` where
    it is they use as it is. `known` has what was computed before.
    """
    owner = value.owner
    if not isinstance(owner, Operation) or stays(owner):
        return value
    if value not in known:
        operands = {each: recomputed(each, stays, put, known) for each in owner.operands}
        known.update(zip(owner.results, put(owner.clone(operands)).results))
    return known[value]


def new_region(*operations: Operation) -> Region:
    """Return a region of one block holding `operations`."""
    return Region(Block(list(operations)))
