"""A plan as text that a user can read, edit and give back: `parse_plan(print_plan(p)) == p`.

One statement a line, names as they stand in the kernel, comments after ``#``::

    plan specialized warps=12 arrangement=cooperative persistent=yes group=8 cluster=1
    role load warps=4 registers=40
    role mma warps=8 registers=232
    aref a@14 + b@15 depth=3
    loop for k@13 schedule=fine mma_depth=2
    operand acc@16 a=registers
    store c_desc@18 via=tma parts=1 eviction=first
    guard a_desc, c_desc
    declined num_stages=4: depth 3 is what shared memory allows
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tawa.errors import PlanError
from tawa.plan.plan import ArefPlan, Declined, LoopPlan, OperandPlan, Plan, RolePlan, StorePlan


def print_plan(plan: Plan) -> str:
    """Return the text of a plan."""
    return str(plan)


_OPTION = re.compile(r"\s+([a-z_\d]+)=([^\s=]+)$")


def parse_plan(text: str) -> Plan:
    """Read a plan back; raises PlanError with the line that is not understood."""
    plan: Plan | None = None
    for number, line in enumerate(text.splitlines(), 1):
        # A declined reason is free text; elsewhere a comment may follow.
        content = (
            line if line.startswith("declined ") else re.sub(r"(^|\s)# .*$", "", line).rstrip()
        )
        if not content:
            continue
        keyword, _, rest = content.partition(" ")
        try:
            plan = _read(plan, keyword, rest)
        except (KeyError, ValueError) as error:
            raise PlanError(
                f"line {number} of the plan is not understood: {line.strip()!r}",
                why=str(error),
                remedy="print a plan to see the form of each line",
            ) from None
    if plan is None:
        raise PlanError("the plan is empty", why="its first line begins with 'plan'")
    return plan


def _read(plan: Plan | None, keyword: str, rest: str) -> Plan:
    if keyword == "plan":
        return _read_plan(rest)
    if plan is None:
        raise ValueError("the first line begins with 'plan'")
    return _READERS[keyword](plan, rest)


def _split(rest: str, allowed: dict[str, Callable[[str], Any]]) -> tuple[str, dict[str, Any]]:
    """Take the options ``key=value`` from the end of a line; the rest is the name."""
    options: dict[str, Any] = {}
    while (found := _OPTION.search(" " + rest)) is not None:
        key, value = found.groups()
        if key not in allowed:
            break
        options[key] = allowed[key](value)
        rest = (" " + rest)[: found.start()].strip()
    return rest, options


def _one_of(*words: str) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word not in words:
            raise ValueError(f"{word!r} is none of {', '.join(words)}")
        return word

    return read


def _yes(word: str) -> bool:
    return _one_of("yes", "no")(word) == "yes"


def _read_plan(rest: str) -> Plan:
    kind, options = _split(
        rest,
        {
            "warps": int,
            "arrangement": _one_of("cooperative", "pingpong"),
            "persistent": _yes,
            "group": int,
            "cluster": int,
            "grouped": _one_of("rows", "columns"),
            "walk": _one_of("forward", "serpentine", "dynamic"),
            "load_eviction": _one_of("last"),
            "blocks": int,
            "sharing": _yes,
            "split": _one_of("rows", "columns"),
        },
    )
    _one_of("specialized", "ordinary")(kind)
    return Plan(**options)


def _read_role(plan: Plan, rest: str) -> Plan:
    label, options = _split(rest, {"warps": int, "registers": int, "instances": int})
    return replace(
        plan, roles=(*plan.roles, RolePlan(label, **_need(options, "warps", "registers")))
    )


def _read_aref(plan: Plan, rest: str) -> Plan:
    vias = _one_of("tma", "copy_async", "transpose")
    names, options = _split(rest, {"depth": int, "via": vias, "interleaved": _yes})
    first, *others = (tuple(payload.split(" + ")) for payload in names.split(" = "))
    ring = ArefPlan(first, also=tuple(others), **_need(options, "depth"))
    return replace(plan, arefs=(*plan.arefs, ring))


def _read_loop(plan: Plan, rest: str) -> Plan:
    name, options = _split(
        rest,
        {
            "schedule": _one_of("none", "fine", "coarse"),
            "mma_depth": int,
            "pins": _yes,
            "shared": lambda names: tuple(names.split(",")),
        },
    )
    return replace(plan, loops=(*plan.loops, LoopPlan(name, **options)))


def _read_store(plan: Plan, rest: str) -> Plan:
    name, options = _split(
        rest,
        {
            "via": _one_of("tma", "registers"),
            "parts": int,
            "places": int,
            "eviction": _one_of("first", "last"),
            "stage": str,
        },
    )
    return replace(plan, stores=(*plan.stores, StorePlan(name, **_need(options, "via"))))


def _read_load(plan: Plan, rest: str) -> Plan:
    name, options = _split(rest, {"via": _one_of("registers")})
    _need(options, "via")
    return replace(plan, direct=(*plan.direct, name))


def _read_operand(plan: Plan, rest: str) -> Plan:
    name, options = _split(rest, {"a": _one_of("registers", "shared")})
    operand = OperandPlan(name, **_need(options, "a"))
    return replace(plan, operands=(*plan.operands, operand))


def _read_guard(plan: Plan, rest: str) -> Plan:
    read, written = (name.strip() for name in rest.split(","))
    return replace(plan, guards=(*plan.guards, (read, written)))


def _read_declined(plan: Plan, rest: str) -> Plan:
    feature, _, reason = rest.partition(": ")
    return replace(plan, declined=(*plan.declined, Declined(feature, reason)))


def _need(options: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        if key not in options:
            raise ValueError(f"{key}= is missing")
    return options


_READERS: dict[str, Callable[[Plan, str], Plan]] = {
    "role": _read_role,
    "aref": _read_aref,
    "loop": _read_loop,
    "store": _read_store,
    "load": _read_load,
    "operand": _read_operand,
    "guard": _read_guard,
    "declined": _read_declined,
}
