"""Stores through a slot: which loaded tile leaves its place to a tile that is stored.

A tile that is loaded once before the products and read for the last time before the result is
stored keeps shared memory that the store could go through. Its slot is then freed only when the
copy has read it, so that the next such tile is loaded later: worth it where the store would else
have no stage at all, or where what it leaves free holds longer tiles.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from xdsl.ir import Operation

from tawa.analysis.roles import is_host_made
from tawa.analysis.statements import name_of, views_of
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import walk
from tawa.plan.plan import Plan
from tawa.plan.problem import Problem

_LEAST_BITS = 16  # narrower tiles lie in panels as wide as the products' runs of K


def slots_of_stores(
    statements: Mapping[str, Operation],
    rings: Sequence[Sequence[Operation]],
    transposed: Container[Operation] = (),
) -> dict[str, str]:
    """Return, by store, the load whose slot it can go through; a slot serves one store.

    `rings` are the loads of each ring, `transposed` those whose tiles are transposed on the way.
    """
    found: dict[str, str] = {}
    for name, operation in statements.items():
        if not isinstance(operation, tile.DescStore) or not is_host_made(operation.desc):
            continue
        for load, *others in rings:
            taken = others or load in transposed or name_of(load) in found.values()
            if not taken and isinstance(load, tile.DescLoad) and _gives_way(load, operation):
                found[name] = name_of(load)
                break
    return found


def slots_of(problem: Problem) -> dict[str, str]:
    """Return the same for rings as the planner groups the loads."""
    rings = [each.loads for each in problem.partition.payloads]
    return slots_of_stores(problem.statements, rings, problem.transposed)


def _gives_way(load: tile.DescLoad, store: tile.DescStore) -> bool:
    """Tell whether the tile of `load` has the place of a stored one, and is done with before it."""
    kind, block = store.desc.type, load.parent
    alike = (
        tuple(kind.block_shape) == shape_of(load.result.type)
        and kind.element == element_type(load.result.type)
        and bit_width(kind.element) >= _LEAST_BITS
    )
    if not alike or block is None or store.parent is not block:
        return False
    users = [use.operation for view in views_of(load.result) for use in view.uses]
    places = [block.find_ancestor_op_in_block(user) for user in users]
    last = block.get_operation_index(store)
    if block.get_operation_index(load) > last:
        return False
    return all(at is not None and block.get_operation_index(at) < last for at in places)


def check_staged(problem: Problem, plan: Plan) -> None:
    """Raise PlanError where a plan sends a store through a slot that does not suit it."""
    # A ring of several loops' tiles is that of none of them alone.
    rings = [
        [problem.statements[name] for names in (ring.payload, *ring.also) for name in names]
        for ring in plan.arefs
        if all(name in problem.statements for name in ring.payload)
    ]
    able = slots_of_stores(problem.statements, rings, problem.transposed)
    for store in plan.stores:
        if store.stage and able.get(store.store) != store.stage:
            raise _unsuited(f"store {store.store} stage={store.stage}", able)
        if store.stage:
            refuse_clustered(f"store {store.store} stage={store.stage}", plan.cluster)


def refuse_clustered(what: str, cluster: int) -> None:
    """Raise PlanError where blocks of a cluster would store through slots."""
    if cluster > 1:
        raise PlanError(
            f"{what}, cluster={cluster}",
            why="blocks of a cluster walk past the last tile: a condition stands around a store, "
            "and a slot that it goes through is got outside of it",
            remedy="leave one of the two out",
        )


def refuse_unstaged(problem: Problem) -> None:
    """Raise PlanError where ``store="slot"`` is pinned and no store finds a slot."""
    if problem.pins.store == "slot" and not (able := slots_of(problem)):
        raise _unsuited("store='slot'", able)


def _unsuited(what: str, able: dict[str, str]) -> PlanError:
    pairs = "; ".join(f"{store} through {load}" for store, load in able.items())
    return PlanError(
        what,
        why="a store goes through the slot of a tile of its shape and type, loaded alone by TMA "
        f"in the same block and read for the last time before it: {pairs or 'there is none'}",
        remedy="leave it out: the store then has a stage of its own where there is room",
    )


def is_staged(operation: Operation, plan: Plan, ring: str) -> bool:
    """Tell whether `operation` is, or holds, a store through a slot of the ring labelled `ring`."""
    staged = {store.store for store in plan.stores if store.stage and store.stage == ring}
    return bool(staged) and any(
        isinstance(inner, tile.DescStore) and name_of(inner) in staged for inner in walk(operation)
    )
