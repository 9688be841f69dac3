"""The order of the program where stores are asynchronous.

Purpose: a statement that may touch what an earlier TMA store wrote sees it, or comes after it.
Before -> after:
    tile.desc_store %d[..], %v              tile.desc_store %d[..], %v
    %x = tile.desc_load %d[..]       ->     hopper.bulk_wait {read = false}; hopper.named_barrier
                                            %x = tile.desc_load %d[..]
Bulk stores are complete for the thread that committed them by `bulk_wait`, and for the role's other
threads by its barrier. Those of a loop whose iterations move on by a tile need not wait for one
another. A TMA load after a store by threads would need a fence between the proxies for global
memory; such a load goes through pointers instead, and so does a TMA store after one by threads that
may write the same elements. Requires: descriptor accesses that are no TMA accesses are expanded.
Ensures: the waits, done by "all"; `stores` names the threads when it knows them. A release
publishes bulk stores only once they are complete: it waits for all of them. What threads write and
read themselves is ordered later (`separate`). Inline PTX that goes to memory counts as a store
through the pointers that it is given. Declines when: `TMA for a@12`: a store through pointers, or
another program before an acquire, may have written what it loads; a store through pointers may have
written where it stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from xdsl.ir import Operation

from tawa.analysis.memory import box_of, disjoint, disjoint_in_other_iterations, reached, writers
from tawa.analysis.statements import accessed, enclosing_loops, name_of, orders_others, releases
from tawa.ir import hopper, tile
from tawa.ir.walk import walk
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.pointers import expand_load, expand_write

_BULK = (tile.DescStore, tile.DescAtomic)
_READS = (tile.Load, tile.DescLoad)


def order_accesses(lowering: Lowering, role: hopper.Role) -> None:
    """Insert the waits that keep the program's order in `role`."""
    order = {operation: index for index, operation in enumerate(walk(role))}
    written = set(writers(role))
    accesses = [op for op in order if op in written or isinstance(op, _READS)]
    bulk = [op for op in accesses if isinstance(op, _BULK)]
    plain = [op for op in accesses if op in written and op not in bulk]
    settled: list[Operation] = []
    for access in accesses:
        before = _Before(lowering, role, order, access)
        if isinstance(access, tile.DescLoad) and (reason := before.why_by_threads(plain, bulk)):
            lowering.note(f"TMA for {name_of(access)}", reason)
            expand_load(access)
            continue
        if isinstance(access, _BULK) and any(map(before.overwrites, plain)):
            lowering.note(f"TMA for {name_of(access)}", "a store through pointers may precede it")
            made = expand_write(access)
            lowering.direct.add(made)
            bulk.remove(access)
            plain.append(made)
            order[made] = order[access]
            before = _Before(lowering, role, order, made)
            access = made
        now = any(map(before.meets_in_iteration, bulk))
        # What earlier iterations stored is waited for once an iteration: by the first that may
        # touch it.
        waited = any(each.parent is access.parent for each in settled)
        released = releases(access) and any(map(before.precedes, bulk))
        if now or released or (not waited and any(map(before.meets_earlier_iteration, bulk))):
            emitter = Emitter.before(access)
            emitter.put(bulk_wait("all", read=False))
            emitter.put(lowering.role_barrier(role))
            settled.append(access)


def bulk_wait(by: str, *, read: bool, pending: int = 0) -> hopper.BulkWait:
    """Return a wait of the threads `by` for all but the last `pending` groups of bulk stores."""
    return hopper.BulkWait.make(pending=pending, read=read, by=by)


class _Before:
    """What may come before one access and touch the same memory."""

    def __init__(
        self, lowering: Lowering, role: hopper.Role, order: dict[Operation, int], access: Operation
    ) -> None:
        self._lowering = lowering
        self._role = role
        self._order = order
        self._access = access

    def why_by_threads(self, plain: Sequence[Operation], bulk: Sequence[Operation]) -> str:
        """Return why a load may not be done by TMA, or nothing.

        What an acquire made visible to the threads is not yet visible to TMA, which would need
        a fence between the proxies for global memory.
        """
        if any(map(self.meets, plain)):
            return "a store through pointers may precede it"
        acquired = any(orders_others(op) and self.precedes(op) for op in self._order)
        if acquired and any(map(self._same_memory, (*plain, *bulk))):
            return "other programs may have written it, as an atomic tells"
        return ""

    def _same_memory(self, store: Operation) -> bool:
        mine, theirs = reached(self._access), reached(store)
        return mine is None or theirs is None or bool(mine & theirs)

    def overwrites(self, store: Operation) -> bool:
        """Tell whether a `store` before the access goes to the same memory, perhaps to the same
        elements.
        """
        return self._same_memory(store) and self.meets(store)

    def precedes(self, store: Operation) -> bool:
        """Tell whether `store` may be done before the access."""
        return self._order[store] < self._order[self._access] or bool(self._loops(store))

    def meets(self, store: Operation) -> bool:
        """Tell whether `store` may precede the access and touch the same memory."""
        return self.meets_in_iteration(store) or self.meets_earlier_iteration(store)

    def meets_in_iteration(self, store: Operation) -> bool:
        """Tell whether a store before the access, in the same iteration of all loops, meets it."""
        earlier = self._order[store] < self._order[self._access]
        return earlier and self._may_meet(store, ())

    def meets_earlier_iteration(self, store: Operation) -> bool:
        """Tell whether a store of an earlier iteration of some loop around both meets the
        access.
        """
        loops = self._loops(store)
        return bool(loops) and self._may_meet(store, loops)

    def _loops(self, store: Operation) -> list[Operation]:
        """Return the loops around both.

        The loop over the programs of a persistent kernel is none: programs have no order.
        """
        loops = [loop for loop in enclosing_loops(store) if loop.is_ancestor(self._access)]
        if self._lowering.plan.persistent:
            return [loop for loop in loops if loop.parent_op() is not self._role]
        return loops

    def _may_meet(self, store: Operation, loops: Sequence[Operation]) -> bool:
        """Tell whether both may touch one element, in different iterations of `loops`, if there are
        any.

        Different arguments are different memory only where the plan guards it.
        """
        mine, theirs = reached(self._access), reached(store)
        if mine is None or theirs is None:
            return True
        if mine & theirs:
            return not self._disjoint(store, loops)
        lowering = self._lowering
        return not lowering.plan.keeps_apart(lowering.kernel.argument_names, product(mine, theirs))

    def _disjoint(self, store: Operation, loops: Sequence[Operation]) -> bool:
        first, second = box_of(store), box_of(self._access)
        if first is None or second is None or accessed(store) is not accessed(self._access):
            return False
        if loops:
            return disjoint_in_other_iterations(first, second, loops)
        return disjoint(first, second, ())
