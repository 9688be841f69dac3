"""Mappings that are likely fast: climbed to from a legal one by edits, ranked by the model of time.

What is `cy.auto` among the tunables is chosen the same way when a program is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import combinations, product
from math import prod
from typing import Any, cast, get_args

from tawa.cypress import lib
from tawa.cypress.event import Event, Events, For, loops
from tawa.cypress.machine import GLOBAL, NONE, REGISTER, SHARED, Auto
from tawa.cypress.mapping import Mapping as Tasks
from tawa.cypress.program import Program, complete
from tawa.cypress.size import evaluate, is_extent, leaves, sizes_of
from tawa.errors import ArgumentError, MappingError, OverBudget, PlanError, TawaError
from tawa.integers.expressions import Symbol
from tawa.plan.plan import Walk
from tawa.plan.time import registers_lacking, tile_cycles
from tawa.runtime.arrays import is_array, look
from tawa.runtime.timing import do_bench
from tawa.target import H200

_STARTS = (128, 64, 256, 32, 2, 1, 3)
_REFUSALS = (ArgumentError, MappingError, OverBudget, PlanError)
_MEASURED = 6
"""How many of the likely best are timed, at most."""


def program(mapping: Tasks, name: str = "") -> Program:
    """Instantiate a mapping, check it, and make the kernel's tile IR and plan.

    Tunables and memories that are `auto` are chosen. Raises MappingError, and OverBudget where the
    tiles do not fit; the compiler's own errors come from `compile`.
    """
    return _chosen(mapping, name) if mapping.open else complete(mapping, name)


def search(start: Program, *tensors: Any, budget: float = 60.0) -> Program:
    """Return a program whose mapping is likely the fastest on these tensors, and print it.

    Half of `budget` (seconds) at most goes into legal mappings near that of `start`: tunables that
    share a name move together, one or two at a time. `start` and the best by the model of time are
    timed on the GPU, then what differs from the fastest in a field of the block, of which the
    model knows little, as long as time is left; tensors of NumPy are timed nowhere, and the model
    decides.
    """
    began = time.monotonic()
    sizes = sizes_of(dict(zip(start.parameters, tensors, strict=True)))

    def make(mapping: Tasks) -> Program:
        made = complete(mapping, start.name)
        made.check_equal(sizes)
        return made

    def fits(name: str) -> bool:
        """Tell whether a tunable may change for these tensors: their extents fix some."""
        for value in _near(_tunables(start.mapping)[name]):
            try:
                make(tuned(start.mapping, {name: value}))
            except ArgumentError:
                return False
            except _REFUSALS:
                continue
        return True

    def measure(made: Program) -> float:
        return cast("float", do_bench(lambda: made(*tensors)))

    def time_left(part: float) -> bool:
        return time.monotonic() < began + budget * part

    free = [name for name in _tunables(start.mapping) if fits(name)]
    near = partial(_tunables_near, only=free)
    ranked = _climbed(start, sizes, near, make, lambda: time_left(0.5))
    chosen = ranked[0]
    if any(look(each).device.kind != "cpu" for each in tensors if is_array(each)):
        others = [each.mapping for each in ranked if each is not start]
        likely = [start.mapping, *others][:_MEASURED]
        build = partial(_built, make=make)
        chosen = _fastest(likely, build, measure, lambda: time_left(1.0)) or start
    print(chosen.mapping)
    return chosen


def _fastest(
    likely: Sequence[Tasks],
    build: Callable[[Sequence[Tasks]], list[Program]],
    measure: Callable[[Program], float],
    go_on: Callable[[], bool],
) -> Program | None:
    """Return the fastest of mappings and of those to which edits of a field of the block lead.

    Edits of the fastest come first, then those of the next, whose faults another edit may mend: two
    of which one alone is slower are found so. Some are built at once, and then timed in turn.
    """
    tried: set[str] = set()
    timed: list[tuple[float, Program, list[Tasks]]] = []  # each with edits that were not tried

    def time_new(some: Sequence[Tasks]) -> None:
        some = [each for each in some if str(each) not in tried]
        tried.update(map(str, some))
        for made in build(some):
            with suppress(TawaError):  # a launch may be refused that was compiled
                timed.append((measure(made), made, [*_fields_near(made.mapping)]))

    time_new(likely)
    while go_on() and (ahead := [edits for _, _, edits in sorted(timed, key=_took) if edits]):
        some, ahead[0][:_MEASURED] = ahead[0][:_MEASURED], []
        time_new(some)
    return min(timed, key=_took)[1] if timed else None


def _took(timed: tuple[float, Program, list[Tasks]]) -> float:
    return timed[0]


def _built(mappings: Sequence[Tasks], make: Callable[[Tasks], Program]) -> list[Program]:
    """Return the programs of mappings, but those that are refused, by the compiler as well, which
    alone can tell of some, as of registers. NVRTC runs beside the interpreter.
    """

    def build(mapping: Tasks) -> Program | None:
        try:
            made = make(mapping)
            made.compile()
        except TawaError:
            return None
        return made

    with ThreadPoolExecutor(thread_name_prefix="tawa searches") as pool:
        return [made for made in pool.map(build, mappings) if made is not None]


def _climbed(
    start: Program,
    sizes: Mapping[Symbol, int],
    near: Callable[[Tasks], Iterator[Tasks]],
    make: Callable[[Tasks], Program],
    go_on: Callable[[], bool],
) -> list[Program]:
    """Return legal programs, the likely fastest first: from each that is better its neighbours."""
    found = {str(start.mapping): (_rank(start, sizes), start)}
    ahead = [str(start.mapping)]
    while ahead and go_on():
        best = min(ahead, key=lambda at: found[at][0])
        ahead.remove(best)
        for mapping in near(found[best][1].mapping):
            if str(mapping) in found or not go_on():
                continue
            try:  # also of the planner, which the model asks where `pipeline` is `auto`
                made = make(mapping)
                found[str(mapping)] = _rank(made, sizes), made
            except _REFUSALS:
                continue
            if found[str(mapping)][0] < min(found[at][0] for at in (best, *ahead)):
                ahead.append(str(mapping))
    return [made for _, made in sorted(found.values(), key=lambda pair: pair[0])]


def _rank(made: Program, sizes: Mapping[Symbol, int]) -> tuple[int, float]:
    """Return how many registers a thread lacks, and cycles: what spills is slow at any tile."""
    kernel: Any = made.emitted.kernel
    return registers_lacking(kernel, made.plan), cycles(made, sizes)


def cycles(made: Program, sizes: Mapping[Symbol, int]) -> float:
    """Return the cycles that the model says for a call, over all multiprocessors.

    Blocks are taken to be alike, as the one in the middle of the grid.
    """
    events = made.events
    grid = [evaluate(extent, sizes) for extent in events.grid]
    middle = {i.symbol: n // 2 for i, n in zip(events.indices, grid, strict=True)}
    kernel: Any = made.emitted.kernel
    iterations = _trips(events.body, {**sizes, **middle})
    one = tile_cycles(kernel, made.plan, iterations)
    return one * -(-prod(grid) // H200.multiprocessors)


def _trips(body: tuple[Event, ...], known: dict[Symbol, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in body:
        if isinstance(event, For):
            found[event.name] = count = max(0, evaluate(event.extent, known))
            found |= _trips(event.body, {**known, event.index.symbol: count // 2})
    return found


def _fields_near(mapping: Tasks) -> Iterator[Tasks]:
    """Return mappings that differ in a field of the block, in what warpgroups share, or in an
    extent by the least that wgmma takes of K.
    """
    rows, columns = lib.SPLITS
    other = {rows: columns, columns: rows}
    if split := [each for each in mapping.instances if each.variant in other]:
        turned = mapping
        for each in split:
            turned = turned.with_(each.name, variant=other[each.variant])
        yield turned
    for each in mapping.instances:
        if each.specialize:
            fields: dict[str, list[Any]] = {
                "persistent": [not each.persistent],
                "cluster": [3 - each.cluster if each.cluster < 3 else 1],
                "turns": [not each.turns],
                "tiles": [3 - each.tiles if each.tiles < 3 else 1],
                "schedule": ["fine" if each.schedule == "coarse" else "coarse"],
            }
            if each.persistent:
                fields["walk"] = [word for word in get_args(Walk) if word != each.walk]
                fields["group"] = sorted({0, each.group // 2, each.group * 2 or 8} - {each.group})
            for name, values in fields.items():
                yield from (mapping.with_(each.name, **{name: value}) for value in values)
        if not each.variant.inner and any(each.memory[n] == GLOBAL for n in each.variant.writes):
            yield mapping.with_(each.name, stage=None if each.stage else SHARED)
    yield from _depths_near(mapping)
    for name, value in _tunables(mapping).items():
        if value > 16:
            yield from (tuned(mapping, {name: near}) for near in (value - 16, value + 16))


def _depths_near(mapping: Tasks) -> Iterator[Tasks]:
    """Return mappings whose rings have a slot more or less: those that have as many, together."""
    for each in mapping.instances:
        if each.specialize and isinstance(each.pipeline, int):
            near: list[Any] = [n for n in (each.pipeline + 1, each.pipeline - 1) if n]
        elif each.specialize and (depths := each.depths):
            near = [
                {ring: n + step * (n == depth) for ring, n in depths.items()}
                for depth in dict.fromkeys(depths.values())
                for step in (1, -1)[:depth]
            ]
        else:
            continue
        yield from (mapping.with_(each.name, pipeline=depth) for depth in near)


def _tunables(mapping: Tasks) -> dict[str, int]:
    """Return the tunables that are numbers."""
    given = (each.tunables.items() for each in mapping.instances)
    return {name: value for each in given for name, value in each if isinstance(value, int)}


def _tunables_near(mapping: Tasks, only: Sequence[str]) -> Iterator[Tasks]:
    """Return mappings with one or two tunables changed, of those in `only`."""
    tunables = _tunables(mapping)
    single = [(name, value) for name in tunables if name in only for value in _near(tunables[name])]
    for name, value in single:
        yield tuned(mapping, {name: value})
    for (one, first), (other, second) in combinations(single, 2):
        if one != other:
            yield tuned(mapping, {one: first, other: second})


def _near(value: int) -> list[int]:
    """Return values of a tunable near another one: counts step by one, extents by 64 and halves."""
    if value <= 4:
        return [each for each in (value - 1, value + 1) if 1 <= each <= 4]
    near = {value // 2, value * 2, value - 64, value + 64}
    return sorted(each for each in near if each >= 8)


def tuned(mapping: Tasks, values: Mapping[str, Any]) -> Tasks:
    """Return a mapping with tunables changed, in all instances that have them."""
    for each in mapping.instances:
        mine = {name: values[name] for name in each.tunables if name in values}
        mapping = mapping.with_(each.name, **mine) if mine else mapping
    return mapping


def _chosen(mapping: Tasks, name: str) -> Program:
    """Return a program in which what is `auto` among tunables and memories has its likely best
    value, for tensors of 4096 in each dimension.

    Raises the refusal of the last value tried where none is legal.
    """
    names = tuple({name: None for each in mapping.instances for name in each.unsaid})
    places = [
        (each.name, n)
        for each in mapping.instances
        for n, memory in enumerate(each.mems)
        if isinstance(memory, Auto)
    ]
    # Of those that take as long the first: what lies in SHARED is loaded once.
    memories = [
        [m for m in (SHARED, REGISTER, NONE, GLOBAL) if mapping.machine.sees(mapping[at].level, m)]
        for at, _ in places
    ]
    refused: list[TawaError] = []
    legal: list[tuple[float, Program]] = []
    for values in product(_STARTS, repeat=len(names)):
        for given in product(*memories):
            made = tuned(mapping, dict(zip(names, values, strict=True)))
            for (at, n), memory in zip(places, given, strict=True):
                made = made.with_(at, mems=[*made[at].mems[:n], memory, *made[at].mems[n + 1 :]])
            try:
                tried = complete(made, name)
                sizes = dict.fromkeys(_sizes_in(tried.events), 4096)
                legal.append((cycles(tried, sizes), tried))
            except _REFUSALS as refusal:
                refused.append(refusal)
        if legal:
            break
    if not legal:
        raise refused[-1]
    best = min(legal, key=lambda each: each[0])[1]
    sizes = dict.fromkeys(_sizes_in(best.events), 4096)
    near, make = partial(_tunables_near, only=names), partial(complete, name=name)
    return _climbed(best, sizes, near, make, lambda: True)[0]


def _sizes_in(events: Events) -> set[Symbol]:
    """Return the extents that a program's grid and loops are made of."""
    extents = [*events.grid, *(loop.extent for loop in loops(events.body))]
    return {name for extent in extents for name in leaves(extent) if is_extent(name)}
