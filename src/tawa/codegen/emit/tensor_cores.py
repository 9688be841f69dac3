"""Products on tensor cores: wgmma from shared memory or registers, mma.sync, and FMA.

One `hopper.wgmma` is one unrolled loop over k steps; an instruction each m64 block and step.

Other products: mma.sync for tiles too small for wgmma, fused multiply-add for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import apply, convert
from tawa.codegen.emit.emitter import Array, Emitter, atom, sum_of
from tawa.codegen.emit.shared import clear, move, place_of
from tawa.codegen.wrappers import tensor_cores as w
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import ViewType, element_type, is_tensor, layout_of
from tawa.layouts.access import STEP_BYTES, Access, Operand, operand, vector_access
from tawa.layouts.fragments import (
    WARPGROUP,
    WgmmaTiling,
    fma_operand,
    mma_accumulator,
    wgmma_operand,
    wgmma_tiling,
)
from tawa.layouts.indexing import Formula, fit, formula_of
from tawa.layouts.register import Coordinate, RegisterLayout
from tawa.layouts.shared import SharedLayout

_BESIDE = 32
"""Registers of an instruction's operands and addresses, beside its accumulator."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The (block, step) grid of one product's instructions."""

    tiling: WgmmaTiling
    count: int
    k: int

    @property
    def blocks(self) -> int:
        """m64 blocks a warpgroup issues each step."""
        return len(self.tiling.blocks)


def fence(e: Emitter, op: Operation) -> None:
    """Order register writes before the next wgmma."""
    e.do(w.WGMMA_FENCE)


def commit(e: Emitter, op: Operation) -> None:
    """Close the group of wgmmas."""
    e.do(w.WGMMA_COMMIT)


def wait(e: Emitter, op: hopper.WgmmaWait) -> None:
    """Wait for groups; then the values are readable: a pin keeps reads from moving before it."""
    e.do(w.WGMMA_WAIT, template=str(op.pending.data))
    for value, result in zip(op.values, op.res):
        e.pin(e.in_place(value, result))


def _view_operand(value: SSAValue, k_dim: int) -> Operand:
    return operand(_view(value)[0], k_dim)


def product(e: Emitter, op: hopper.Wgmma) -> None:
    """Write one product: every k step, every m64 block of the warpgroup."""
    layout = layout_of(op.result.type)
    total = element_of(element_type(op.result.type))
    right = _view_operand(op.b, 0)
    widest, integer = _widest(e.role.registers), not total.is_float
    tiling = wgmma_tiling(layout, widest, integer=integer, panel=right.panel)
    if tiling is None or layout.warp_count != e.role.warps:
        raise InternalError(f"a wgmma accumulator in layout {layout} of {e.role.warps} warps")
    element = element_of(op.b.type.element)
    k = STEP_BYTES * 8 // element.bits
    extent = op.b.type.shape[0]
    if extent % k:
        raise InternalError(f"a product over {extent} of {element.name}, in steps of {k}")
    steps = Steps(tiling, extent // k, k)
    in_registers = is_tensor(op.a)
    left = None if in_registers else _view_operand(op.a, 1)
    _check_panels(tiling, left, right)
    a_kind = element_type(op.a.type) if in_registers else op.a.type
    a_element = element_of(a_kind.element if isinstance(a_kind, ViewType) else a_kind)
    shape = w.WgmmaShape(
        tiling.n,
        k,
        total.name,
        a_element.name,
        element.name,
        in_registers,
        left is not None and left.transposed,
        right.transposed,
    )
    a_text = _registers(e, op.a, steps, a_element.bits) if in_registers else ""
    flag = "1" if op.accumulate is None else e.scalar(op.accumulate).text
    acc = _accumulator(e, op, flag)
    a_base = "" if left is None else _first_descriptor(e, op.a, left, steps, rows=True)
    b_base = _first_descriptor(e, op.b, right, steps, rows=False)
    with e.unrolled("step", steps.count) as step, e.unrolled("block", steps.blocks) as block:
        a = (
            _register_start(a_text, steps, block, step)
            if left is None
            else _descriptor(e, a_base, left, steps, block, step, rows=True)
        )
        b = _descriptor(e, b_base, right, steps, block, step, rows=False)
        d = acc.name if block == "0" else f"{acc.name} + {block} * {shape.registers}"
        e.do(w.wgmma(shape), d, a, b, _scale(flag, step))


def _check_panels(tiling: WgmmaTiling, left: Operand | None, right: Operand) -> None:
    for top, first in tiling.groups:
        for row, column in tiling.blocks:
            right.check(first + column, tiling.n)
            if left is not None:
                left.check(top + row, 64)


def _accumulator(e: Emitter, op: hopper.Wgmma, flag: str) -> Array:
    """Return the accumulator with its first value; one that is never read needs none.

    What is written here is pinned: a constant would be computed anew on paths that diverge, where
    ptxas serialises the product (C7520). The fence orders these register writes too.
    """
    if flag == "false":
        return e.array(op.result)
    first = e.tensor(op.acc)
    acc = e.in_place(op.acc, op.result)
    if not isinstance(first, Array) or first.name != acc.name:
        e.pin(acc)
        e.do(w.WGMMA_FENCE)
    return acc


def _widest(registers: int) -> int:
    """Return the most columns of one instruction in a kernel built with `registers` a thread.

    ptxas gives one instruction no more than that (C7602), whatever setmaxnreg adds: half a register
    a column for the accumulator, and some 30 more.
    """
    return max(8, min(256, 2 * (registers - _BESIDE) // 8 * 8))


def _scale(flag: str, step: str) -> str:
    """Return whether an instruction adds to the accumulator: all but a first step always do."""
    if flag in ("1", "true"):
        return "1"
    if step == "0":
        return flag
    return f"{step} > 0" if flag == "false" else f"{atom(flag)} || {step} > 0"


def _first_descriptor(
    e: Emitter, value: SSAValue, side: Operand, steps: Steps, *, rows: bool
) -> str:
    """Return the descriptor of this warpgroup's first block and step.

    It has a name where others follow: they differ in the address alone, by constants.
    """
    address = _group_base(e, e.view(value), side, steps.tiling, rows=rows)
    text = e.call(w.DESCRIPTOR, address, side.leading, side.stride, template=str(side.mode))
    if steps.blocks == steps.count == 1:
        return text
    name = e.names.fresh(f"{value.name_hint or ''}_operand")
    e.line(f"const u64 {name} = {text};")
    return name


def _group_base(e: Emitter, base: str, side: Operand, tiling: WgmmaTiling, *, rows: bool) -> str:
    """Return the address where this warpgroup's rows (of A) or columns (of B) begin."""
    offsets = [side.offset(group[0 if rows else 1], 0) for group in tiling.groups]
    if not any(offsets):
        return base
    return f"{base} + {formula_of(offsets, 'warpgroups').render(atom(e.warpgroup))}"


def _descriptor(
    e: Emitter, base: str, side: Operand, steps: Steps, block: str, step: str, *, rows: bool
) -> str:
    """Return the descriptor of one block and step; offsets are sums over both."""
    starts = [place[0 if rows else 1] for place in steps.tiling.blocks]
    over_blocks = [side.offset(start, 0) for start in starts]
    over_steps = [side.offset(0, index * steps.k) for index in range(steps.count)]
    for start, offset in zip(starts, over_blocks):
        for index, more in enumerate(over_steps):
            if side.offset(start, index * steps.k) != offset + more:
                raise InternalError(f"operand {side.within} has no additive steps")
    terms = [
        formula_of(offsets, "steps").render(variable)
        for offsets, variable in ((over_blocks, block), (over_steps, step))
        if variable != "0" and any(offsets)
    ]
    return e.call(w.DESCRIPTOR_AT, base, " + ".join(terms)) if terms else base


def _registers(e: Emitter, value: SSAValue, steps: Steps, bits: int) -> str:
    """Return the array of words of a register operand, in the layout wgmma wants (checked)."""
    layout = layout_of(value.type)
    m, k = layout.shape
    groups = steps.tiling.groups
    by_columns = len({row for row, _ in groups}) == 1
    want = wgmma_operand(m, k, WARPGROUP * len(groups), bits, by_columns)
    rows = tuple(row for row, _ in layout.warp_table)
    if (
        layout.register_table != want.register_table
        or layout.lane_table != want.lane_table
        or rows != tuple(row for row, _ in want.warp_table)
    ):
        raise InternalError(f"a register operand in layout {layout}, wgmma wants {want}")
    tensor = e.tensor(value)
    if bits != 32:
        return e.materialized(value).name
    # The tensor cores read the upper 19 bits, as they do of operands in shared memory.
    name = e.fresh(value, "a")
    e.line(f"u32 {name}[{tensor.count}];")
    with e.unrolled("r", tensor.count) as r:
        e.line(f"{name}[{r}] = __float_as_uint({tensor.at(r)});")
    e.do(w.WGMMA_FENCE)  # orders these register writes too; PTX ISA, "wgmma.fence"
    return name


def _register_start(name: str, steps: Steps, block: str, step: str) -> str:
    text = name
    across = len({column for _, column in steps.tiling.blocks})
    if block != "0" and steps.blocks > across:
        rows = block if across == 1 else f"{block} / {across}"
        text += f" + {rows} * {4 * steps.count}"
    return text if step == "0" else f"{text} + {step} * 4"


# --- products without wgmma -----------------------------------------------------------------------


_VECTOR = 16  # bytes: the widest access of one thread


def _formula(values: list[int]) -> Formula:
    return fit(values, uneven=True) or formula_of(values, "registers")


def _words(layout: RegisterLayout, places: list[Coordinate], packed: int, count: int) -> Formula:
    """Return the first of `count` adjacent words that hold each fragment, by fragment."""
    where = {place: register for register, place in enumerate(layout.register_table)}
    missing = [place for place in places if place not in where or where[place] % (packed * count)]
    if missing:
        raise InternalError(f"no mma fragments at {missing} of {layout}")
    return _formula([where[place] // packed for place in places])


def mma(e: Emitter, op: Operation) -> None:
    """Write a product by mma.sync: every 16 x 8 block, every k step."""
    assert isinstance(op, hopper.Mma)
    layout, a, b = (layout_of(value.type) for value in (op.result, op.a, op.b))
    pattern = mma_accumulator(16, 8, 1)
    if layout.lane_table != pattern.lane_table:
        raise InternalError(f"an mma accumulator in layout {layout}")
    kinds = [element_of(element_type(value.type)) for value in (op.a, op.b, op.result)]
    shape = w.MmaShape(256 // kinds[0].bits, kinds[2].name, kinds[0].name, kinds[1].name)
    starts = list(layout.register_table[::4])
    steps = a.shape[1] // shape.k
    acc_words = 2 if kinds[2].name == "f16" else 4
    left, right = e.materialized(op.a).name, e.materialized(op.b).name
    acc = e.in_place(op.acc, op.result)
    # Registers of a fragment are adjacent; where each begins is a sum over block and step.
    rows = _words(a, [(m, 0) for m, _ in starts], kinds[0].packed, 1)
    columns = _words(b, [(0, n) for _, n in starts], kinds[1].packed, 1)
    a_steps = _words(a, [(0, k * shape.k) for k in range(steps)], kinds[0].packed, shape.a_words)
    b_steps = _words(b, [(k * shape.k, 0) for k in range(steps)], kinds[1].packed, shape.b_words)
    wrapper = w.mma(shape)
    with e.unrolled("step", steps) as step, e.unrolled("block", len(starts)) as block:
        items = [
            f"{left}[{sum_of(rows.render(block), a_steps.render(step), str(i))}]"
            for i in range(shape.a_words)
        ]
        items += [
            f"{right}[{sum_of(columns.render(block), b_steps.render(step), str(i))}]"
            for i in range(shape.b_words)
        ]
        if kinds[0].bits == 32:
            items = [f"__float_as_uint({item})" for item in items]
        d = acc.name if block == "0" else f"{acc.name} + {block} * {acc_words}"
        e.do(wrapper, d, *items)


# --- fused multiply-add -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a product by multiply-add, read a few steps of K at a time.

    `fragment` holds all of K for a thread's rows (columns), the steps of one read first, then the
    reads; `at` gives the element of an accumulator's register at step 0 of a read, and `stride`
    how far apart its steps lie.
    """

    access: Access
    array: Array
    address: Callable[[str], str]
    at: Formula
    stride: int

    def factor(self, r: str, k: str) -> str:
        """Return the element that register `r` takes at step `k` of a read."""
        steps = "" if k == "0" else f" + {k}" if self.stride == 1 else f" + {k} * {self.stride}"
        index = self.at.render(r) + steps
        return self.array.at(f"({index.removeprefix('0 + ')})")


def _view(value: SSAValue) -> tuple[SharedLayout, Element]:
    if not isinstance(value.type, ViewType):
        raise InternalError(f"an operand of type {value.type}")
    return value.type.within.data, element_of(value.type.element)


def _side(
    e: Emitter, value: SSAValue, dim: int, steps: int, layout: RegisterLayout, hint: str
) -> _Side:
    """Declare what a thread holds of an operand, whose rows (columns) lie along `dim`."""
    within, element = _view(value)
    fragment = fma_operand(
        layout, dim, within.shape[1 - dim], steps, along_k=within.order[-1] != dim
    )
    access = vector_access(fragment, within)
    if access is None:
        raise InternalError(f"no access of {fragment} to {within}")
    count = fragment.register_count * steps // within.shape[1 - dim]
    table = fragment.register_table[:count]
    array = Array(e.names.fresh(hint), element, count)
    e.line(f"{element.word} {array.name}[{array.words}];")
    e.use_accessors(element)
    place = tuple(table.index(_along(dim, where[dim], 0)) for where in layout.register_table)
    stride = table.index(_along(dim, 0, 1)) if steps > 1 else 0
    return _Side(access, array, place_of(e, access, e.view(value)), _formula(list(place)), stride)


def _along(dim: int, mn: int, k: int) -> Coordinate:
    return (mn, k) if dim == 0 else (k, mn)


def fma_dot(e: Emitter, op: Operation) -> None:
    """Write a product by multiply-add: steps of K in runs, as many as one vector of the narrower
    operand holds; each run is read from memory by vectors, then multiplied.
    """
    assert isinstance(op, hopper.FmaDot)
    layout = layout_of(op.result.type)
    result = element_of(element_type(op.result.type))
    if result.packed > 1:
        raise InternalError(f"an accumulator of {result.name} in a product by multiply-add")
    acc = e.in_place(op.acc, op.result)
    (within, left), (_, right) = _view(op.a), _view(op.b)
    extent = within.shape[1]
    steps = gcd(extent, _VECTOR * 8 // min(left.bits, right.bits))
    sides = [_side(e, op.a, 0, steps, layout, "left"), _side(e, op.b, 1, steps, layout, "right")]
    with e.unrolled("step", extent // steps) as step:
        for side in sides:
            reads = len(side.access.accesses) * steps // extent
            clear(e, side.access, side.array)
            with e.unrolled("part", reads) as part:
                whole = step if reads == 1 else f"({step} * {reads} + {part})"
                move(e, side.access, side.array, part, side.address(whole))
        with e.unrolled("k", steps) as k, e.unrolled("r", layout.register_count) as r:
            factors = [convert(s.factor(r, k), s.array.element, result) for s in sides]
            text = apply(e, "fma", result, [*map(atom, factors), f"{acc.name}[{r}]"])
            e.line(f"{acc.name}[{r}] = {text};")


RULES = {
    hopper.WgmmaFence: fence,
    hopper.WgmmaCommit: commit,
    hopper.WgmmaWait: wait,
    hopper.Wgmma: product,
    hopper.Mma: mma,
    hopper.FmaDot: fma_dot,
}
