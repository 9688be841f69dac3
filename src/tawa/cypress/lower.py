"""From the instantiated tree to events: copies where memories ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from tawa.cypress import event
from tawa.cypress.ends import check_ends
from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Slot, loops, outputs_of
from tawa.cypress.instantiate import spread_of
from tawa.cypress.leaf import LeafFacts, check_leaf, facts_of, shared_out
from tawa.cypress.machine import BLOCK, GLOBAL, REGISTER, SHARED, Memory
from tawa.cypress.mapping import Instance, nearest
from tawa.cypress.size import Size, key
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import Iota, Launch, Loop, Make, Statement
from tawa.cypress.tree import Node, Operand, Part, Spread
from tawa.errors import MappingError
from tawa.language.dtypes import dtype
from tawa.layouts.register import RegisterLayout

_Shapes = tuple[tuple[int, ...], ...]
_Moved = Literal["", "registers", "shared"]


def lower(root: Node) -> Events:
    """Return the events of a program's tree; raises MappingError."""
    host = root.instance
    match root.statements:
        case (Loop(kind="prange", body=(Launch() as launch,)) as loop,) if len(loop.indices) <= 3:
            indices, grid = loop.indices, loop.extents
        case (Launch() as launch,):
            indices, grid = (), ()
        case _:
            raise host.error(
                " at HOST is more than one launch in a prange of up to three indices",
                place=host.variant.place,
                why="a program is one kernel, and a kernel's grid has three dimensions",
                remedy="launch the rest from BLOCK, or make it a program of its own",
            )
    block = root.child(launch)
    if block.instance.level != BLOCK:
        raise host.error(
            f' launches "{block.instance.name}" at {block.instance.level}',
            place=launch.place,
            why="HOST launches blocks, and blocks the rest",
            remedy="map it to BLOCK",
        )
    for node in root.walk():
        each = node.instance
        if node is not block and each.of_block:
            raise each.error(
                f" at {each.level} sets what a block is",
                why=f"{', '.join(each.of_block)}: what HOST launches has them",
                remedy=f'give them to "{block.instance.name}"',
            )
    numbers = [tensor for tensor in root.parameters if not tensor.shape]
    lowering = _Lowering(root, {t.name: Slot(t.name, t.element, ()) for t in numbers})
    lowering.given = block.instance.names
    lowering.filled |= (given := set(map(id, lowering.numbers.values())))
    lowering.places |= given
    lowering.enter(block)
    typed = [(t, kind) for t, kind in zip(root.parameters, host.variant.types, strict=True) if kind]
    body = tuple(lowering.body)
    carried = {slot for loop in loops(body) for slot in loop.carried}
    for slot, leaf in lowering.shared.items():
        if slot not in carried:
            raise _in_registers(leaf, slot.name, SHARED, f"no loop carries {slot.name} in SHARED")
    for name in lowering.given.keys() - {*lowering.called}:
        raise block.instance.error(
            f" names {name}, and there is no such statement",
            why=f"its statements are {', '.join(lowering.called)}",
            remedy=nearest(name, lowering.called),
        )
    places = lowering.shared, lowering.layouts, tuple(dict.fromkeys(lowering.removed))
    events = Events(block.instance, tuple(typed), lowering.numbers, indices, grid, body, *places)
    check_ends(events, [pair for node in root.walk() for pair in node.equal])
    return events


def _is_fixed(event: Event, index: Size, written: list[Slot]) -> bool:
    """Tell whether an event copies what a loop does not move: the copy stands before the loop."""
    if not isinstance(event, CopyIn) or event.direct or event.slot in written:
        return False
    return not any(index.symbol in key(at).symbols for at in event.source.offsets)


@dataclass(slots=True)
class _Lowering:
    root: Node
    numbers: dict[str, Slot]
    body: list[Event] = field(default_factory=list[Event])
    slots: dict[int, Slot] = field(default_factory=dict[int, Slot])
    made: set[int] = field(default_factory=set[int])
    places: set[int] = field(default_factory=set[int])
    filled: set[int] = field(default_factory=set[int])
    copied: dict[str, Slot] = field(default_factory=dict[str, Slot])
    touched: dict[int, tuple[tuple[Part, ...], str]] = field(default_factory=dict[int, Any])
    names: dict[str, int] = field(default_factory=dict[str, int])
    read: set[str] = field(default_factory=set[str])
    written: set[str] = field(default_factory=set[str])
    direct: set[Slot] = field(default_factory=set[Slot])
    shared: dict[Slot, Instance] = field(default_factory=dict[Slot, Instance])
    layouts: dict[Slot, RegisterLayout] = field(default_factory=dict[Slot, RegisterLayout])
    removed: list[str] = field(default_factory=list[str])
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    called: list[str] = field(default_factory=list[str])
    facts: dict[object, LeafFacts] = field(default_factory=dict[object, LeafFacts])

    def enter(self, node: Node) -> None:
        """Add the events of a node of control, or of a leaf or spread node."""
        instance = node.instance
        if node.spread or not instance.variant.inner:
            self._call(node)
            return
        back: list[tuple[Tensor, Slot]] = []
        for name, tensor in zip(instance.variant.parameters, node.parameters, strict=True):
            memory = instance.memory[name]
            here = self._slot(tensor)
            if memory == GLOBAL and here is not None:
                raise instance.error(
                    f": {name} is mapped to GLOBAL",
                    why=f"{tensor.root.name} is made inside of a block",
                    remedy="map it to NONE or SHARED",
                )
            if memory == SHARED and here is None:
                slot = self._copy_in(tensor, name in instance.variant.reads)
                self.slots[id(tensor)] = slot
                if name in instance.variant.writes:
                    back.append((tensor, slot))
        self._statements(node, node.statements)
        for tensor, slot in back:
            if id(slot) not in self.filled:
                raise instance.error(
                    f" maps {tensor.name} to SHARED, and nothing writes it",
                    why="what goes back to the program is written whatever its loops do",
                    remedy="launch what writes it, or map it to GLOBAL",
                )
            self._copy_out(tensor, slot, True, instance.name)

    def _statements(self, node: Node, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            match statement:
                case Make(tensor):
                    self.made.add(id(self._new(tensor)))
                case Iota(tensor, part, axis, bounded):
                    slot, dim = self._new(tensor), part.dims[axis]
                    extent = part.root.shape[dim] if bounded else None
                    self.body.append(event.Iota(slot, part.offsets[dim], extent))
                    self.filled.add(id(slot))
                    self.places.add(id(slot))
                case Launch():
                    self.enter(node.child(statement))
                case Loop():
                    self._loop(node, statement, 0)

    def _new(self, tensor: Tensor) -> Slot:
        shape = tuple(n for n in tensor.shape if isinstance(n, int))
        slot = Slot(self._named(tensor.name), tensor.element, shape)
        return self.slots.setdefault(id(tensor), slot)

    def _loop(self, node: Node, loop: Loop, axis: int) -> None:
        """Add a loop over one index, and in it the others of its box."""
        outer, self.body = self.body, []
        before, copied = set(self.filled), dict(self.copied)
        if axis + 1 < len(loop.indices):
            self._loop(node, loop, axis + 1)
        else:
            self._statements(node, loop.body)
        outputs = [slot for event in self.body for slot in outputs_of(event)]
        before_it = [each for each in self.body if _is_fixed(each, loop.indices[axis], outputs)]
        body = tuple(each for each in self.body if each not in before_it)
        self.body = [*outer, *before_it]
        changed = {id(slot): slot for slot in outputs if id(slot) in before}
        # An iteration may not happen: what only the body fills holds nothing after it.
        fixed = {id(each.slot) for each in before_it if isinstance(each, CopyIn)}
        copied |= {at: slot for at, slot in self.copied.items() if id(slot) in fixed}
        self.filled = before | fixed
        self.copied = {at: slot for at, slot in copied.items() if id(slot) not in changed}
        carried = tuple(changed.values())
        name = self._called(str(loop.indices[axis]))
        extent = loop.extents[axis]
        bounds = loop.bounds if loop.kind == "srange" else (0, extent, 1)
        self.body.append(For(name, loop.indices[axis], extent, body, carried, bounds))

    def _slot(self, tensor: Tensor) -> Slot | None:
        """Return the slot that a tensor is, or None where it is of the program."""
        part = False
        at: Tensor | None = tensor
        while at is not None:
            if (found := self.slots.get(id(at))) is not None:
                if part:
                    raise MappingError(
                        f"{tensor} is a part of {at.name}, which lives inside of a block",
                        place=tensor.place,
                        why="inside of a block tensors are parted over warpgroups, warps and "
                        "threads alone, each all of it",
                        remedy="copy the part from the program's tensor, or make a smaller one",
                    )
                return found
            if at.piece is not None:
                whole = at.piece.held or all(
                    key(b) == key(s) for b, s in zip(at.piece.block, at.piece.of.shape, strict=True)
                )
                part, at = part or not whole, at.piece.of
            else:
                at = at.bound
        return None

    def _copy_in(self, tensor: Tensor, read: bool, direct: bool = False) -> Slot:
        shape = tuple(n for n in tensor.shape if isinstance(n, int))
        if len(shape) != len(tensor.shape):
            raise MappingError(
                f"{tensor} of {tensor.root.name} does not fit into SHARED",
                place=tensor.place,
                why=f"its shape is {tensor.shape}, and what a block holds has a known size",
                remedy="part it into blocks of known extents first",
            )
        name = tensor.root.name
        if not read:
            return Slot(self._named(name), tensor.element, shape)
        at = f"{id(tensor.root)}{[*map(key, tensor.offsets)]}{tensor.box}"
        if (known := self.copied.get(at)) is not None:
            if known in self.direct and not direct:
                raise MappingError(
                    f"{tensor} of {name} is read in GLOBAL, then copied into SHARED",
                    place=tensor.place,
                    why="a part that is there already is not loaded again",
                    remedy="map it to SHARED where it is read first",
                )
            given = tensor if tensor.bound is None else tensor.bound
            self.removed.append(f"{given} of {name}: {known.name} is it, unchanged")
            return known
        self.read.add(name)
        self._check_both(tensor)
        slot = Slot(self._called(name), tensor.element, shape)
        self.body.append(CopyIn(slot, tensor, direct))
        self.direct |= {slot} if direct else set()
        self.copied[at] = slot
        self.filled.add(id(slot))
        return slot

    def _copy_out(self, tensor: Tensor, slot: Slot, staged: bool, name: str) -> None:
        self.written.add(tensor.root.name)
        self._check_both(tensor)
        self.body.append(CopyOut(tensor, slot, staged, self._called(f"{name}_out")))

    def _check_both(self, tensor: Tensor) -> None:
        if tensor.root.name in self.read & self.written:
            raise MappingError(
                f"a block reads and writes {tensor.root.name}",
                place=tensor.place,
                why="copies of one tile run under the work on another one, so that what one writes "
                "another may have read",
                remedy="write a tensor of its own",
            )

    def _named(self, name: str) -> str:
        self.names[name] = number = self.names.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"

    def _called(self, name: str) -> str:
        """Return a statement's own name, or what the mapping calls it."""
        self.called.append(own := self._named(name))
        return self.given.get(own, own)

    def _call(self, node: Node) -> None:
        spread = spread_of(self.root, node)
        leaf, writes = spread.leaf, spread.leaf.variant.writes
        slots: list[Slot] = []
        new: list[tuple[Tensor, Slot]] = []
        for operand in spread.operands:
            slot = self._slot(operand.tensor)
            if slot is None:
                slot = self._from_program(leaf, operand)
                if operand.name in writes:
                    new.append((operand.tensor, slot))
            slots.append(slot)
        shapes = tuple(slot.shape for slot in slots)
        elements = tuple(slot.element for slot in slots)
        facts = self._facts(leaf, shapes, elements)
        spread = shared_out(spread, facts)
        check_leaf(spread, facts)
        self._check_parts(spread, facts, shapes, elements)
        given = list(zip(spread.operands, slots, strict=True))
        come = {id(slot) for _, slot in new}
        for operand, slot in given:
            if id(slot) not in come:
                self._check_local(leaf, operand, slot)
            self._lay(leaf, operand, slot)
        outputs = tuple(slot for operand, slot in given if operand.name in writes)
        # A copy that is written is another value from then on.
        self.copied = {at: slot for at, slot in self.copied.items() if slot not in outputs}
        self.filled |= set(map(id, outputs))
        moved: _Moved = ""
        for each in given if facts.products else ():
            moved = moved or self._moved(*each)
        name = self._called(leaf.name) if facts.products else ""
        self.body.append(Call(spread, facts, tuple(slots), outputs, moved, name))
        for tensor, slot in new:
            self._copy_out(tensor, slot, leaf.stage == SHARED, leaf.name)

    def _moved(self, operand: Operand, slot: Slot) -> _Moved:
        """Return where wgmma takes its first operand from, where it does not lie there."""
        if operand.of_wgmma != "A":
            return ""
        if id(slot) in self.made:
            return "shared" if SHARED in (operand.memory, operand.memories[-1]) else ""
        return "registers" if operand.memories[-1] == REGISTER else ""

    def _facts(self, leaf: Instance, shapes: _Shapes, elements: tuple[dtype, ...]) -> LeafFacts:
        """Return what a leaf does, found once for its launches on alike tensors."""
        key = leaf.name, shapes, elements
        if key not in self.facts:
            self.facts[key] = facts_of(leaf, shapes, elements)
        return self.facts[key]

    def _check_parts(
        self, spread: Spread, facts: LeafFacts, shapes: _Shapes, elements: tuple[dtype, ...]
    ) -> None:
        """Refuse a leaf that does something else on parts than on the whole."""
        given = zip(shapes, spread.operands, strict=True)
        parts = tuple(_cut(shape, operand.parts) for shape, operand in given)
        if spread.leaf.like or parts == shapes:
            return
        if self._facts(spread.leaf, parts, elements).text != facts.text:
            raise spread.leaf.error(
                " computes with the shapes of its tensors",
                place=spread.leaf.variant.place,
                why=f"it would differ on parts of {parts[0]} and on the whole of {shapes[0]}",
                remedy="leave the shape out of its arithmetic, or run it without parts",
            )

    def _from_program(self, leaf: Instance, operand: Operand) -> Slot:
        name, tensor = operand.name, operand.tensor
        if not tensor.shape:
            return self.numbers[tensor.root.name]
        read = name in leaf.variant.reads
        if read and operand.memory not in (SHARED, GLOBAL):
            mems = [SHARED if n == name else each for n, each in leaf.memory.items()]
            raise leaf.error(
                f" reads {name} of the program from {operand.memory}",
                why="what a block reads is copied into SHARED, from where threads take it, or is "
                "read by them in GLOBAL",
                remedy=f"map {name} to SHARED, at the leaf (mems=[{', '.join(map(str, mems))}]) or "
                "above it, or to GLOBAL",
            )
        return self._copy_in(tensor, read, direct=operand.memory == GLOBAL)

    def _lay(self, leaf: Instance, operand: Operand, slot: Slot) -> None:
        """Note which thread has which element of a slot."""
        layout = None if id(slot) in self.places else operand.layout(slot.shape)
        if layout is not None and self.layouts.setdefault(slot, layout) != layout:
            raise leaf.error(
                f" has {operand.name} as {layout}",
                why=f"another leaf has it as {self.layouts[slot]}, and threads take it once",
                remedy="part it alike in both, or load it as two tensors",
            )

    def _check_local(self, leaf: Instance, operand: Operand, slot: Slot) -> None:
        tensor, memory, parts = operand.tensor, operand.memory, operand.parts
        if operand.name in leaf.variant.reads and id(slot) not in self.filled:
            raise leaf.error(
                f" reads {tensor.root.name}, and nothing has written it",
                place=tensor.root.place,
                why="a tensor that a variant makes holds nothing; what only a loop writes is not "
                "written where the loop has no iteration",
                remedy="launch a clear first",
            )
        if id(slot) in {id(s) for s in self.copied.values()} | self.places:
            return
        if memory == GLOBAL:
            why = "what a block computes stays inside of it"
            raise _in_registers(leaf, tensor.root.name, memory, why)
        # The first operand of wgmma may be stored for it: `_moved`.
        if memory == SHARED and id(slot) in self.made and operand.of_wgmma != "A":
            self.shared.setdefault(slot, leaf)
        known, other = self.touched.setdefault(id(slot), (parts, leaf.name))
        short, long = sorted((known, parts), key=len)
        if parts == long:
            self.touched[id(slot)] = parts, leaf.name
        # What a warpgroup has, its warps and threads have: how they hold it is the compiler's.
        if known != parts and not (short and long[: len(short)] == short):
            first, second = (" ".join(map(str, each)) or "not at all" for each in (known, parts))
            raise MappingError(
                f'NONE cannot be honoured: {tensor.root.name} of "{leaf.name}" is materialized',
                place=leaf.place,
                why=f'"{other}" splits it {first}, "{leaf.name}" {second}',
                remedy="split both alike",
            )


def _in_registers(leaf: Instance, tensor: str, memory: Memory, why: str) -> MappingError:
    return MappingError(
        f'{tensor} of "{leaf.name}" is mapped to {memory}',
        place=leaf.place,
        why=why,
        remedy="map it to NONE above the leaf, and to REGISTER there",
    )


def _cut(shape: tuple[int, ...], steps: tuple[Part, ...]) -> tuple[int, ...]:
    """Return the shape of what one warpgroup has; wgmma is of all of its threads together."""
    for step in steps:
        if not step.held:
            cuts = [prod(n for n, at in step.grid if at == d) for d in range(len(shape))]
            shape = tuple(n // cut for n, cut in zip(shape, cuts, strict=True))
    return shape
