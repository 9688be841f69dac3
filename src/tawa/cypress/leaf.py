"""What a leaf's results depend on: read from its tile IR, element by element.

A leaf is written for whole tensors. Where a mapping gives warpgroups, warps and threads a part
each, the leaf of all parts must be the parts of the leaf: element (r, c) of a result may depend, of
a tensor that is cut by rows, on row r alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

from tawa import inline
from tawa.cypress.machine import REGISTER, SHARED, WARPGROUP
from tawa.cypress.mapping import Instance
from tawa.cypress.tree import Operand, Spread
from tawa.errors import Place
from tawa.ir.build import Desc, KernelBuilder, Value
from tawa.language.dtypes import dtype
from tawa.layouts.fragments import wgmma_accumulator

Needs = dict[str, tuple[int | None, ...]]
"""Of each parameter, for each of its dimensions: the result's dimension that it goes along with, or
None where the result needs all of it. The parameter "" stands for the place in the tensor."""


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """A leaf as tile IR on tensors of given shapes: its values, what each depends on, and which of
    its tensors the results become.
    """

    place: Place
    arguments: tuple[Any, ...]
    operations: tuple[Any, ...]
    results: tuple[Any, ...]
    written: tuple[int, ...]
    depends: dict[Any, Needs]

    @property
    def text(self) -> tuple[str, ...]:
        """Its operations and what they are of, without types, and without what only repeats
        elements: a part of one row, or one column, needs no repetition.
        """
        fresh = count()
        numbers: dict[Any, int] = dict(zip(self.arguments, fresh))
        lines: list[str] = []
        for each in (each for operation in self.operations for each in operation.walk()):
            if each.name == "tile.broadcast":
                numbers[each.results[0]] = numbers[each.operands[0]]
                continue
            made = [*each.results, *(v for r in each.regions for v in r.block.args)]
            given = [numbers.get(value) for value in each.operands]
            numbers |= dict(zip(made, fresh))
            lines.append(f"{each.name} {each.attributes} {each.properties} {given}")
        return (*lines, str([numbers.get(value) for value in self.results]))

    @property
    def needs(self) -> tuple[Needs, ...]:
        """What each result depends on."""
        return tuple(self.depends[result] for result in self.results)

    @property
    def products(self) -> bool:
        """Whether the leaf multiplies matrices."""
        return any(operation.name == "tile.dot" for operation in self.operations)

    def named(self, operation: Any) -> list[str]:
        """Return the parameters that an operation depends on."""
        return [name for name in self.depends[operation.results[0]] if name]


def call_leaf(k: KernelBuilder, leaf: Instance, values: Sequence[Value]) -> tuple[Value, ...]:
    """Compile a leaf at the current place; returns the new values of what it writes, in order."""
    variant = leaf.variant
    made: Any = inline(k, variant.function, *values)
    several = cast("tuple[Any, ...]", made if isinstance(made, tuple) else (made,))
    found = () if made is None else several
    written = [name for name in variant.parameters if name in variant.writes]
    if len(found) != len(written):
        raise leaf.error(
            f' returns {len(found)} values, and declares writes="{" ".join(written)}"',
            place=variant.place,
            why="a leaf returns the new value of each tensor that it writes, in their order",
        )
    shapes = dict(zip(variant.parameters, values, strict=True))
    for name, value in zip(written, found, strict=True):
        shape = getattr(value, "shape", ())
        if shape != shapes[name].shape:
            raise leaf.error(
                f" returns {list(shape)} for {name}, which is {list(shapes[name].shape)}",
                place=variant.place,
                why="the new value of a tensor has its shape",
            )
    return tuple(found)


def facts_of(
    leaf: Instance,
    shapes: Sequence[tuple[int, ...]],
    elements: Sequence[dtype],
) -> LeafFacts:
    """Return what a leaf does on tensors of these shapes; raises MappingError."""
    k = KernelBuilder("leaf")
    variant = leaf.variant
    given = zip(variant.parameters, elements, shapes, strict=True)
    made = [
        k.descriptor(name, element, shape) if shape else k.scalar(name, element)
        for name, element, shape in given
    ]
    values = [x.load([0] * len(x.block_shape)) if isinstance(x, Desc) else x for x in made]
    results = call_leaf(k, leaf, values)
    state: dict[Any, Needs] = {
        value.ssa: {name: tuple(range(len(value.shape)))}
        for name, value in zip(variant.parameters, values, strict=True)
    }
    first = values[0].ssa.owner
    block: Any = first.parent  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    operations: list[Any] = []
    for operation in list(block.ops):
        if operation.name in ("tile.program_id", "tile.num_programs"):
            raise leaf.error(
                " asks which block it runs in",
                place=leaf.variant.place,
                why="a mapping decides that, and would change the result",
                remedy="give it the part that it needs",
            )
        loaded = operation.name == "tile.desc_load" or not operation.results
        if not loaded and operation.results[0] not in state:
            state.update(dict.fromkeys(operation.results, _needs(operation, state)))
            operations.append(operation)
    return LeafFacts(
        leaf.variant.place,
        tuple(value.ssa for value in values),
        tuple(operations),
        tuple(result.ssa for result in results),
        tuple(n for n, name in enumerate(variant.parameters) if name in variant.writes),
        state,
    )


def _needs(operation: Any, state: dict[Any, Needs]) -> Needs:
    """Return what the results of an operation depend on, from its operands'."""
    to = along(operation)
    if to is not None:
        given = (state.get(value, {}) for value in operation.operands)
        return _joined([_moved(needs, each) for needs, each in zip(given, to, strict=True)])
    taken = {value for inner in operation.walk() for value in inner.operands if value in state}
    whole = _joined([state[value] for value in taken])
    return {**{name: (None,) * len(dims) for name, dims in whole.items()}, "": (None,)}


def along(operation: Any) -> list[Sequence[int | None]] | None:
    """Return for each operand which dimension of the result each of its own goes along with, None
    where each element needs all of it, or there is one. Of unknown operations nothing is known.
    """
    result, *shapes = (
        tuple(getattr(value.type, "get_shape", tuple)())
        for value in (operation.results[0], *operation.operands)
    )
    dims, axis = range(len(result)), getattr(getattr(operation, "axis", None), "data", 0)
    match operation.name:
        case "tile.elementwise" | "tile.cast" | "tile.bitcast" | "tile.splat":
            return [dims[: len(shape)] for shape in shapes]
        case "tile.constant" | "tile.program_id" | "tile.num_programs" | "tile.desc_extent":
            return [() for _ in shapes]
        case "tile.broadcast":
            return [tuple(d if shapes[0][d] == result[d] else None for d in dims)]
        case "tile.expand_dims":
            return [tuple(d for d in dims if d != axis)]
        case "tile.reduce":
            return [(*dims[:axis], None, *dims[axis:]) for _ in shapes]
        case "tile.scan":
            return [tuple(None if d == axis else d for d in dims) for _ in shapes]
        case "tile.transpose":
            to: list[int] = [each.data for each in operation.permutation]
            return [tuple(map(to.index, dims))]
        case "tile.dot":
            summed = dims[-1], dims[-2], None
            return [tuple(None if d == n else d for d in dims) for n in summed]
        case _:
            return None


def _moved(needs: Needs, to: Sequence[int | None]) -> Needs:
    return {name: tuple(None if d is None else to[d] for d in dims) for name, dims in needs.items()}


def _joined(several: Sequence[Needs]) -> Needs:
    found: Needs = {}
    for needs in several:
        for name, dims in needs.items():
            known = found.get(name, dims)
            found[name] = tuple(a if a == b else None for a, b in zip(known, dims, strict=True))
    return found


def shared_out(spread: Spread, facts: LeafFacts) -> Spread:
    """Return the spread of a leaf that is `like` another: of what it only reads, each processor has
    what its part of the results goes along with.
    """
    if not spread.leaf.like:
        return spread
    found: list[Operand] = []
    for operand in spread.operands:
        if operand.name not in spread.leaf.variant.writes:
            told = [needs[operand.name] for needs in facts.needs if operand.name in needs]
            to = {d: {dims[d] for dims in told} for d in range(min(map(len, told), default=0))}
            at = {next(iter(along)): d for d, along in to.items() if len(along) == 1}
            parts = (
                replace(
                    step,
                    dims=tuple(d for d, along in to.items() if along <= {*step.dims}),
                    grid=tuple((n, at.get(dim, -1)) for n, dim in step.grid),
                )
                for step in operand.parts
            )
            operand = replace(operand, parts=tuple(parts))
        found.append(operand)
    return replace(spread, operands=tuple(found))


def check_leaf(spread: Spread, facts: LeafFacts) -> None:
    """Refuse a leaf that reads what it may not, or that its parts do not make up."""
    leaf, variant = spread.leaf, spread.leaf.variant
    parts = {operand.name: operand.parts for operand in spread.operands}
    written = [name for name in variant.parameters if name in variant.writes]
    for result, needs in zip(written, facts.needs, strict=True):
        for name, dims in needs.items():
            if name and name not in variant.reads:
                raise leaf.error(
                    f" reads {name}, which it declares writes",
                    place=variant.place,
                    remedy=f'declare reads="... {name}"',
                )
            for step, own in zip(parts.get(name, parts[result]), parts[result], strict=True):
                cut = step.dims if name else own.dims
                # Each index moves both alike.
                both = zip(step.grid, own.grid, strict=False) if name else ()
                turned = any(d >= 0 and _at(dims, d) != to for (_, d), (_, to) in both)
                if turned or any(_at(dims, d) not in own.dims for d in cut):
                    raise leaf.error(
                        f" cannot be parted: {step}",
                        place=variant.place,
                        why=f"an element of {result} depends on more of {name or 'its place'} than "
                        f"the part of its {step.level}",
                        remedy="part the tensors another way, or leave this prange out",
                    )
    if not facts.products or leaf.like:
        return
    for operand, value in zip(spread.operands, facts.arguments, strict=True):
        shape = cast("tuple[int, ...]", getattr(value.type, "get_shape", tuple)())
        if (layout := operand.layout(shape)) is not None:
            why = "warps and threads take operands of a product as cy.mma parts them"
            if operand.name in variant.writes and shape[0] % 64 == shape[1] % 8 == 0:
                columns = operand.parts[0].dims == (1,)
                held = wgmma_accumulator(*shape, 4 * spread.over(WARPGROUP), columns)
                why = f"wgmma leaves its sums as {held}"
            raise leaf.error(
                f": {operand.name} of a product is parted as {layout}",
                why=why,
                remedy="part it by cy.mma, over WARP and over THREAD",
            )
        wanted = {"B": SHARED, "BT": SHARED, "C": REGISTER}.get(operand.of_wgmma)
        if wanted not in (None, operand.memories[-1]):
            raise leaf.error(
                f": {operand.name} of wgmma is mapped to {operand.memories[-1]}",
                why="wgmma reads B from SHARED and adds to REGISTER",
                remedy=f"map {operand.name} to {wanted} there",
            )


def _at(dims: tuple[int | None, ...], dim: int) -> int | None:
    return dims[dim] if dim < len(dims) else None
