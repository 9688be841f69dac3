"""Mappings: where tasks run and tensors live, as a value that prints as Python.

Source: PLDI 2025 (see `machine`), section 3.3.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tawa.cypress.machine import HOPPER, Auto, Level, Machine, Memory
from tawa.cypress.place import here
from tawa.cypress.task import Variant
from tawa.errors import MappingError, Place
from tawa.plan.plan import Walk

Tunables = tuple[tuple[str, Any], ...]
Depths = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, init=False)
class Instance:
    """A variant at a level, with the memory of each tensor and a value for each tunable.

    `calls` names the instances that its launches may become, by their task; several of one task
    are taken in the order of the launches. `entry`: the program starts here. At a BLOCK instance:
    `specialize` gives loads a role of their own, `pipeline` is the depth of the rings of its loops,
    for all (``3``), by ring (``{"A B": 3, "S": 2}``: tensors of the program that share one), or
    `auto`; `persistent` lets a block walk over tiles, `group` of them together (0: in their order),
    by a `walk` of `tawa.plan.plan.Plan`; `cluster` blocks share loads. `schedule` "coarse" runs the
    work between two products of a loop under products, "fine" in order; `turns` lets the
    warpgroups take turns at the tensor cores. `tiles` of a persistent block are under way at once,
    each with warpgroups of its own, in turns: one is stored while another multiplies.
    `like`: of a leaf that BLOCK launches, the instance after whose first tensor its elements are
    spread. `stage`: of a leaf that writes GLOBAL, SHARED where the tile leaves through it by TMA.
    """

    name: str
    variant: Variant
    level: Level
    mems: tuple[Memory, ...]  # or `auto`, until a program is made
    tunables: Tunables
    calls: tuple[str, ...]
    entry: bool
    specialize: bool
    pipeline: int | Depths | Auto
    persistent: bool
    group: int
    cluster: int
    schedule: Literal["fine", "coarse"]
    turns: bool
    tiles: int
    walk: Walk
    like: str
    stage: Memory | None
    place: Place | None = field(compare=False)

    def __init__(
        self,
        name: str,
        variant: Variant,
        level: Level,
        mems: Sequence[Memory | Auto],
        tunables: Table[str, Any] | None = None,
        *,
        calls: Sequence[str] = (),
        entry: bool = False,
        specialize: bool = False,
        pipeline: int | Table[str, int] | Depths | Auto = 1,
        persistent: bool = False,
        group: int = 8,
        cluster: int = 1,
        schedule: Literal["fine", "coarse"] = "fine",
        turns: bool = False,
        tiles: int = 1,
        walk: Walk = "forward",
        like: str = "",
        stage: Memory | None = None,
        place: Place | None = None,
    ) -> None:
        values = {
            **{"name": name, "variant": variant, "level": level, "mems": tuple(mems)},
            **{"tunables": tuple((tunables or {}).items()), "calls": tuple(calls)},
            **{"entry": entry, "specialize": specialize, "pipeline": pipeline, "group": group},
            **{"persistent": persistent, "cluster": cluster, "like": like, "stage": stage},
            **{"schedule": schedule, "turns": turns, "tiles": tiles},
            "walk": walk,
        }
        if isinstance(pipeline, Table):
            values["pipeline"] = tuple(pipeline.items())
        for key, value in values.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "place", place or here())
        self._check()

    def _check(self) -> None:
        variant = self.variant
        if not isinstance(variant, Variant):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MappingError(
                f'"{self.name}": {variant!r} is no variant',
                place=self.place,
                remedy="pass a function under @cy.inner or @cy.leaf",
            )
        if len(self.mems) != len(variant.parameters):
            raise MappingError(
                f'"{self.name}" gives {len(self.mems)} memories',
                place=self.place,
                why=f"{variant.name} has {len(variant.parameters)} tensors:"
                f" {', '.join(variant.parameters)}",
            )
        given = [name for name, _ in self.tunables]
        for name in given:
            if name not in variant.tunables:
                raise MappingError(
                    f'"{self.name}" gives {variant.name} the tunable {name}, which it has not',
                    place=self.place,
                    why=f"its tunables are {', '.join(variant.tunables) or 'none'}",
                    remedy=nearest(name, variant.tunables),
                )
        for name in variant.tunables:
            if name not in given:
                raise MappingError(
                    f'"{self.name}" gives {variant.name} no {name}',
                    place=self.place,
                    why=f"its tunables are {', '.join(variant.tunables)}",
                    remedy=f"write dict({name}=...)",
                )
        for name, value in self.tunables:
            if not isinstance(value, Level | Auto) and (type(value) is not int or value < 1):
                raise MappingError(
                    f'"{self.name}": {name}={value!r}',
                    place=self.place,
                    why="a tunable is an int of 1 or more, a level, or cy.auto",
                )
        depths = dict(self.pipeline) if isinstance(self.pipeline, tuple) else {"": self.pipeline}
        counts: list[tuple[str, Any, int]] = [
            ("cluster", self.cluster, 1),
            ("group", self.group, 0),
            ("tiles", self.tiles, 1),
        ]
        counts += [(f"pipeline {ring}".strip(), depth, 1) for ring, depth in depths.items()]
        for name, value, least in counts:
            if not isinstance(value, Auto) and (type(value) is not int or value < least):
                raise MappingError(
                    f'"{self.name}": {name}={value!r}',
                    place=self.place,
                    why=f"it counts from {least}",
                )
        words = {"schedule": ("fine", "coarse"), "walk": get_args(Walk)}
        for name, known in words.items():
            if (word := getattr(self, name)) not in known:
                raise MappingError(
                    f'"{self.name}": {name}={word!r}',
                    place=self.place,
                    why=f"it is one of {', '.join(known)}",
                    remedy=nearest(str(word), known),
                )
        if variant.inner and (self.like or self.stage):
            raise MappingError(
                f'"{self.name}": like and stage are of leaves, {variant.name} is inner',
                place=self.place,
            )

    @property
    def memory(self) -> Table[str, Memory]:
        """The memory of each tensor, by parameter."""
        return dict(zip(self.variant.parameters, self.mems, strict=True))

    @property
    def of_block(self) -> tuple[str, ...]:
        """The fields given that say how a block runs."""
        return tuple(name for name in _OF_BLOCK if getattr(self, name) != _DEFAULTS[name])

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The tunables that are `auto`, but for those that the variant takes so."""
        hints = self.variant.hints
        return tuple(
            name
            for name, value in self.tunables
            if isinstance(value, Auto) and "Auto" not in str(hints[name])
        )

    def __str__(self) -> str:
        """Return the instance as Python; `I` is `cy.Instance`."""
        mems = ", ".join(map(str, self.mems))
        parts = [repr(self.name).replace("'", '"'), self.variant.name, str(self.level), f"[{mems}]"]
        if self.tunables:
            parts.append(f"dict({', '.join(f'{name}={value}' for name, value in self.tunables)})")
        for each in fields(self)[5:]:
            value: Any = getattr(self, each.name)
            if each.compare and value != _DEFAULTS[each.name]:
                shown: Any = [*value] if each.name == "calls" else value
                if each.name == "pipeline" and isinstance(self.pipeline, tuple):
                    shown = dict(self.pipeline)
                text = str(value) if isinstance(value, Memory) else repr(shown)
                parts.append(f"{each.name}={text}".replace("'", '"'))
        return f"I({', '.join(parts)})"


_DEFAULTS: dict[str, Any] = {
    **{"calls": (), "entry": False, "specialize": False, "pipeline": 1, "persistent": False},
    **{"group": 8, "cluster": 1, "like": "", "stage": None, "schedule": "fine", "turns": False},
    **{"tiles": 1, "walk": "forward"},
}
_OF_BLOCK = (
    *("specialize", "pipeline", "persistent", "group", "cluster", "schedule", "turns", "tiles"),
    "walk",
)


@dataclass(frozen=True, slots=True, init=False)
class Mapping:
    """Instances, one of them the entry, and the shared memory that a block may take (bytes)."""

    instances: tuple[Instance, ...]
    ceiling: int
    machine: Machine

    def __init__(
        self, instances: Iterable[Instance], ceiling: int = 231_424, machine: Machine = HOPPER
    ) -> None:
        object.__setattr__(self, "instances", tuple(instances))
        object.__setattr__(self, "ceiling", ceiling)
        object.__setattr__(self, "machine", machine)
        self._check()

    def _check(self) -> None:
        names = [each.name for each in self.instances]
        for each in self.instances:
            if names.count(each.name) > 1:
                raise MappingError(
                    f'two instances are named "{each.name}"',
                    place=each.place,
                    why="calls speak of instances by name",
                )
        entries = [each.name for each in self.instances if each.entry]
        if len(entries) != 1:
            raise MappingError(
                f"a mapping has one entry, this one {len(entries)}: {', '.join(entries) or 'none'}",
                place=here(),
                remedy="write entry=True at the instance where the program starts",
            )
        for each in self.instances:
            for name in (*each.calls, *([each.like] if each.like else ())):
                if name not in names:
                    raise MappingError(
                        f'"{each.name}" calls "{name}", which is no instance',
                        place=each.place,
                        why=f"instances are {', '.join(names)}",
                        remedy=nearest(name, names),
                    )
            if each.level not in self.machine.levels:
                raise MappingError(
                    f'"{each.name}" runs at {each.level}, which {self.machine.name} has not',
                    place=each.place,
                    why=f"its levels are {', '.join(map(str, self.machine.levels))}",
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
        known = [each.name for each in fields(Instance) if each.compare]
        tunables, given = dict(old.tunables), {n: getattr(old, n) for n in known}
        for key, value in changes.items():
            if key in tunables:
                tunables[key] = value
            elif key in known:
                given[key] = value
            else:
                raise MappingError(
                    f'"{name}" has no {key}',
                    place=here(),
                    why=f"what can be changed: {', '.join((*tunables, *known))}",
                    remedy=nearest(key, (*tunables, *known)),
                )
        given["tunables"] = given["tunables"] if "tunables" in changes else tunables
        new = Instance(**given)
        return replace_instances(self, [new if each is old else each for each in self.instances])

    def __str__(self) -> str:
        """Return the mapping as Python; `I` is `cy.Instance`, all else goes by its name."""
        lines = "".join(f"    {each},\n" for each in self.instances)
        machine = f", machine={self.machine.name}" if self.machine != HOPPER else ""
        return f"cy.Mapping([\n{lines}], ceiling={self.ceiling}{machine})"


def replace_instances(mapping: Mapping, instances: Iterable[Instance]) -> Mapping:
    """Return a mapping with other instances."""
    return Mapping(instances, mapping.ceiling, mapping.machine)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a proposal: the name that is most like a given one."""
    found = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {found[0]}?" if found else ""
