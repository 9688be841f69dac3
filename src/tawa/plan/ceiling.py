"""A plan under a ceiling: what of shared memory is given up, in order, until a block takes no more.

Stores leave in parts, then through the slots of tiles like theirs that were read before; then equal
tiles of the same loops turn through one ring of fewer slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from xdsl.ir import Operation

from tawa.analysis.statements import enclosing_loops, name_statements
from tawa.ir import tile
from tawa.plan.plan import ArefPlan, Plan, StorePlan
from tawa.plan.resources import Buffer, buffers, total
from tawa.plan.rings import divisible
from tawa.plan.staging import slots_of_stores

_Statements = Mapping[str, Operation]


def within(kernel: tile.Kernel, plan: Plan, ceiling: int) -> tuple[Plan, list[Buffer]]:
    """Return a plan that takes at most `ceiling` bytes of shared memory, with its buffers: of those
    that carry a given one out, the first that does, or else the one that takes least.
    """
    statements = name_statements(kernel)
    found = plan, buffers(plan, statements)
    for smaller in (_in_parts, _through_slots, _through_one_ring):
        for made in smaller(found[0], statements):
            needed = buffers(made, statements)
            if total(needed) <= ceiling:
                return made, needed
            found = min(found, (made, needed), key=lambda each: total(each[1]))
    return found


def _staged(plan: Plan) -> list[StorePlan]:
    return [store for store in plan.stores if store.via == "tma" and not store.stage]


def _in_parts(plan: Plan, statements: _Statements) -> Iterator[Plan]:
    """Give plans whose stores leave in parts, those in which the fewest parts wait for the place of
    another one first, and where some wait, the smallest. Beside the products of another tile they
    may wait: the most parts through the fewest places come first.
    """

    def waiting(choice: tuple[int, int]) -> tuple[int, int]:
        parts, places = choice
        if beside:
            return places, -parts
        return parts - places, -parts if parts > places else parts

    beside = any(role.instances > 1 for role in plan.roles)
    across = plan.split == "columns"
    shares = max((role.warps // 4 for role in plan.consumers), default=1) if across else 1
    choices = [(parts, places) for parts in range(1, 5) for places in range(1, parts + 1)]
    staged = _staged(plan)
    for parts, places in sorted(choices, key=waiting):
        if all(divisible(statements[store.store], parts, shares) for store in staged):
            cut = {store: replace(store, parts=parts, places=places) for store in staged}
            yield replace(plan, stores=tuple(cut.get(store, store) for store in plan.stores))


def _through_slots(plan: Plan, statements: _Statements) -> Iterator[Plan]:
    """Give the plan whose stores go through slots, where any can."""
    rings = [[statements[name] for name in _names(ring)] for ring in _of_loads(plan, statements)]
    # Blocks of a cluster store under a condition: theirs may be no tile.
    may = plan.specialized and plan.cluster == 1
    able = slots_of_stores(statements, rings) if may else {}
    lent = {
        store: replace(store, parts=1, places=1, stage=able[store.store])
        for store in _staged(plan)
        if store.store in able
    }
    if lent:
        yield replace(plan, stores=tuple(lent.get(store, store) for store in plan.stores))


def _through_one_ring(plan: Plan, statements: _Statements) -> Iterator[Plan]:
    """Give plans in which rings of equal tiles of the same loops are one, of fewer and fewer slots:
    as many at least as an iteration fills.
    """

    def loop(name: str) -> Operation | None:
        return next(iter(enclosing_loops(statements[name])), None)

    alike: dict[object, list[ArefPlan]] = {}
    for ring in _of_loads(plan, statements):
        around = frozenset(map(loop, _names(ring)))
        if plan.specialized and None not in around:  # what is loaded outside of a loop stays in it
            kinds = tuple(statements[name].results[0].type for name in ring.payload)
            alike.setdefault((kinds, around), []).append(ring)
    for rings in (group for group in alike.values() if len(group) > 1):
        first, *others = rings
        payload, *also = (each for ring in rings for each in (ring.payload, *ring.also))
        filled = Counter(loop(each[0]) for each in (payload, *also))
        least, before = max(filled.values()), plan
        for depth in reversed(range(least, sum(ring.depth for ring in rings))):
            one = replace(first, payload=payload, also=tuple(also), depth=depth)
            flying = max(1, depth // least - 1)
            plan = replace(
                before,
                arefs=tuple(
                    one if ring is first else ring for ring in before.arefs if ring not in others
                ),
                loops=tuple(
                    replace(each, mma_depth=min(each.mma_depth, flying))
                    if statements[each.loop] in filled
                    else each
                    for each in before.loops
                ),
            )
            yield plan


def _of_loads(plan: Plan, statements: _Statements) -> list[ArefPlan]:
    return [ring for ring in plan.arefs if statements.keys() >= {*_names(ring)}]


def _names(ring: ArefPlan) -> list[str]:
    return [name for payload in (ring.payload, *ring.also) for name in payload]
