"""Conversions: types get their layouts, and neighbours that disagree get what lies between them.

Purpose: carry out an `Assignment`.
Before -> after:
    %x : acc layout; tile.store wants blocked    hopper.named_barrier (role)
    tile.store %p, %x                      ->    hopper.shared_store %x, %scratch
                                                 hopper.named_barrier (role)
                                                 %y = hopper.shared_load %scratch; tile.store %p, %y
Within a warp it is one `hopper.convert_layout`, unless by too many shuffles. Cheap values are
recomputed beside their definition in each wanted layout; tiles in memory and views, read again.
Requires: layouts assigned. Ensures: every tensor of the role has a layout and operands agree.
Declines when: never.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr, is_tensor, layout_of, shape_of
from tawa.ir.walk import handed_on, operations_of
from tawa.layouts.convert import register_map
from tawa.layouts.fragments import without_dimension
from tawa.layouts.register import RegisterLayout
from tawa.passes.lower.anchors import Assignment, count_layout, operand_layouts
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, retype
from tawa.passes.lower.exchange import moved, same_layout, with_layout
from tawa.passes.lower.layouts import assign_layouts
from tawa.passes.lower.relate import ELEMENTWISE, joined, propose, reshaped, split_of


def convert_layouts(lowering: Lowering, role: hopper.Role) -> None:
    """Give every tensor of the role its layout, and operands the layouts they are wanted in."""
    _Converter(lowering, role, assign_layouts(lowering, role)).run()


@dataclass(slots=True)
class _Converter:
    """Sets types and inserts conversions in one role."""

    lowering: Lowering
    role: hopper.Role
    chosen: Assignment
    versions: dict[tuple[SSAValue, LayoutAttr], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, LayoutAttr], SSAValue]
    )
    interned: dict[RegisterLayout, RegisterLayout] = field(
        default_factory=dict[RegisterLayout, RegisterLayout]
    )

    def run(self) -> None:
        """Give every tensor of the role its layout."""
        for value, layout in self.chosen.of.items():
            retype(value, with_layout(value.type, self._intern(layout)))
        self._block(self.role.body.block)

    def _intern(self, layout: RegisterLayout) -> RegisterLayout:
        """Return the first layout met that is the same map, so that equal maps are equal types."""
        if layout not in self.interned:
            same = next(
                (known for known in self.interned.values() if same_layout(known, layout)), None
            )
            self.interned[layout] = same if same is not None else layout
        return self.interned[layout]

    def _block(self, block: Block) -> None:
        for operation in operations_of(block):
            self._operation(operation)
            if not isinstance(operation, (tile.Reduce, tile.Scan)):
                for region in operation.regions:
                    for inner in region.blocks:
                        self._block(inner)

    def _operation(self, operation: Operation) -> None:
        if any(result in self.chosen.cheap for result in operation.results):
            return
        for index, operand in enumerate(operation.operands):
            if not is_tensor(operand):
                continue
            layout = self._wanted(operation, index)
            operation.operands[index] = self.version(operand, layout, operation)
        self._settle_results(operation)

    def _settle_results(self, operation: Operation) -> None:
        """Give results the layout that follows from the operands', then the one they were given.

        A product leaves its result in the registers of its accumulator, a load of what is turned in
        those of its vectors. The operand of a reduction, scan or histogram does not follow from its
        result, nor always that of a reshape or a join, whose neighbours may lie in other threads.
        """
        match operation:
            case hopper.Wgmma() | hopper.Mma() | hopper.FmaDot():
                natural = self.chosen.at[operation]
            case tile.Load() if operation in self.chosen.at:
                natural = self.chosen.at[operation]
            case tile.Scan():
                natural = layout_of(operation.inputs[0].type)
            case tile.Reduce():
                inside = layout_of(operation.inputs[0].type)
                natural = without_dimension(inside, operation.axis.data)
            case tile.Histogram():
                natural = count_layout(shape_of(operation.result.type), self.chosen.warps)
            case tile.Join():
                natural = joined(layout_of(operation.first.type))
            case tile.Reshape():
                natural = reshaped(layout_of(operation.value.type), shape_of(operation.result.type))
            case _:
                return
        if natural is None:
            return
        natural = self._intern(natural)
        following = operation.next_op
        assert following is not None, "an operation with no use is dead"
        for result in [value for value in operation.results if is_tensor(value)]:
            wanted = self._intern(self.chosen.of[result])
            if same_layout(natural, wanted):
                continue
            self.chosen.of[result] = natural
            retype(result, with_layout(result.type, natural))
            users = [(use.operation, use.index) for use in result.uses]
            version = self.version(result, wanted, following)
            self.chosen.of[version] = wanted
            for user, index in users:
                user.operands[index] = version

    def _wanted(self, operation: Operation, index: int) -> RegisterLayout:
        """Return the layout an operation wants an operand in."""
        operand = operation.operands[index]
        fragments = (
            operand_layouts(self.chosen, operation, self.chosen.at[operation])
            if (isinstance(operation, (hopper.Wgmma, hopper.Mma)))
            else {}
        )
        match operation:
            case _ if index in fragments:
                return fragments[index]
            case _ if operation in self.chosen.at:
                return self.chosen.at[operation]
            case tile.Store() if not is_tensor(operation.pointer):
                return self._own(operand)
            case _ if after := handed_on(operation, index):
                return self._own(after[0])
            case tile.Reduce():
                return self._own(operation.inputs[0])
            case _ if isinstance(operation, ELEMENTWISE) and operation.results:
                return self._own(operation.results[0])
            case tile.Split():
                return self._whole(operation)
            case tile.Join():
                return self._half(operation)
            case _ if len(operation.results) == 1 and is_tensor(operation.results[0]):
                return self._back(operation, operand)
            case _:
                return self._own(operand)

    def _whole(self, operation: tile.Split) -> RegisterLayout:
        """Return a layout of a split's operand that gives the halves theirs; its own if it does."""
        own, part = self._own(operation.value), self._own(operation.first)
        halves = split_of(own)
        return own if halves is not None and same_layout(halves, part) else joined(part)

    def _half(self, operation: tile.Join) -> RegisterLayout:
        half = split_of(self._own(operation.result))
        return self._own(operation.first) if half is None else half

    def _back(self, operation: Operation, operand: SSAValue) -> RegisterLayout:
        """Return the operand's layout that follows from the result's, or the operand's own."""
        result = operation.results[0]
        for value, layout in propose(operation, result, self._own(result)):
            if value is operand:
                return layout
        return self._own(operand)

    def _own(self, value: SSAValue) -> RegisterLayout:
        """Return a value's layout; a cheap one has the default."""
        if (layout := self.chosen.of.get(value)) is not None:
            return layout
        return self.chosen.default(shape_of(value.type))

    def version(self, value: SSAValue, layout: RegisterLayout, use: Operation) -> SSAValue:
        """Return `value` in `layout` at `use`."""
        wanted = self._intern(layout)
        if value in self.chosen.cheap:
            return self._recompute(value, wanted)
        own = self._intern(self.chosen.of[value])
        if same_layout(own, wanted):
            return value
        same_thread = register_map(own, wanted) is not None
        again = None if same_thread else self._again(value, wanted)
        if again is not None:
            return again
        return moved(self.lowering, self.role, Emitter.before(use), value, wanted)

    def _recompute(self, value: SSAValue, layout: RegisterLayout) -> SSAValue:
        key = (value, LayoutAttr(layout))
        if key in self.versions:
            return self.versions[key]
        owner = value.owner
        assert isinstance(owner, Operation)
        operands = dict(self._cheap_operands(owner, layout))
        return self._keep(key, owner, owner.clone(operands))

    def _keep(
        self, key: tuple[SSAValue, LayoutAttr], owner: Operation, clone: Operation
    ) -> SSAValue:
        """Place another version of what `owner` makes behind it, and remember it."""
        value, layout = key
        Emitter.after(owner).put(clone, value.name_hint)
        retype(clone.results[0], with_layout(value.type, layout.data))
        self.versions[key] = clone.results[0]
        return clone.results[0]

    def _cheap_operands(
        self, owner: Operation, layout: RegisterLayout
    ) -> list[tuple[SSAValue, SSAValue]]:
        related = dict(propose(owner, owner.results[0], layout))
        return [
            (operand, self._recompute(operand, self._intern(related[operand])))
            for operand in owner.operands
            if is_tensor(operand)
        ]

    def _again(self, value: SSAValue, wanted: RegisterLayout) -> SSAValue | None:
        """Return a tile in shared memory, or a view of one, read once more in a wanted layout."""
        match value.owner:
            case hopper.SharedLoad() as load:
                return self._read_again(load, wanted)
            case tile.ExpandDims() | tile.Transpose() | tile.Reshape() as view:
                inner = dict(propose(view, value, wanted)).get(view.value)
                source = None if inner is None else self._again(view.value, self._intern(inner))
            case _:
                return None
        if source is None:
            return None
        key = (value, LayoutAttr(wanted))
        return self.versions.get(key) or self._keep(key, view, view.clone({view.value: source}))

    def _read_again(self, load: hopper.SharedLoad, layout: RegisterLayout) -> SSAValue:
        key = (load.result, LayoutAttr(layout))
        return self.versions.get(key) or self._keep(key, load, load.clone())
