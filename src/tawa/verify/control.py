"""H1 and H2 at barriers: what roles give and what they wait for is the same, for every input."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from xdsl.dialects.builtin import DictionaryAttr, IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.verify.counts import Count, Counts
from tawa.verify.events import Event, Kind, Meeting, Reader
from tawa.verify.forwarded import Received, loops_around, role_of
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import RANK
from tawa.verify.values import Values

Events = dict[hopper.Role, dict[Event, Count]]


def check_control(kernel: tile.Kernel, values: Values, counts: Counts, reader: Reader) -> Events:
    """Count what each role does at each barrier. Raises Refused where roles do not agree."""
    roles = {role: reader.role(role) for role in all_of(kernel, hopper.Role)}
    for barriers in all_of(kernel, hopper.Barriers):
        if len(roles) > 1:  # one role has one control: what it does in which order, its run says
            _check_barrier(barriers, roles, counts)
        if barriers.result in reader.shared:
            _check_blocks(barriers, roles, counts)
    _check_meetings(roles, counts)
    for received in list(values.obligations.values()):
        _check_received(received, roles, counts, reader)
    return roles


def _check_barrier(barriers: hopper.Barriers, roles: Events, counts: Counts) -> None:
    """Phases complete as often as each role that waits asks for one; instances share the waits."""
    at = barriers.result
    zero = counts.constant(0)

    def all_in(kind: Kind) -> Count:
        return counts.sum((each.get((kind, at), zero), 1) for each in roles.values())

    given, needed = all_in("arrive"), barriers.arrivals.data
    waits = {role: each[("wait", at)] for role, each in roles.items() if ("wait", at) in each}
    shared = counts.sum((each, 1) for each in waits.values())
    whole = all(counts.same(given, _times(counts, each, needed)) for each in waits.values())
    if not whole and not counts.same(given, _times(counts, shared, needed)):
        label = barriers.label.data
        asked = "; ".join(
            f"{role.label.data} waits for {counts.text(each)} phases"
            for role, each in waits.items()
        )
        by = "; ".join(
            f"{role.label.data} gives {counts.text(each[('arrive', at)])} arrivals"
            for role, each in roles.items()
            if ("arrive", at) in each
        )
        raise Refused(
            rule("one control"),
            f"the roles at {label} are not shown to agree for every input: {asked}; "
            f"{by or 'nobody arrives'}; a phase takes {needed}",
            _first_use(at),
        )


def _check_blocks(barriers: hopper.Barriers, roles: Events, counts: Counts) -> None:
    """What blocks of a cluster do for one another is no function of their rank in it."""
    for role, each in roles.items():
        for (_, at), count in each.items():
            if at is barriers.result and counts.count_depends(count, RANK):
                raise Refused(
                    rule("one control"),
                    f"blocks of a cluster are not shown to agree: {role.label.data} comes "
                    f"{counts.text(count)} times to {barriers.label.data}",
                    _first_use(barriers.result),
                )


def _times(counts: Counts, count: Count, times: int) -> Count:
    return counts.sum([(count, times)])


def _check_meetings(roles: Events, counts: Counts) -> None:
    met: dict[Meeting, dict[hopper.Role, Count]] = {}
    for role, each in roles.items():
        for (kind, what), count in each.items():
            if kind == "meet" and isinstance(what, Meeting):
                met.setdefault(what, {})[role] = count
    for what, by in met.items():
        if what.kind == "take":  # of a turn, as often as it is passed on
            passes = met.get(replace(what, kind="pass"), {})
            sides = [(count, passes.get(role, counts.constant(0))) for role, count in by.items()]
        elif what.kind in ("open", "close", "pass"):
            continue
        else:
            sides = list(pairwise(by.values()))
        if not all(counts.same(one, other) for one, other in sides):
            told = "; ".join(f"{role.label.data} {counts.text(each)}" for role, each in by.items())
            raise Refused(rule("meetings"), f"{what.name} is met unlike often: {told}")


def _check_received(received: Received, roles: Events, counts: Counts, reader: Reader) -> None:
    """What a role takes from a ring was put in the same iteration: the barrier that pairs the two
    completes once in each iteration of the loops around them, in both roles alike.
    """
    one = counts.constant(1)
    sides: tuple[tuple[Operation, Kind], ...] = (
        (received.store, "arrive"),
        (received.load, "wait"),
    )
    around = [[reader.course(loop) for loop in loops_around(each)] for each, _ in sides]
    if around[0] != around[1]:
        raise Refused(
            rule("received"),
            "a number is taken from a ring in a loop that is not the one in which it is put",
            received.load,
        )
    for operation, kind in sides:
        loops = loops_around(operation)
        role = role_of(operation)
        assert isinstance(role, hopper.Role)
        count = roles[role].get((kind, received.filled))
        expected = one
        for loop in loops:
            expected = reader.around(loop, expected)
        if count is None or not counts.same(count, expected):
            raise Refused(
                rule("received"),
                "a number is taken from a ring that is not filled once in each iteration",
                received.load,
            )


def cluster_of(kernel: tile.Kernel) -> int:
    """Return how many blocks of a launch make a cluster."""
    match kernel.launch:
        case DictionaryAttr(data=launch):
            match launch.get("cluster"):
                case IntAttr(data=blocks):
                    return blocks
                case _:
                    return 1
        case _:
            return 1


def _first_use(value: SSAValue) -> Operation | None:
    return next((use.operation for use in value.uses if hasattr(use.operation, "slot")), None)


__all__ = ["Events", "check_control", "cluster_of"]
