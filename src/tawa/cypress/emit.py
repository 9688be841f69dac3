"""Emission: tile IR by the door, from events."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Iota, Slot
from tawa.cypress.leaf import call_leaf
from tawa.cypress.mapping import Mapping
from tawa.cypress.plan import block_of, copies_of, plan_of
from tawa.cypress.size import Int, key
from tawa.cypress.tensor import Tensor
from tawa.errors import MappingError
from tawa.integers.expressions import Atom, Expr, Monomial, Quotient, Symbol, make, of_atom
from tawa.ir.build import Desc, KernelBuilder, Value
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan, TensorPlan
from tawa.plan.resources import Buffer


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the kernel: a tensor of the program in blocks of one shape, or a number."""

    name: str
    tensor: str
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """A kernel of tile IR, its arguments, its plan, and the shared memory it takes (bytes)."""

    kernel: object
    arguments: tuple[Argument, ...]
    plan: Plan | Pins
    buffers: tuple[Buffer, ...]


def emit(name: str, events: Events, mapping: Mapping) -> Emitted:
    """Return the kernel and the plan of a program; raises OverBudget and MappingError."""
    copied = (e.source if isinstance(e, CopyIn) else e.target for e, _ in copies_of(events.body))
    blocks = list(dict.fromkeys(map(block_of, copied)))
    arguments: dict[tuple[str, tuple[int, ...]], Argument] = {}
    for tensor, _ in events.parameters:
        label = tensor.name
        for at in [at for at in blocks if at[0] == tensor.name] if tensor.shape else [(label, ())]:
            arguments[at] = Argument(label, *at)
            label = f"{tensor.name}_{'x'.join(map(str, at[1]))}"
    k = KernelBuilder(name)
    emitter = _Emitter(k, events)
    kinds = {tensor.name: (tensor.element, kind) for tensor, kind in events.parameters}
    for at, each in arguments.items():
        element, kind = kinds[each.tensor]
        if each.block:
            emitter.descs[at] = k.descriptor(each.name, element, each.block)
        else:
            value = k.scalar(each.name, element, divisible=kind.divisible)
            emitter.values[id(events.numbers[each.name])] = emitter.numbers[each.name] = value
    for axis, index in enumerate(events.indices):
        emitter.known[index.symbol] = k.program_id(axis).named(str(index))
    emitter.run(events.body)
    kernel, names = k.finish(), {at: each.name for at, each in arguments.items()}
    plan, buffers = plan_of(kernel, events, mapping, names, emitter.tensors)
    return Emitted(kernel, tuple(arguments.values()), plan, buffers)


@dataclass(slots=True)
class _Emitter:
    k: KernelBuilder
    events: Events
    descs: dict[tuple[str, tuple[int, ...]], Desc] = field(default_factory=dict[Any, Desc])
    numbers: dict[str, Value] = field(default_factory=dict[str, Value])
    strides: dict[Symbol, tuple[Symbol, Expr, int]] = field(default_factory=dict[Symbol, Any])
    known: dict[Symbol, Value] = field(default_factory=dict[Symbol, Value])
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    tensors: dict[TensorPlan, None] = field(default_factory=dict[TensorPlan, None])

    def run(self, body: tuple[Event, ...]) -> None:
        """Build events at the current place."""
        for event in body:
            match event:
                case CopyIn(slot, source):
                    desc = self.descs[block_of(source)]
                    tile = desc.load(self._offsets(source), name=slot.name)
                    self.values[id(slot)] = self._placed(slot, _shaped(tile, slot.shape))
                case CopyOut(target, slot):
                    desc = self.descs[block_of(target)]
                    value = self.values[id(slot)].to(target.root.element)
                    value = _shaped(value, block_of(target)[1])
                    desc.store(self._offsets(target), value, name=event.name)
                case Iota(slot, start, bounded):
                    at = self.k.arange(0, slot.shape[0]) + self._int(start)
                    self.values[id(slot)] = at if bounded is None else at < self._int(bounded)
                case Call():
                    self._call(event)
                case For():
                    self._for(event)

    def _call(self, call: Call) -> None:
        given = [
            self.values[id(slot)]
            if id(slot) in self.values
            else self.k.zeros(slot.shape, slot.element)
            for slot in call.slots
        ]
        made = call_leaf(self.k, call.spread.leaf, given)
        if call.a or call.product in self.events.block.names.values():
            self.k.name_product(made, given, call.product)
        for slot, value in zip(call.outputs, made, strict=True):
            made_of = value.to(slot.element)
            made_of = made_of.named(slot.name) if call.facts.products else made_of
            self.values[id(slot)] = self._placed(slot, made_of)

    def _placed(self, slot: Slot, value: Value) -> Value:
        """Name a value whose layout the mapping says, as the plan speaks of it."""
        if (layout := self.events.layouts.get(slot)) is not None:
            name = value.named(slot.name.partition("@")[0]).ssa.name_hint or slot.name
            self.tensors[TensorPlan(name, str(layout).replace(" ", ";"))] = None
        return value

    def _for(self, loop: For) -> None:
        carry = [self.values[id(slot)] for slot in loop.carried]
        start, stop, step = loop.bounds
        first, last, before = self._int(start), self._int(stop), dict(self.values)
        with self.k.range(first, last, step, carry=carry, name=loop.name) as made:
            iteration, at = loop.index.symbol, Symbol(loop.name, (loop.index.symbol,))
            self.strides[iteration] = at, key(start), step
            self.known[at] = made.index
            for slot, value in zip(loop.carried, made.carried, strict=True):
                self.values[id(slot)] = value.named(slot.name)
            self.run(loop.body)
            if loop.carried:
                made.yield_(*(self.values[id(slot)] for slot in loop.carried))
        self.values = before
        for slot, value in zip(loop.carried, made.results, strict=True):
            self.values[id(slot)] = value

    def _offsets(self, tensor: Tensor) -> list[int | Value]:
        return [self._int(each) for each in tensor.offsets]

    def _int(self, value: Int) -> int | Value:
        """Build a size, with what loops count in place of their iterations."""
        expr = key(value)
        for iteration, (at, start, step) in self.strides.items():
            whole, rest = divmod(factor := expr.coefficient(iteration), step)
            if not rest:
                expr += (of_atom(at) - start) * whole - of_atom(iteration) * factor
            expr = expr.substitute({iteration: (of_atom(at) - start) // step})
        return self._expr(expr)

    def _expr(self, expr: Expr) -> int | Value:
        """Build an expression: what all of its terms are multiples of is multiplied at the end, and
        what is known first is added first, so that loops find the most of it done.
        """
        if expr.value is not None:
            return expr.value
        shared = gcd(*expr.terms.values())
        if shared > 1 and len(expr.terms) > 1:
            return self._expr(make({m: c // shared for m, c in expr.terms.items()})) * shared
        (first, factor), *rest = sorted(
            [(m, c) for m, c in expr.terms.items() if m],
            key=lambda t: (self._known(t[0]), t[1] < 0),
        )
        total = self._product(first, abs(factor))
        total = -total if factor < 0 else total
        total = total + expr.offset if expr.offset else total
        for monomial, factor in rest:
            each = self._product(monomial, abs(factor))
            total = total - each if factor < 0 else total + each
        return total

    def _known(self, monomial: Monomial) -> int:
        """Return when a product is known: 0 before all indices, then with the last of them."""
        symbols = {symbol for atom in monomial for symbol in of_atom(atom).symbols}
        return max((n for n, index in enumerate(self.known, 1) if index in symbols), default=0)

    def _product(self, monomial: Monomial, factor: int) -> int | Value:
        made = self._atom(monomial[0])
        for atom in monomial[1:]:
            made = made * self._atom(atom)
        return made if factor == 1 else made * factor

    def _atom(self, atom: Atom) -> int | Value:
        match atom:
            case Symbol(key=(str() as tensor, int() as dim)):
                desc = next((d for (name, _), d in self.descs.items() if name == tensor), None)
                if desc is None:
                    raise MappingError(
                        f"{atom} is asked for, and no block loads or stores a part of {tensor}",
                        place=self.events.block.place,
                        why="a kernel knows the extents of the tensors that it is given",
                        remedy="take the extent of another tensor, which cy.same says is the same",
                    )
                return desc.shape[dim]
            case Symbol(key=(str() as name,)):
                return self.numbers[name]
            case Symbol():
                return self.known[atom]
            case Quotient():
                return self._expr(atom.dividend) // self._expr(atom.divisor)
            case _:
                raise AssertionError(f"sizes are sums, products and quotients, not {atom!r}")


def _shaped(value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else value.reshape(*shape)
