"""`tl.map_elementwise`: a function of scalars applied to each element.

The function is compiled for scalars, and what came of it is then made for whole tensors. Of an `if`
both sides are computed and each element takes its own; a loop runs as often as the element that
needs it most often, and the others keep what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.dialects import scf
from xdsl.dialects.builtin import i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free

from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.operations.reductions import along
from tawa.ir.build.operations.shapes import join, split
from tawa.ir.build.regions import types_of
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe, ir_scalar
from tawa.ir.types import shape_of, with_shape
from tawa.ir.walk import terminator
from tawa.language.dtypes import int64


def map_elementwise(c: Context, function: Value, inputs: Value, pack: Value) -> Value:
    """Apply a function of scalars to the elements of tensors, `pack` neighbours at a time."""
    apply, width = c.function_of(function), arg.integer(c, pack, "pack")
    tensors = [arithmetic.to_tensor(c.builder, item) for item in arg.sequence(inputs)]
    if not callable(apply) or not tensors:
        raise c.builder.mismatch(
            f"tl.map_elementwise is given {describe(function)} and {len(tensors)} tensors",
            why="it applies a function of the kernel to the elements of one tensor at least",
            remedy="pass a helper decorated with @tawa.jit that takes and gives scalars",
        )
    shape: tuple[int, ...] = ()
    for item in tensors:
        shape = arithmetic.broadcast_shape(c.builder, shape, item.shape)
    if width < 1 or width & (width - 1) or (width > 1 and (not shape or shape[-1] % width)):
        raise c.builder.mismatch(
            f"pack={width} does not divide the elements of shape {list(shape)}",
            why="so many neighbours along the last dimension, a power of two, go into one call",
        )
    tensors = [arithmetic.broadcast_to(c.builder, item, shape) for item in tensors]
    parts = [part for item in tensors for part in _parts(c, item, width)]
    block = Block(arg_types=[ir_scalar(part.dtype) for part in parts])
    with c.builder.into(block, isolated=True):
        given = apply([Tensor(argument) for argument in block.args])
        made = [arithmetic.to_tensor(c.builder, item) for item in arg.sequence(given)]
    if len(made) % width or any(item.is_block for item in made):
        raise c.builder.mismatch(
            f"the function of tl.map_elementwise gives {', '.join(map(describe, made))}",
            why=f"it gives scalars, {width} for each result",
        )
    wide = _Wide(c, parts[0].shape, {a: part.ssa for a, part in zip(block.args, parts)})
    wide.run(block.ops)
    found = [wide.tensor(item.ssa) for item in made]
    results = [_whole(c, found[i : i + width]) for i in range(0, len(found), width)]
    return Tuple(tuple(results)) if isinstance(given, Tuple) and len(results) > 1 else results[0]


def _parts(c: Context, value: Tensor, width: int) -> list[Tensor]:
    """Return the first, second .. of each `width` neighbours along the last dimension."""
    if width == 1:
        return [value]
    *outer, last = value.shape
    halves = arg.sequence(split(c, c.builder.reshape(value, (*outer, last // 2, 2))))
    even, odd = (_parts(c, arg.tensor(c, half, "split"), width // 2) for half in halves)
    return [part for pair in zip(even, odd) for part in pair]


def _whole(c: Context, parts: Sequence[Tensor]) -> Tensor:
    """Return what `_parts` takes apart."""
    if len(parts) == 1:
        return parts[0]
    made = join(c, _whole(c, parts[0::2]), _whole(c, parts[1::2]))
    return c.builder.reshape(made, (*made.shape[:-2], made.shape[-2] * 2))


@dataclass(slots=True)
class _Wide:
    """Operations on scalars, made for tensors of `shape`; `values` has what stands for a scalar:
    a tensor, or a scalar where it is the same for all elements.
    """

    c: Context
    shape: tuple[int, ...]
    values: dict[SSAValue, SSAValue]
    here: Tensor | None = None
    """For which elements control flow comes here, None where it does for all."""

    def tensor(self, scalar: SSAValue) -> Tensor:
        made = Tensor(self.values[scalar])
        return made if made.is_block else self.c.builder.splat(made, self.shape)

    def tensors(self, scalars: Sequence[SSAValue]) -> list[Tensor]:
        return [self.tensor(scalar) for scalar in scalars]

    def bind(self, scalars: Sequence[SSAValue], made: Sequence[Tensor]) -> None:
        self.values.update({one: other.ssa for one, other in zip(scalars, made)})

    def run(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        match operation:
            case scf.IfOp():
                self._if(operation)
            case scf.ForOp():
                self._for(operation)
            case scf.WhileOp():
                self._while(operation)
            case scf.YieldOp() | scf.ConditionOp():
                pass
            case _:
                self._plain(operation)

    def _plain(self, operation: Operation) -> None:
        around = (*operation.operands, *operation.results)
        computes = is_side_effect_free(operation) and not operation.regions
        if not computes or any(shape_of(value.type) for value in around):
            raise self.c.unsupported(
                f"{operation.name.removeprefix('tile.')} in a function of tl.map_elementwise",
                why="the function computes with scalars, without memory and other effects",
                remedy="load before the call and hand over the elements, and store after it",
            )
        operands = [self.values[value] for value in operation.operands]
        kinds = types_of(operation.results)
        if any(shape_of(value.type) for value in operands):
            operands = [item.ssa for item in self.tensors(operation.operands)]
            kinds = [with_shape(self.shape, kind) for kind in kinds]
        made = type(operation).create(
            operands=operands,
            result_types=kinds,
            attributes=dict(operation.attributes),
            properties=dict(operation.properties),
        )
        self.c.builder.emit(made)
        self.values.update(zip(operation.results, made.results))

    def _inside(self, block: Block, here: Tensor | None) -> list[Tensor]:
        """Make what a block does where control flow comes `here`; return what it yields."""
        outer, self.here = self.here, here
        self.run(block.ops)
        self.here = outer
        return self.tensors(terminator(block).operands)

    def _where(self, condition: Tensor) -> Tensor:
        """Return for which elements control flow comes here and a condition holds: the loops there
        are not those of the others, which might not end.
        """
        if self.here is None:
            return condition
        return self.c.builder.elementwise("and", self.here, condition)

    def _chosen(
        self, condition: Tensor, ones: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[Tensor]:
        select = partial(self.c.builder.elementwise, "select", condition)
        return [select(one, other) for one, other in zip(ones, others)]

    def _if(self, branch: scf.IfOp) -> None:
        condition = self.tensor(branch.cond)
        conditions = condition, arithmetic.invert(self.c.builder, condition)
        sides = [
            self._inside(region.block, self._where(holds))
            for region, holds in zip(branch.regions, conditions)
            if region.blocks
        ]
        if branch.results:
            self.bind(branch.results, self._chosen(condition, *sides))

    def _for(self, loop: scf.ForOp) -> None:
        """Count iterations up to the greatest number of an element; each has its own index."""
        builder = self.c.builder
        step = partial(arithmetic.binary, builder)
        wide = partial(arithmetic.cast, builder, element=int64)
        first, last, by = self.tensors([loop.lb, loop.ub, loop.step])
        reach = step("+", step("-", wide(last), wide(first)), step("-", wide(by), Const(1)))
        trips = arithmetic.to_tensor(builder, step("//", reach, wide(by)))
        if self.here is not None:
            (trips,) = self._chosen(
                self.here, [trips], [builder.splat(builder.constant(0, int64), self.shape)]
            )
        most = along(self.c, "max", trips, Const(None))
        initial = self.tensors(loop.iter_args)
        block = Block(arg_types=[i64, *(item.type for item in initial)])
        with builder.into(block):
            index, *before = [Tensor(argument) for argument in block.args]
            runs = arithmetic.compare(builder, "<", index, trips)
            own = step("+", wide(first), step("*", index, wide(by)))
            counted = arithmetic.cast(builder, arithmetic.to_tensor(builder, own), first.dtype)
            self.bind(loop.body.block.args, [counted, *before])
            after = self._chosen(runs, self._inside(loop.body.block, runs), before)
            block.add_op(scf.YieldOp(*(item.ssa for item in after)))
        zero, one = (builder.constant(number, int64) for number in (0, 1))
        made = scf.ForOp(zero.ssa, most.ssa, one.ssa, [item.ssa for item in initial], block)
        self.bind(loop.results, [Tensor(result) for result in builder.emit(made).results])

    def _while(self, loop: scf.WhileOp) -> None:
        """Go on while an element does; one that does not keeps its values, and so its answer."""
        builder, test = self.c.builder, loop.before_region.block
        initial = self.tensors(loop.arguments)
        kinds = [item.type for item in initial]
        before, body = Block(arg_types=kinds), Block(arg_types=kinds)

        def asked(block: Block) -> Tensor:
            self.bind(test.args, [Tensor(argument) for argument in block.args])
            return self._where(self._inside(test, self.here)[0])

        with builder.into(before):
            any_goes_on = along(self.c, "or", asked(before), Const(None))
            before.add_op(scf.ConditionOp(any_goes_on.ssa, *before.args))
        with builder.into(body):
            goes_on, old = asked(body), [Tensor(argument) for argument in body.args]
            self.bind(loop.after_region.block.args, old)
            new = self._chosen(goes_on, self._inside(loop.after_region.block, goes_on), old)
            body.add_op(scf.YieldOp(*(item.ssa for item in new)))
        made = scf.WhileOp([item.ssa for item in initial], kinds, Region([before]), Region([body]))
        self.bind(loop.results, [Tensor(result) for result in builder.emit(made).results])


OPERATIONS: dict[str, Callable[..., Value]] = {"map_elementwise": map_elementwise}
