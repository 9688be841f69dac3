"""Events run in NumPy in an order drawn at random from those that their waits allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from random import Random
from typing import Any

from tawa.cypress.depend import Wait
from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Iota
from tawa.cypress.sequential import call, overlap, places, unwritten
from tawa.cypress.size import evaluate, sizes_of
from tawa.cypress.tensor import Tensor
from tawa.integers.expressions import Symbol

Waits = Callable[[tuple[Event, ...], bool], tuple[Wait, ...]]


def run(events: Events, arrays: Mapping[str, Any], order: Random, waits: Waits) -> None:
    """Run a program on NumPy arrays, in place: blocks in any order, with slots of their own."""
    sizes = sizes_of(arrays)
    points = list(product(*(range(evaluate(extent, sizes)) for extent in events.grid)))
    order.shuffle(points)
    for point in points:
        at = dict(zip((index.symbol for index in events.indices), point, strict=True))
        given = {id(slot): arrays[name] for name, slot in events.numbers.items()}
        block = _Block(arrays, order, waits, given)
        block.body(events.body, [{**sizes, **at}], False)


class _Block:
    def __init__(
        self, arrays: Mapping[str, Any], order: Random, waits: Waits, slots: dict[int, Any]
    ) -> None:
        self.arrays, self.order, self.waits, self.slots = arrays, order, waits, slots

    def body(
        self, body: tuple[Event, ...], iterations: list[dict[Symbol, int]], looped: bool
    ) -> None:
        """Run all iterations of a body, an event as soon as what it waits for is done, or later."""
        waits = self.waits(body, looped)
        left = [(iteration, n) for iteration in range(len(iterations)) for n in range(len(body))]
        done: set[tuple[int, int]] = set()
        while left:
            ready = [
                (iteration, n)
                for iteration, n in left
                if all((iteration, m) in done for m in waits[n].same)
                and (iteration == 0 or all((iteration - 1, m) in done for m in waits[n].before))
            ]
            iteration, n = self.order.choice(ready)
            self.event(body[n], iterations[iteration])
            left.remove((iteration, n))
            done.add((iteration, n))

    def event(self, event: Event, sizes: dict[Symbol, int]) -> None:
        match event:
            case CopyIn(slot, source):
                made = unwritten(slot.shape, slot.element)
                made[...] = 0
                inner, outer = self._box(source, sizes)
                _whole(made, source)[inner] = self.arrays[source.root.name][outer]
                self.slots[id(slot)] = made
            case Iota(slot, start, bounded):
                self.slots[id(slot)] = places(slot.shape[0], start, bounded, sizes)
            case CopyOut(target, slot):
                inner, outer = self._box(target, sizes)
                array = self.arrays[target.root.name]
                array[outer] = _whole(self._slot(slot), target)[inner].astype(array.dtype)
            case Call():
                given = [self._slot(slot).copy() for slot in event.slots]
                call(event.facts, given)
                for slot, array in zip(event.slots, given, strict=True):
                    if slot in event.outputs:
                        self.slots[id(slot)] = array
            case For():
                iterations = range(evaluate(event.extent, sizes))
                self.body(event.body, [{**sizes, event.index.symbol: n} for n in iterations], True)

    def _slot(self, slot: Any) -> Any:
        if id(slot) not in self.slots:
            self.slots[id(slot)] = unwritten(slot.shape, slot.element)
        return self.slots[id(slot)]

    def _box(self, tensor: Tensor, sizes: Mapping[Symbol, int]) -> Any:
        starts = [evaluate(each, sizes) for each in tensor.offsets]
        shape = [evaluate(each, sizes) for each in tensor.box]
        return overlap(starts, shape, self.arrays[tensor.root.name].shape)


def _whole(array: Any, tensor: Tensor) -> Any:
    """Return a view of a part's array with the dimensions that the part does not have."""
    extents = dict(zip(tensor.dims, array.shape, strict=True))
    return array.reshape([extents.get(dim, 1) for dim in range(len(tensor.root.shape))])
