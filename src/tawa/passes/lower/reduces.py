"""Reductions across warps: a part of each warp, then one more reduction over the parts.

Purpose: expand each `tile.reduce` whose axis is spread over warps.
Before -> after:
    %s = tile.reduce %x axis 1            %p = tile.reshape %x            (N -> warps x rest)
    (layout: warps along axis 1)    ->    %q = tile.reduce %p over rest   (within a warp)
                                          scratch store, role barrier, scratch load
                                          %s = tile.reduce %r over parts  (within a warp)
Every thread reads all parts and folds them by itself; where exchanges between lanes take less time,
lanes that would hold copies read one part each.
Requires: layouts converted. Ensures: every `tile.reduce` left stays within a warp.
Declines when: never.

Scans over warps: a part of the line for each warp, then what comes before each part.

Purpose: expand each `tile.scan` whose axis is spread over warps.
Before -> after (W warps have no other line):
    %s = tile.scan %x axis 0          %p = tile.scan of %x as [W, N / W], axis 1  (within a warp)
    (x of N elements)          ->     %t = hopper.pick the last of each part      (W elements)
                                      scratch store, role barrier, scratch load
                                      %e = tile.scan %t                     (each warp, by lanes)
                                      %s = hopper.carry_in %e, %p
Requires: layouts converted. Ensures: the same combination, associated otherwise; every `tile.scan`
left stays within a warp. Declines when: never.

Histograms over warps: each warp counts a part of the vector, then the counts are added.

Purpose: let all warps of a role work on a histogram that one warp would count.
Before -> after (W warps):
    %h = tile.histogram %x            %p = tile.histogram of %x as [W, N / W]    (within a warp)
    (x of N elements)          ->     %h = tile.reduce %p axis 0, by "add"
Requires: tile operations that have no layouts yet. Ensures: the same counts.
Declines when: there are fewer than 32 elements for each of two warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import element_type, i32, is_tensor, layout_of, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.layouts.fragments import without_dimension
from tawa.layouts.register import Axis, Coordinate, RegisterLayout
from tawa.passes.lower.anchors import scan_layout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, combining, replace, retype
from tawa.passes.lower.exchange import exchange, moved, same_layout, with_layout
from tawa.passes.lower.relate import reshaped

LATENCY, EXCHANGE = 4, 23
"""Cycles until the result of an operation, and of an exchange between lanes, may be used."""
SCHEDULERS = 4
"""Of a multiprocessor; each issues one operation a cycle."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring digits of the reduced dimension that are (or are not) told apart by warps.

    `lanes`: some of them are told apart by lanes.
    """

    extent: int
    across: bool
    lanes: bool


def expand_reductions(lowering: Lowering, role: hopper.Role) -> None:
    """Expand the reductions of `role` that cross warps."""
    for reduce in all_of(role.body, tile.Reduce):
        axis = reduce.axis.data
        layout = layout_of(reduce.inputs[0].type)
        if any(step.step[axis] for step in layout.warps if step.extent > 1):
            _expand(lowering, role, reduce, layout, axis)


def _runs(layout: RegisterLayout, axis: int) -> list[_Run] | None:
    """Read the digits of `axis`, slowest first; None where they are no mixed radix of it."""
    digits = [
        (item.step[axis], item.extent, level)
        for level, items in enumerate((layout.registers, layout.lanes, layout.warps))
        for item in items
        if item.step[axis] and item.extent > 1
    ]
    reach, runs = 1, list[_Run]()
    for step, extent, level in sorted(digits):
        if step != reach:
            return None
        reach *= extent
        across, lanes = level == 2, level == 1
        if runs and runs[0].across == across:
            runs[0] = _Run(runs[0].extent * extent, across, lanes or runs[0].lanes)
        else:
            runs.insert(0, _Run(extent, across, lanes))
    return runs if reach == layout.shape[axis] else None


def _expand(
    lowering: Lowering, role: hopper.Role, reduce: tile.Reduce, layout: RegisterLayout, axis: int
) -> None:
    emitter = Emitter.before(reduce)
    runs = _runs(layout, axis)
    values = list(reduce.inputs)
    if runs is None:
        # No way to name the warps' parts: bring the axis into one warp instead.
        inside = scan_layout(layout.shape, axis, role.warps.data)
        values = exchange(lowering, role, emitter, values, inside)
        reduced = _reduce(emitter, reduce, values, axis)
        replace(reduce, _as_before(lowering, role, emitter, reduce, reduced))
        return
    shape = (*layout.shape[:axis], *(run.extent for run in runs), *layout.shape[axis + 1 :])
    apart = reshaped(layout, shape)
    assert apart is not None, "the runs are digits of the reduced dimension"
    values = [reshape(emitter, value, apart) for value in values]
    left = list(range(len(runs)))
    within = [index for index in reversed(left) if not runs[index].across]
    # What one thread holds first: lanes then exchange one number, not one for each.
    for index in sorted(within, key=lambda index: runs[index].lanes):
        values = _reduce(emitter, reduce, values, axis + left.index(index))
        left.remove(index)
    parts = tuple(run.extent for run in runs if run.across)
    gathered = all_parts(layout, axis, parts)
    if _folds_slowly(reduce, gathered, len(parts)):
        gathered = by_lanes(gathered, axis, len(parts)) or gathered
    values = exchange(lowering, role, emitter, values, gathered)
    for index in reversed(range(len(left))):
        values = _reduce(emitter, reduce, values, axis + index)
    replace(reduce, _as_before(lowering, role, emitter, reduce, values))


def _as_before(
    lowering: Lowering,
    role: hopper.Role,
    emitter: Emitter,
    reduce: tile.Reduce,
    values: list[SSAValue],
) -> list[SSAValue]:
    """Return what stands for the results of `reduce` in the layouts that these have.

    One map may be written in several ways, and users of the results know only theirs.
    """
    results: list[SSAValue] = []
    for old, value in zip(reduce.res, values, strict=True):
        if is_tensor(old) and not same_layout(layout_of(value.type), layout_of(old.type)):
            value = moved(lowering, role, emitter, value, layout_of(old.type))
        retype(value, old.type)
        results.append(value)
    return results


def all_parts(layout: RegisterLayout, axis: int, parts: Coordinate) -> RegisterLayout:
    """Return the layout of all warps' parts: in registers, beside the result's own layout."""
    target = without_dimension(layout, axis)
    count = len(parts)

    def grow(step: Coordinate) -> Coordinate:
        return (*step[:axis], *(0 for _ in parts), *step[axis:])

    rank = len(target.shape) + count
    held = tuple(
        Axis(extent, tuple(int(dim == axis + index) for dim in range(rank)))
        for index, extent in enumerate(parts)
    )
    grown = target.mapped((*target.shape[:axis], *parts, *target.shape[axis:]), grow)
    return RegisterLayout(grown.shape, (*held, *grown.registers), grown.lanes, grown.warps)


def _folds_slowly(reduce: tile.Reduce, gathered: RegisterLayout, count: int) -> bool:
    """Tell whether a thread folds the parts, which `gathered` has in its first `count` registers'
    digits, one after the other in more time than lanes take that exchange them: by the longest
    chain and by what a scheduler issues for its warps. One operation is folded in fours, side by
    side.
    """
    longest, operations = _chain(reduce), len(reduce.body.block.ops) - 1
    if longest == 1:
        return False
    parts = prod(axis.extent for axis in gathered.registers[:count])
    lines = gathered.register_count // parts * gathered.warp_count // SCHEDULERS
    rounds = (parts - 1).bit_length()
    alone = (parts - 1) * (longest * LATENCY + operations * lines)
    exchanged = operations + len(reduce.inputs)
    return alone > rounds * (longest * LATENCY + EXCHANGE + exchanged * lines)


def _chain(reduce: tile.Reduce) -> int:
    """Return how many operations of a reduction's body wait for one another."""
    behind: dict[Operation, int] = {}
    for operation in list(reduce.body.block.ops)[:-1]:
        owners = (value.owner for value in operation.operands)
        above = (behind.get(each, 0) for each in owners if isinstance(each, Operation))
        behind[operation] = max(above, default=0) + 1
    return max(behind.values(), default=0)


def by_lanes(gathered: RegisterLayout, axis: int, count: int) -> RegisterLayout | None:
    """Return a layout in which lanes that hold copies hold a part each of the `count` dimensions
    from `axis` on; None where these lanes are too few.
    """
    left = list(gathered.shape[axis : axis + count])
    lanes: list[Axis] = []
    for item in gathered.lanes:
        copies = 1 if any(item.step) else item.extent
        lanes += [item] if copies == 1 else []
        for index in reversed(range(count)):
            if (share := gcd(copies, left[index])) > 1:
                step = gathered.shape[axis + index] // left[index]
                place = (step if dim == axis + index else 0 for dim in range(len(gathered.shape)))
                lanes.append(Axis(share, tuple(place)))
                left[index] //= share
                copies //= share
        if copies > 1:
            lanes.append(Axis(copies, item.step))
    if prod(left) > 1:
        return None
    held = gathered.registers[count:]
    return RegisterLayout(gathered.shape, held, tuple(lanes), gathered.warps)


def reshape(emitter: Emitter, value: SSAValue, layout: RegisterLayout) -> SSAValue:
    """Return a tensor as one of the layout's shape, whose elements stay where they are."""
    kind = with_layout(with_shape(layout.shape, element_type(value.type)), layout)
    return emitter.put(tile.Reshape.make(value, results=[kind])).result


def _reduce(
    emitter: Emitter, like: tile.Reduce, values: list[SSAValue], axis: int
) -> list[SSAValue]:
    """Reduce `values` along `axis` with the body of `like`, within warps."""
    layout = without_dimension(layout_of(values[0].type), axis)
    shape = shape_of(values[0].type)
    left = (*shape[:axis], *shape[axis + 1 :])
    kinds = [
        with_layout(with_shape(left, element_type(value.type)), layout)
        if left
        else element_type(value.type)
        for value in values
    ]
    made = tile.Reduce.make(values, results=[kinds], regions=[like.body.clone()], axis=axis)
    return list(emitter.put(made).res)


# --- scans and histograms -------------------------------------------------------------------------


_LANES = 32


def expand_scans(lowering: Lowering, role: hopper.Role) -> None:
    """Expand the scans of `role` that cross warps."""
    for scan in all_of(role.body, tile.Scan):
        layout, axis = layout_of(scan.inputs[0].type), scan.axis.data
        parts = prod(step.extent for step in layout.warps if step.step[axis])
        if parts > 1:
            _expand_scan(lowering, role, scan, layout, parts)


def _expand_scan(
    lowering: Lowering, role: hopper.Role, scan: tile.Scan, layout: RegisterLayout, parts: int
) -> None:
    emitter = Emitter.before(scan)
    axis, shape = scan.axis.data, layout.shape
    backwards = scan.reverse is not None and bool(scan.reverse.value.data)
    length = shape[axis] // parts
    apart = reshaped(layout, (*shape[:axis], parts, length, *shape[axis + 1 :]))
    assert apart is not None, "a warp's part of a scan is a digit of its axis"
    inside = _scan(emitter, scan, [reshape(emitter, v, apart) for v in scan.inputs], axis + 1)
    over = without_dimension(apart, axis + 1)
    last, totals = 0 if backwards else length - 1, list[SSAValue]()
    for each in inside:
        kind = with_layout(with_shape(over.shape, element_type(each.type)), over)
        totals.append(emitter.made(hopper.Pick, [each], kind, axis=axis + 1, at=last))
    wanted = by_lanes(all_parts(layout, axis, (parts,)), axis, 1)
    assert wanted is not None, "lanes along the axis hold copies of what a warp's part comes to"
    ends = _scan(emitter, scan, exchange(lowering, role, emitter, totals, wanted), axis)
    whole = hopper.CarryIn.make(
        ends,
        inside,
        results=[[value.type for value in inside]],
        regions=[scan.body.clone()],
        axis=axis,
        reverse=scan.reverse,
    )
    replace(scan, [reshape(emitter, value, layout) for value in emitter.put(whole).res])


def _scan(
    emitter: Emitter, like: tile.Scan, values: Sequence[SSAValue], axis: int
) -> list[SSAValue]:
    made = tile.Scan.make(
        values,
        results=[[value.type for value in values]],
        regions=[like.body.clone()],
        axis=axis,
        reverse=like.reverse,
    )
    return list(emitter.put(made).res)


# --- histograms -----------------------------------------------------------------------------------


def spread_histograms(role: hopper.Role) -> None:
    """Give every warp of `role` a part of each histogram."""
    for histogram in all_of(role.body, tile.Histogram):
        (count,) = shape_of(histogram.value.type)
        parts = gcd(role.warps.data, count // _LANES)
        if parts > 1:
            _count_in_parts(histogram, parts)


def _count_in_parts(histogram: tile.Histogram, parts: int) -> None:
    emitter = Emitter.before(histogram)
    (count,), bins = shape_of(histogram.value.type), shape_of(histogram.result.type)

    def cut(value: SSAValue) -> SSAValue:
        return emitter.reshape(value, (parts, count // parts))

    mask = [] if histogram.mask is None else [cut(histogram.mask)]
    kind = with_shape((parts, *bins), i32)
    counted = emitter.made(tile.Histogram, [cut(histogram.value), mask], kind)
    replace(histogram, emitter.reduce([counted], 0, combining("add", i32)))
