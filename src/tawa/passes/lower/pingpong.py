"""Ping-pong: the warpgroups of a role take turns at the tensor cores.

Purpose: while one warpgroup's products run, the others do their other work (a softmax), instead of
all waiting for products at the same time and then all leaving the tensor cores idle.
Before -> after, in a loop whose products stand together:
    scf.for ..                               hopper.turn "open"
      %s = hopper.wgmma %q, %k, ..           scf.for ..
      %o = hopper.wgmma %p, %v, ..     ->      hopper.turn "take"
      ... other work on %s                     %s = hopper.wgmma ..; %o = hopper.wgmma ..
                                               hopper.turn "pass"
                                               ... other work on %s
                                             hopper.turn "close"
Where the most work of an iteration stands between two products, a turn goes round the back edge: it
is taken before the loop, passed before that work, taken again after it, and passed after the loop.
So takes and passes alternate on every path, for every trip count from 0. Products outside loops get
turns of their own, one for each run of them without other work in between, and so do those of a
loop whose turn would wait for the others. Instances of a role, which have their turns from
`tawa.passes.distribute`, meet at named barriers likewise. Requires: waits placed, scalars the same
in all warpgroups of a role (so all take as many turns). Ensures: every wgmma of a role that takes
turns is issued in a turn. Declines when: the plan is cooperative. Raises `PlanError` when no loop
of a role gains by turns.

What a warpgroup may do while it holds the turn: nothing that waits for those who want it.

Warpgroups that take turns run one program. While one of them holds a turn, the others come as far
as its take, and no further. So in a turn a warpgroup must neither meet them at a barrier nor wait
for a slot that is loaded only when they have given one back: of a ring of D slots they keep those
they hold at the take, and the turn may wait for as many as are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.stages import Iteration, iteration, takes_turns
from tawa.errors import PlanError
from tawa.ir import aref, hopper
from tawa.ir.walk import all_of, has, walk
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import Emitter, erase


def take_turns(lowering: Lowering) -> None:
    """Let the warpgroups of each role with products take turns, where the plan says so."""
    if lowering.plan.arrangement != "pingpong":
        return
    if any(role.instances > 1 for role in lowering.plan.roles):
        _between_roles(lowering)
        return
    roles = [role for role in lowering.roles if _gains(role)]
    if not roles:
        raise PlanError(
            "arrangement='pingpong'",
            why="no role of several warpgroups has a loop of wgmma products and other work",
            remedy="leave arrangement out",
        )
    for role in roles:
        groups = role.warps.data // 4
        turns = _Turns(lowering.take_barriers(groups), groups, list(lowering.rings.values()))
        turns.block(role.body.block)
        first = next(op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters))
        Emitter.before(first).put(turns.turn("open"))
        Emitter.at_end(role.body.block).put(turns.turn("close"))


def _between_roles(lowering: Lowering) -> None:
    """Turns between instances: each has its own barrier, where it meets the one before it."""
    count = max(role.instances for role in lowering.plan.roles)
    first = lowering.take_barriers(count)
    for role in lowering.roles:
        for operation in all_of(role, aref.Turn):
            assert operation.instance is not None, "roles are formed"
            index = operation.instance.data
            takes = operation.kind.data == "take"
            place = index if takes else (index + 1) % count
            meet = hopper.NamedBarrier.make(
                id=first + place,
                scope="roles",
                kind="sync" if takes else "arrive",
                threads=2 * 32 * role.warps.data,
            )
            Emitter.before(operation).put(meet)
            if not takes:
                _hurry(operation)
            erase(operation)


def _hurry(turn: aref.Turn) -> None:
    """Pass the turn as soon as the tile's products are issued, not when they are complete.

    Its condition is computed there too, before other scalars of the tile: the next instance waits.
    """
    branch = turn.parent_op()
    assert isinstance(branch, scf.IfOp)
    place = branch
    while (earlier := place.prev_op) is not None:
        if has(earlier, hopper.Wgmma, hopper.Wait, aref.Turn):
            break
        place = earlier
    if place is branch:
        return
    needed = {branch.cond.owner}
    moved: list[Operation] = [branch]
    before = branch.prev_op
    while before is not None and before is not place.prev_op:
        if before in needed:
            moved.append(before)
            needed.update(operand.owner for operand in before.operands)
        before = before.prev_op
    first = next((op for op in _from(place) if op not in moved), None)
    if first is None:
        return
    for operation in reversed(moved):
        operation.detach()
        Emitter.before(first).put(operation)


def _from(operation: Operation) -> Iterator[Operation]:
    """Yield an operation and those after it."""
    following: Operation | None = operation
    while following is not None:
        yield following
        following = following.next_op


def _gains(role: hopper.Role) -> bool:
    loops = all_of(role, scf.ForOp)
    return role.warps.data > 4 and any(takes_turns(loop) for loop in loops)


class _Turns:
    """Places the turns of one role, of `groups` warpgroups from named barrier `first` on."""

    def __init__(self, first: int, groups: int, rings: list[Ring]) -> None:
        self._first = first
        self._groups = groups
        self._rings = rings

    def turn(self, kind: str) -> hopper.Turn:
        """Return a new operation."""
        return hopper.Turn.make(kind=kind, id=self._first, groups=self._groups)

    def block(self, block: Block) -> None:
        """Place turns in a block and the blocks in it."""
        for operation in list(block.ops):
            found = takes_turns(operation) if isinstance(operation, scf.ForOp) else None
            if found is not None and self._loop(operation, found):
                continue
            for region in operation.regions:
                for inner in region.blocks:
                    self.block(inner)
        if (found := iteration(block)) is not None:
            self._straight(found)

    def _loop(self, loop: Operation, found: Iteration) -> bool:
        """Leave the stretch of an iteration with the most work out of the turn; say whether one
        can.
        """
        products, last = found.products, found.widest
        if last == len(products) - 1:
            if not self._spans(products[0], products[-1]):
                return False
            self._take(products[0])
            self._pass(products[-1])
            return True
        body = list(loop.regions[0].block.ops)
        again = products[last + 1]
        turn = body[: body.index(products[last])] + body[body.index(again) :]
        if not can_hold(turn, again, self._rings):
            return False
        Emitter.before(loop).put(self.turn("take"))
        self._pass(products[last])
        self._take(again)
        Emitter.after(loop).put(self.turn("pass"))
        return True

    def _straight(self, found: Iteration) -> None:
        """Give each run of products a turn."""
        products, first = found.products, 0
        for index, product in enumerate(products):
            after = index + 1
            if index == first:
                self._take(product)
            if after == len(products) or self._parted(found, first, after):
                self._pass(product)
                first = after

    def _parted(self, found: Iteration, first: int, index: int) -> bool:
        """Tell whether a turn that began at product `first` must end before product `index`: work,
        or another turn, stands before it, or it could not be held so long.
        """
        products = found.products
        if found.work[index - 1] or not self._spans(products[first], products[index]):
            return True
        return any(
            isinstance(inner, (hopper.Wgmma, hopper.Turn))
            for operation in between(products[index - 1], products[index])
            for inner in walk(operation)
        )

    def _spans(self, first: Operation, last: Operation) -> bool:
        return can_hold(list(between(first, last)), first, self._rings)

    def _take(self, product: Operation) -> None:
        """Take the turn before a product, and before the fence that orders its registers."""
        place = product
        while isinstance(place.prev_op, hopper.WgmmaFence):
            place = place.prev_op
        Emitter.before(place).put(self.turn("take"))

    def _pass(self, product: Operation) -> None:
        """Pass the turn on as soon as a product has been committed."""
        place = product
        while not isinstance(place, hopper.WgmmaCommit):
            assert place.next_op is not None, "a product is committed in its block"
            place = place.next_op
        Emitter.after(place).put(self.turn("pass"))


# --- what a turn may span -------------------------------------------------------------------------


def can_hold(turn: list[Operation], take: Operation, rings: Iterable[Ring]) -> bool:
    """Tell whether a turn may span the operations `turn`; the warpgroups that want it stand before
    `take`, the first product of one.
    """
    if any(_meets(inner) for operation in turn for inner in walk(operation)):
        return False
    for ring in rings:
        filled, freed = ring.filled.result, ring.freed.result
        for waited, given in ((filled, freed), (freed, filled)):
            more = sum(_waits(operation, waited) for operation in turn)
            if more and more + _held(take, waited, given) > ring.depth:
                return False
    return True


def between(first: Operation, last: Operation) -> Iterator[Operation]:
    """Yield the operations of a block after `first` and before `last`."""
    following = first.next_op
    while following is not None and following is not last:
        yield following
        following = following.next_op


def _meets(operation: Operation) -> bool:
    return isinstance(operation, hopper.NamedBarrier) and operation.scope.data == "role"


def _waits(operation: Operation, barriers: SSAValue) -> float:
    """Return for how many slots an operation waits; there is no end to those of a loop."""
    waits = [
        inner
        for inner in walk(operation)
        if isinstance(inner, hopper.Wait) and inner.barriers is barriers
    ]
    loops = isinstance(operation, (scf.ForOp, scf.WhileOp))
    return float("inf") if waits and loops else len(waits)


def _held(take: Operation, waited: SSAValue, given: SSAValue) -> int:
    """Return how many slots a warpgroup has waited for, and not given back, before `take`.

    What the body of a loop gives back before it has waited for it was held when an iteration began.
    """
    held, place = 0, take
    while not isinstance(place, hopper.Role):
        block, parent = place.parent, place.parent_op()
        assert block is not None, "a product stands in a role"
        assert parent is not None, "a product stands in a role"
        counts = _running(block, waited, given)
        before = counts[block.get_operation_index(place)]
        started = -min(counts) if isinstance(parent, (scf.ForOp, scf.WhileOp)) else 0
        held, place = held + before + started, parent
    return held


def _running(block: Block, waited: SSAValue, given: SSAValue) -> list[int]:
    """Return what the operations of a block before each, and at its end, leave held."""
    counts = [0]
    for operation in block.ops:
        counts.append(counts[-1] + _change(operation, waited, given))
    return counts


def _change(operation: Operation, waited: SSAValue, given: SSAValue) -> int:
    """Return by how many slots an operation changes what is held; the iterations of a loop by
    none.
    """
    match operation:
        case hopper.Wait() if operation.barriers is waited:
            return 1
        case hopper.Arrive() if operation.barriers is given:
            return -1
        case scf.IfOp():
            blocks = [region.block for region in operation.regions if region.blocks]
            changes = [_running(block, waited, given)[-1] for block in blocks]
            return max(changes, key=abs)
        case _:
            return 0
