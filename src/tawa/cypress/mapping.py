"""Mappings: where tasks run and tensors live, as a value that prints as Python.

Source: PLDI 2025 (see `machine`), section 3.3.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Table
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from tawa.cypress.machine import HOPPER, Auto, Level, Machine, Memory
from tawa.cypress.place import here
from tawa.cypress.task import Variant
from tawa.errors import MappingError, Place
from tawa.plan.plan import Walk


@dataclass(frozen=True, slots=True)
class Instance:
    """A variant at a level, with the memory of each tensor and a value for each tunable.

    `calls` names the instances that its launches may become, by their task; several of one task
    are taken in the order of the launches. `entry`: the program starts here. `like`: of a leaf that
    BLOCK launches, the instance after whose first tensor its elements are spread. `stage`: of a
    leaf that writes GLOBAL, SHARED where the tile leaves through it by TMA. At a BLOCK instance:
    `specialize` gives loads a role of their own, `pipeline` is the depth of the rings of its loops,
    for all (``3``), by ring (``{"A B": 3, "S": 2}``: tensors of the program that share one), or
    `auto`; `persistent` lets a block walk over tiles, `group` of them together (0: in their order),
    by a `walk` of `tawa.plan.plan.Plan`; `cluster` blocks share loads. `schedule` "coarse" runs the
    work between two products of a loop under products, "fine" in order; `turns` lets the
    warpgroups take turns at the tensor cores. `tiles` of a persistent block are under way at once,
    each with warpgroups of its own, in turns: one is stored while another multiplies. `plan` are
    lines of the plan's text in place of those that follow from the rest, as "program.show" has them
    (a line's subject alone: there is none), `names` what its loads, stores, loops and
    products are called there and in CUDA text in place of their own names.
    """

    name: str
    variant: Variant
    level: Level
    mems: Sequence[Memory]  # or `auto`, until a program is made
    tunables: Table[str, Any] = field(default_factory=dict[str, Any])
    _: KW_ONLY
    calls: Sequence[str] = ()
    entry: bool = False
    specialize: bool = False
    pipeline: int | Table[str, int] | Auto = 1
    persistent: bool = False
    group: int = 8
    cluster: int = 1
    schedule: Literal["fine", "coarse"] = "fine"
    turns: bool = False
    tiles: int = 1
    walk: Walk = "forward"
    plan: Sequence[str] = ()
    names: Table[str, str] = field(default_factory=dict[str, str])
    like: str = ""
    stage: Memory | None = None
    place: Place | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Keep copies of what was given, and refuse what no mapping can have."""
        kept: dict[str, Any] = {"mems": tuple(self.mems), "calls": tuple(self.calls)}
        kept |= {"plan": tuple(self.plan), "names": MappingProxyType({**self.names})}
        kept |= {"place": self.place or here(), "tunables": MappingProxyType({**self.tunables})}
        if isinstance(self.pipeline, Table):
            kept["pipeline"] = MappingProxyType({**self.pipeline})
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        variant = self.variant
        if not isinstance(variant, Variant):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self.error(
                f": {variant!r} is no variant", "", "pass a function under @cy.inner or @cy.leaf"
            )
        if len(self.mems) != len(variant.parameters):
            tensors = f"{len(variant.parameters)} tensors: {', '.join(variant.parameters)}"
            raise self.error(f" gives {len(self.mems)} memories", f"{variant.name} has {tensors}")
        known = f"its tunables are {', '.join(variant.tunables) or 'none'}"
        for name, value in self.tunables.items():
            if name not in variant.tunables:
                raise self.error(
                    f" gives {variant.name} the tunable {name}, which it has not",
                    known,
                    nearest(name, variant.tunables),
                )
            if not isinstance(value, Level | Auto) and (type(value) is not int or value < 1):
                why = "a tunable is an int of 1 or more, a level, or cy.auto"
                raise self.error(f": {name}={value!r}", why)
        for name in variant.tunables:
            if name not in self.tunables:
                raise self.error(
                    f" gives {variant.name} no {name}", known, f"write dict({name}=...)"
                )
        depths: Table[str, Any] = self.depths or {"": self.pipeline}
        counts: list[tuple[str, Any, int]] = [
            ("cluster", self.cluster, 1),
            ("group", self.group, 0),
            ("tiles", self.tiles, 1),
            *((f"pipeline {ring}".strip(), depth, 1) for ring, depth in depths.items()),
        ]
        for name, value, least in counts:
            if not isinstance(value, Auto) and (type(value) is not int or value < least):
                raise self.error(f": {name}={value!r}", f"it counts from {least}")
        for name, words in {"schedule": ("fine", "coarse"), "walk": get_args(Walk)}.items():
            if (word := getattr(self, name)) not in words:
                why = f"it is one of {', '.join(words)}"
                raise self.error(f": {name}={word!r}", why, nearest(str(word), words))
        if variant.inner and (self.like or self.stage):
            raise self.error(f": like and stage are of leaves, {variant.name} is inner")

    def error(
        self, what: str, why: str = "", remedy: str = "", place: Place | None = None
    ) -> MappingError:
        """Return an error that begins with the instance, and points at it or at `place`."""
        at = place or self.place
        return MappingError(f'"{self.name}"{what}', place=at, why=why, remedy=remedy)

    @property
    def depths(self) -> Table[str, int]:
        """The depth of each ring that the mapping names."""
        return self.pipeline if isinstance(self.pipeline, Table) else {}

    @property
    def memory(self) -> Table[str, Memory]:
        """The memory of each tensor, by parameter."""
        return dict(zip(self.variant.parameters, self.mems, strict=True))

    @property
    def said(self) -> dict[str, Any]:
        """The fields after the tunables that are not what they are where nothing is said."""
        named = {each.name: getattr(self, each.name) for each in fields(self)[5:] if each.compare}
        return {name: value for name, value in named.items() if value != _DEFAULTS[name]}

    @property
    def of_block(self) -> tuple[str, ...]:
        """The fields given that say how a block runs."""
        return tuple(name for name in self.said if name not in ("calls", "entry", "like", "stage"))

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The tunables that are `auto`, but for those that the variant takes so."""
        hints = self.variant.hints
        return tuple(
            name
            for name, value in self.tunables.items()
            if isinstance(value, Auto) and "Auto" not in str(hints[name])
        )

    def __str__(self) -> str:
        """Return the instance as Python; `I` is `cy.Instance`."""
        mems = ", ".join(map(str, self.mems))
        parts = [f'"{self.name}"', self.variant.name, str(self.level), f"[{mems}]"]
        if self.tunables:
            tunables = (f"{name}={value}" for name, value in self.tunables.items())
            parts.append(f"dict({', '.join(tunables)})")
        for name, value in self.said.items():
            whole = _WHOLE.get(name)
            shown = whole(value) if whole and not isinstance(value, int | Auto) else value
            parts.append(f"{name}={shown!r}".replace("'", '"'))
        return f"I({', '.join(parts)})"


_WHOLE: dict[str, Any] = {"calls": list, "plan": list, "pipeline": dict, "names": dict}
CEILING = 231_424
"""Bytes of shared memory that a block may take where a mapping does not say."""
_DEFAULTS: dict[str, Any] = {e.name: e.default for e in fields(Instance)} | {"names": {}}


@dataclass(frozen=True, slots=True)
class Mapping:
    """Instances, one of them the entry, and the shared memory that a block may take (bytes)."""

    instances: Sequence[Instance]
    ceiling: int = CEILING
    machine: Machine = HOPPER

    def __post_init__(self) -> None:
        """Keep a copy of the instances, and refuse those that do not fit together."""
        object.__setattr__(self, "instances", tuple(self.instances))
        names = [each.name for each in self.instances]
        entries = [each.name for each in self.instances if each.entry]
        if len(entries) != 1:
            raise MappingError(
                f"a mapping has one entry, this one {len(entries)}: {', '.join(entries) or 'none'}",
                place=here(),
                remedy="write entry=True at the instance where the program starts",
            )
        for each in self.instances:
            if names.count(each.name) > 1:
                raise MappingError(
                    f'two instances are named "{each.name}"',
                    place=each.place,
                    why="calls speak of instances by name",
                )
            for name in (*each.calls, *([each.like] if each.like else ())):
                if name not in names:
                    raise each.error(
                        f' calls "{name}", which is no instance',
                        f"instances are {', '.join(names)}",
                        nearest(name, names),
                    )
            if each.level not in self.machine.levels:
                levels = ", ".join(map(str, self.machine.levels))
                raise each.error(
                    f" runs at {each.level}, which {self.machine.name} has not",
                    f"its levels are {levels}",
                )
            for tensor, memory in each.memory.items():
                if not isinstance(memory, Auto) and not self.machine.sees(each.level, memory):
                    seen = ", ".join(map(str, self.machine.seen_by(each.level)))
                    raise MappingError(
                        f"{each.level} does not see {memory}",
                        place=each.place,
                        why=f'"{each.name}" maps {tensor} to it; {each.level} sees {seen}',
                        remedy="map it to one of these, or to NONE",
                    )

    def __getitem__(self, name: str) -> Instance:
        """Return an instance by name; raises MappingError."""
        for each in self.instances:
            if each.name == name:
                return each
        names = [each.name for each in self.instances]
        raise MappingError(
            f'the mapping has no instance "{name}"',
            place=here(),
            why=f"its instances are {', '.join(names)}",
            remedy=nearest(name, names),
        )

    @property
    def open(self) -> bool:
        """Whether a memory, or a tunable that its variant does not take so, is `auto`."""
        return any(
            any(isinstance(memory, Auto) for memory in each.mems) or each.unsaid
            for each in self.instances
        )

    @property
    def entry(self) -> Instance:
        """The instance where the program starts."""
        return next(each for each in self.instances if each.entry)

    def with_(self, name: str, **changes: Any) -> Mapping:
        """Return the mapping with one instance changed: tunables and fields, by name.

        >>> mapping.with_("tile", WGS=3)  # doctest: +SKIP
        """
        old = self[name]
        known = [*old.tunables, *(each.name for each in fields(Instance) if each.compare)]
        for key in changes:
            if key not in known:
                why = f"what can be changed: {', '.join(known)}"
                raise old.error(f" has no {key}", why, nearest(key, known), here())
        tuned = {key: value for key, value in changes.items() if key in old.tunables}
        given = {key: value for key, value in changes.items() if key not in tuned}
        given.setdefault("tunables", {**old.tunables, **tuned})
        new = replace(old, **given, place=here())
        return replace(self, instances=[new if e is old else e for e in self.instances])

    def __str__(self) -> str:
        """Return the mapping as Python; `I` is `cy.Instance`, all else goes by its name."""
        lines = "".join(f"    {each},\n" for each in self.instances)
        machine = f", machine={self.machine.name}" if self.machine != HOPPER else ""
        return f"cy.Mapping([\n{lines}], ceiling={self.ceiling}{machine})"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a proposal: the name that is most like a given one."""
    found = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {found[0]}?" if found else ""
