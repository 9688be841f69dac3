"""Named schedules: which role waits for the others, and when asynchronous work completes.

``random``         one choice at a time, by the seed
``late``           asynchronous work completes only when no role can go on
``early``          it completes before any role goes on
``starve=ROLE``    the role runs only when nothing else can
``starve=ROLE+late``, ``starve=ROLE+early``   both
"""

from __future__ import annotations

from dataclasses import dataclass

from tawa.errors import ArgumentError
from tawa.ir import aref, hopper, tile

_COMPLETIONS = ("random", "late", "early")
_REMEDY = 'use "random", "late", "early", "starve=ROLE", or two of them: "starve=ROLE+late"'


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a schedule's name says: the starved role, or none, and when work completes."""

    starved: str = ""
    completions: str = "random"


def read_schedule(text: str) -> Schedule:
    """Return the schedule of a name; raises ArgumentError for one that means nothing."""
    starved, completions = "", ""
    for word in text.split("+"):
        role = word.removeprefix("starve=")
        if role != word and role and not starved:
            starved = role
        elif word in _COMPLETIONS and not completions:
            completions = word
        else:
            raise ArgumentError(f"schedule={text!r} is not known", remedy=_REMEDY)
    return Schedule(starved, completions or "random")


def roles_of(kernel: tile.Kernel) -> tuple[str, ...]:
    """Return the labels of a kernel's roles, in order."""
    found = [op.label.data for op in kernel.walk() if isinstance(op, (hopper.Role, aref.Role))]
    return tuple(dict.fromkeys(found))


def check_schedule(kernel: tile.Kernel, text: str) -> Schedule:
    """Return the schedule of a name; raises ArgumentError where it starves a role there is not."""
    schedule, roles = read_schedule(text), roles_of(kernel)
    if schedule.starved and schedule.starved not in roles:
        raise ArgumentError(
            f"schedule={text!r} starves a role that the program does not have",
            why=f"its roles are {', '.join(roles)}" if roles else "it has no roles",
        )
    return schedule


def adversarial(kernel: tile.Kernel) -> tuple[str, ...]:
    """Return the schedules that try a program hardest: each role starved in turn, asynchronous work
    at random, as late and as early as legal.
    """
    completions = ("", "+late", "+early")
    starved = [f"starve={role}{when}" for role in roles_of(kernel) for when in completions]
    return ("random", "late", "early", *starved)
