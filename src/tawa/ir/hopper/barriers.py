"""Waiting and announcing: mbarriers, named barriers, turns."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def

from tawa.ir.operation import TawaOperation
from tawa.ir.types import BarriersType, i32


@irdl_op_definition
class Wait(TawaOperation):
    """Spin until the phase of parity `phase` (i32, 0 or 1) of barrier `slot` has completed.

    Executed by every thread of the role (or by the one thread): mbarrier.try_wait.parity.
    """

    name = "hopper.wait"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    phase = operand_def(i32)
    assembly_format = "$barriers `[` $slot `]` `,` $phase attr-dict `:` type(operands)"


@irdl_op_definition
class Arrive(TawaOperation):
    """Arrive once for each thread chosen by `by` at barrier `slot`; "warp" converges first.

    Without `cluster` at this block's barrier; with `cluster` = n each of n elected threads of the
    group (lane i for block i) arrives at block i's barrier (mapa + mbarrier.arrive, no scope
    qualifier: see hopper.md, an explicit release.cluster would fence the whole GPU).
    """

    name = "hopper.arrive"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    by = attr_def(StringAttr)
    cluster = opt_attr_def(IntAttr)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"


@irdl_op_definition
class Expect(TawaOperation):
    """One arrival that adds `bytes` to what the phase waits for (mbarrier.arrive.expect_tx)."""

    name = "hopper.expect"
    barriers = operand_def(BarriersType)
    slot = operand_def(i32)
    bytes = attr_def(IntAttr)
    assembly_format = "$barriers `[` $slot `]` attr-dict `:` type(operands)"


@irdl_op_definition
class NamedBarrier(TawaOperation):
    """Threads meet at a hardware barrier ("sync"), or only announce themselves ("arrive").

    `scope` "warpgroup": each warpgroup of the role has its own barrier, `id` + its index in the
    role, of 128 threads. "role": one barrier `id` of all the role's threads. "roles": barrier `id`
    shared with other roles, `threads` in all (ping-pong).
    """

    name = "hopper.named_barrier"
    id = attr_def(IntAttr)
    scope = attr_def(StringAttr)
    kind = attr_def(StringAttr)
    threads = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"


@irdl_op_definition
class Turn(TawaOperation):
    """The warpgroups of a role take turns, in the order of their index: one holds it at a time.

    Warpgroup w meets the one before it at named barrier `id` + w, both counted: 256 threads. "take"
    waits there (bar.sync), "pass" announces itself to the next (bar.arrive at `id` + (w + 1) mod
    `groups`). "open" stands once before the first take: the last warpgroup announces itself, so
    that the first may begin. "close" stands once after the last pass: the first warpgroup meets
    what the last one has passed, so that the barriers are left as they were found. Every warpgroup
    takes and passes in turn, and all as often. Orders no accesses that other operations must rely
    on.
    """

    name = "hopper.turn"
    kind = attr_def(StringAttr)
    id = attr_def(IntAttr)
    groups = attr_def(IntAttr)
    assembly_format = "$kind attr-dict"
