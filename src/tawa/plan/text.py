"""A plan as text that a user can read, edit and give back: `parse_plan(print_plan(p)) == p`.

One statement a line, names as they stand in the kernel, comments after ``#``::

    plan specialized warps=12 arrangement=cooperative persistent=yes group=8 cluster=1
    role load warps=4 registers=40
    role mma warps=8 registers=232
    aref a@14 + b@15 depth=3
    loop for k@13 schedule=fine mma_depth=2
    operand acc@16 a=registers
    tensor x layout=64x32;r[16:(0,1)];l[2:(0,16);16:(1,0)];w[4:(16,0)]
    store c_desc@18 via=tma parts=1 eviction=first
    guard a_desc, c_desc
    declined num_stages=4: depth 3 is what shared memory allows
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tawa.errors import PlanError
from tawa.plan.plan import LINES, ArefPlan, Declined, Plan


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
    if plan is None and keyword != "plan":
        raise ValueError("the first line begins with 'plan'")
    plan = plan or Plan()
    match keyword:
        case "plan":
            kind, options = _split(keyword, rest)
            _choose(("specialized", "ordinary"), kind)
            return Plan(**options)
        case "load":
            name, way, via = rest.rpartition(" via=")
            if not way:
                raise ValueError("via= is missing")
            _choose(("registers",), via)
            return replace(plan, direct=(*plan.direct, name))
        case "guard":
            read, written = (name.strip() for name in rest.split(","))
            return replace(plan, guards=(*plan.guards, (read, written)))
        case "declined":
            feature, _, reason = rest.partition(": ")
            return replace(plan, declined=(*plan.declined, Declined(feature, reason)))
        case _:
            among, kind, *_ = LINES[keyword]
            name, options = _split(keyword, rest)
            for each in fields(kind)[1:]:
                if each.default is MISSING and each.name not in options:
                    raise ValueError(f"{each.name}= is missing")
            if kind is not ArefPlan:
                return replace(plan, **{among: (*getattr(plan, among), kind(name, **options))})
            first, *others = (tuple(payload.split(" + ")) for payload in name.split(" = "))
            return replace(
                plan, arefs=(*plan.arefs, ArefPlan(first, also=tuple(others), **options))
            )


def _split(keyword: str, rest: str) -> tuple[str, dict[str, Any]]:
    """Take the options ``key=value`` from the end of a line; the rest is the name."""
    _, kind, always, others = LINES[keyword]
    types = get_type_hints(kind)
    options: dict[str, Any] = {}
    while (found := _OPTION.search(" " + rest)) is not None:
        key, value = found.groups()
        if key not in (always + " " + others).split():
            break
        options[key] = _value(types[key], value)
        rest = (" " + rest)[: found.start()].strip()
    return rest, options


def _value(kind: Any, word: str) -> Any:
    """Return the value of a field's type that a word says."""
    if kind is bool:
        return _choose(("yes", "no"), word) == "yes"
    if get_origin(kind) is Literal:
        return _choose(tuple(filter(None, get_args(kind))), word)
    return tuple(word.split(",")) if get_origin(kind) is tuple else kind(word)


def _choose(words: tuple[str, ...], word: str) -> str:
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(words)}")
    return word
