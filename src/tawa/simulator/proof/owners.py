"""What one thread alone has: the result of an atomic, as a rule of the text.

One thread makes a scalar atomic, and each element of a tile has one owner. Where more threads go on
with what it gave, they read it from shared memory that this thread has written.
"""

from __future__ import annotations

from tawa.ir import hopper, tile
from tawa.layouts.convert import is_replicated
from tawa.simulator.proof.accesses import layout_of
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.rules import Violation

_ATOMICS = (tile.Atomic, tile.CompareExchange, hopper.NextProgram)


def check_owners(census: Census) -> None:
    """Raise Violation where threads use the result of an atomic that another one made."""
    alone = {
        inner for only in census.of(hopper.OneThread) for inner in census.inside(only.body.block)
    }
    for operation in census.of(*_ATOMICS):
        if operation.result.first_use is None or operation in alone:
            continue
        if not _is_shared(operation):
            sentence = (
                f"all threads of {role_of(operation).label.data} use what {operation.name} gave "
                "to one of them."
            )
            raise Violation("one owner", sentence, operation)


def _is_shared(operation: tile.Atomic | tile.CompareExchange | hopper.NextProgram) -> bool:
    """Tell whether only those who own an element of a result use it."""
    layout = layout_of(operation.result)
    if layout is None:
        return False
    if not is_replicated(layout, role_of(operation).warps.data):
        return True
    users = [use.operation for use in operation.result.uses]
    return all(isinstance(user, hopper.SharedStore) and bool(user.owners) for user in users)
