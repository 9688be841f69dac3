"""Agents: each role as a sequence of steps, of which only what meets others is left.

An agent is a role; a warpgroup of a role whose warpgroups take turns; or the instances of a role
together, one tile after the other, which is one of the orders that they may run in. What threads of
a role do in one order is one agent's: with fewer orders fewer runs end, never more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, has, walk, yielded
from tawa.verify.decisions import Decisions, Loop
from tawa.verify.forwarded import around, loops_around
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Condition, Conditions, Term
from tawa.verify.values import Span, Values

SYNCHRONIZES = (
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.TmaLoad,
    hopper.CopyAsyncArrive,
    hopper.Turn,
    hopper.ClusterSync,
)


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Wait for the next number of a ring."""

    operation: hopper.Wait
    ring: int


@dataclass(frozen=True, slots=True, eq=False)
class Arrive:
    """So many arrivals for the next number of a ring."""

    operation: hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive
    ring: int
    units: int


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """Go on elsewhere."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Go on where the condition holds, else at `otherwise`."""

    condition: Condition
    otherwise: int
    operation: Operation


@dataclass(frozen=True, slots=True, eq=False)
class Enter:
    """A loop begins."""

    loop: Loop


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Where iterations begin: runs that come here alike go on alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Next:
    """The next iteration."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """The loop has ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """Go on with the instance whose tile it is."""

    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Meet:
    """All threads of the role meet; warpgroups that are agents wait for one another."""

    operation: hopper.NamedBarrier


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A named barrier between instances: "sync" takes what "arrive" has handed on."""

    operation: hopper.NamedBarrier


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A turn of warpgroups is announced, or waited for."""

    operation: hopper.Turn
    barrier: int
    """Named barrier that is announced or waited for."""
    waits: bool


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """The role has ended."""


Step: TypeAlias = (
    Wait | Arrive | Jump | Branch | Enter | Head | Next | Leave | Choose
    | Meet | Token | Turn | End
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Agent:
    """What an agent does. `instances` are the roles of a group, else one role stands alone."""

    name: str
    roles: tuple[hopper.Role, ...]
    code: tuple[Step, ...]
    group: int = 0
    """Which warpgroup of the role it is, where these are agents."""
    groups: int = 1

    @property
    def share(self) -> int:
        """How many instances there are."""
        return len(self.roles)


# --- roles ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Compiler:
    """Makes agents of the roles of a kernel. `rings` numbers the arrays of barriers."""

    values: Values
    conditions: Conditions
    decisions: Decisions
    rings: dict[SSAValue, int]
    _code: list[Step] = field(default_factory=list[Step])
    _role: hopper.Role | None = None
    _group: int = 0
    _groups: int = 1
    _keeps: set[Operation] = field(default_factory=set[Operation])
    _share: int = 1
    _body: int = 0
    """Where the loops are counted from: where the tile of an instance begins."""

    def agents(self, kernel: tile.Kernel) -> list[Agent]:
        """Return the agents of a kernel."""
        made: list[Agent] = []
        instances: dict[tuple[Term, Term, int], list[tuple[hopper.Role, scf.ForOp, Span]]] = {}
        for role in all_of(kernel, hopper.Role):
            loop = self._shared_loop(role)
            if loop is not None:
                span = self.values.span(loop)
                key = span.length, span.step, span.share
                instances.setdefault(key, []).append((role, loop, span))
                continue
            turns = all_of(role, hopper.Turn)
            groups = turns[0].groups.data if turns else 1
            if turns and 4 * groups != role.warps.data:
                raise Refused(
                    rule("meetings"),
                    f"{groups} warpgroups take turns in a role of {role.warps.data} warps",
                    turns[0],
                )
            for group in range(groups):
                self._code, self._share, self._body = [], 1, 0
                self._enter(role, group, groups)
                self._operations(role.body.block.ops, False)
                self._code.append(End())
                name = role.label.data + (f" warpgroup {group}" if groups > 1 else "")
                made.append(Agent(name, (role,), tuple(self._code), group, groups))
        for (_, _, share), items in instances.items():
            made.append(self._together(share, sorted(items, key=lambda item: item[2].part)))
        return made

    def _enter(self, role: hopper.Role, group: int = 0, groups: int = 1) -> None:
        self._role, self._group, self._groups = role, group, groups
        self._keeps = set()
        for operation in walk(role):
            if self._is_kept(operation):
                self._keeps |= {each for _, each in around(operation)}
                if operation.regions:
                    self._keeps.add(operation)

    def _is_kept(self, operation: Operation) -> bool:
        match operation:
            case hopper.NamedBarrier():
                scope = operation.scope.data
                return scope == "roles" or (scope == "role" and self._groups > 1)
            case _:
                return isinstance(operation, SYNCHRONIZES)

    # --- instances --------------------------------------------------------------------------------

    def _shared_loop(self, role: hopper.Role) -> scf.ForOp | None:
        """Return the loop over tiles of which a role takes each second or so."""
        loops = [loop for loop in all_of(role, scf.ForOp) if self.values.span(loop).share > 1]
        loops = [loop for loop in loops if has(loop, *SYNCHRONIZES)]
        if len(loops) > 1:
            raise Refused(rule("form"), "an instance has two loops over tiles", loops[-1])
        return loops[0] if loops else None

    def _together(self, share: int, items: Sequence[tuple[hopper.Role, scf.ForOp, Span]]) -> Agent:
        """One agent of all instances of a role: tile after tile, each by its instance."""
        roles = tuple(role for role, _, _ in items)
        first = items[0][1]
        if [span.part for _, _, span in items] != list(range(share)):
            raise Refused(rule("form"), "not each tile has one instance", first)
        self._code, self._share, self._body = [], share, 0
        for role, loop, _ in items:
            self._enter(role)
            self._operations(_beside(loop)[0], False)
        self._enters(self.decisions.loop(items[0][2], 0))
        head = len(self._code)
        self._code.append(Head())
        branch = self._hole()
        choose = self._hole()
        targets: list[int] = []
        for role, loop, _ in items:
            self._enter(role)
            self._body = len(self._code)
            targets.append(self._body)
            self._operations(loop.body.block.ops, False)
            self._code.append(Next(head))
        self._code[choose] = Choose(tuple(targets))
        self._code[branch] = Branch(self._goes_on(first), len(self._code), first)
        self._code.append(Leave())
        for role, loop, _ in items:
            self._enter(role)
            self._operations(_beside(loop)[1], False)
        self._code.append(End())
        name = "+".join(role.label.data for role in roles)
        return Agent(name, roles, tuple(self._code))

    # --- a block ----------------------------------------------------------------------------------

    def _operations(self, operations: Iterable[Operation], alone: bool) -> None:
        for operation in operations:
            self._operation(operation, alone)

    def _operation(self, operation: Operation, alone: bool) -> None:
        code = self._code
        match operation:
            case hopper.OneThread():
                if self._group == 0:  # of all warpgroups the first one has it
                    self._operations(operation.body.block.ops, True)
            case scf.IfOp() | scf.ForOp() | scf.WhileOp() if operation not in self._keeps:
                return
            case scf.IfOp():
                self._if(operation, alone)
            case scf.ForOp():
                self._for(operation, alone)
            case scf.WhileOp():
                self._while(operation, alone)
            case hopper.Wait():
                code.append(Wait(operation, self.rings[operation.barriers]))
            case hopper.Arrive() | hopper.Expect() | hopper.CopyAsyncArrive():
                units = self._units(operation, alone)
                if units:
                    code.append(Arrive(operation, self.rings[operation.barriers], units))
            case hopper.Turn():
                code.extend(self._turn(operation))
            case hopper.NamedBarrier() if self._is_kept(operation):
                if operation.scope.data == "role":
                    if operation.kind.data == "sync":
                        code.append(Meet(operation))
                elif self._share == 1:
                    raise Refused(
                        rule("form"),
                        "roles that are no instances meet at a named barrier",
                        operation,
                    )
                else:
                    code.append(Token(operation))
            case hopper.ClusterSync():
                raise Refused(rule("form"), "a role waits for the other blocks alone", operation)
            case _ if operation in self._keeps:
                raise Refused(rule("form"), f"{operation.name} holds synchronization", operation)
            case _:
                return

    def _units(self, operation: Operation, alone: bool) -> int:
        """Return the arrivals that an operation makes for this agent."""
        role = self._role
        assert role is not None
        if isinstance(operation, hopper.Expect):
            return 1 if self._group == 0 else 0
        if isinstance(operation, hopper.CopyAsyncArrive):
            return 1 if alone else 32 * role.warps.data // self._groups
        assert isinstance(operation, hopper.Arrive)
        by = operation.by.data
        if alone or by in ("thread", "role"):
            number = 1 if self._group == 0 else 0
        else:
            warps = role.warps.data
            threads = {"warp": warps, "warpgroup": -(-warps // 4), "all": 32 * warps}
            number = threads[by] // self._groups
        return number * (self.values.cluster if operation.cluster is not None else 1)

    def _turn(self, turn: hopper.Turn) -> Iterator[Turn]:
        first, groups, own = turn.id.data, turn.groups.data, self._group
        if groups != self._groups:
            raise Refused(rule("meetings"), "warpgroups take turns with unlike many", turn)
        match turn.kind.data:
            case "take":
                yield Turn(turn, first + own, True)
            case "pass":
                yield Turn(turn, first + (own + 1) % groups, False)
            case "open" if own == groups - 1:
                yield Turn(turn, first, False)
            case "close" if own == 0:
                yield Turn(turn, first, True)
            case _:
                return

    # --- control ----------------------------------------------------------------------------------

    def _hole(self) -> int:
        self._code.append(End())
        return len(self._code) - 1

    def _goes_on(self, loop: scf.ForOp) -> Condition:
        """Return whether a loop makes its iteration, as a condition."""
        terms, span = self.values.terms, self.values.span(loop)
        at = self.values.iteration(loop)
        length = span.length
        return self.conditions.positive(terms.sub(length, terms.mul(span.step, at)))

    def _enters(self, family: int) -> None:
        own = self._code[self._body :]
        before = sum(isinstance(step, Enter) and step.loop[0] == family for step in own)
        self._code.append(Enter((family, before)))

    def _if(self, branch: scf.IfOp, alone: bool) -> None:
        condition = self.conditions.of(self.values.of(branch.cond))
        hole = self._hole()
        self._operations(branch.true_region.block.ops, alone)
        end = self._hole()
        self._code[hole] = Branch(condition, len(self._code), branch)
        if branch.false_region.blocks:
            self._operations(branch.false_region.block.ops, alone)
        self._code[end] = Jump(len(self._code))

    def _for(self, loop: scf.ForOp, alone: bool) -> None:
        step = self.values.terms.number(self.values.span(loop).step)
        if step is not None and step <= 0:
            raise Refused(rule("form"), f"a loop has the step {step}", loop)
        depth = len(loops_around(loop))
        self._enters(self.decisions.loop(self.values.span(loop), depth))
        head = len(self._code)
        self._code.append(Head())
        hole = self._hole()
        self._operations(loop.body.block.ops, alone)
        self._code.append(Next(head))
        self._code[hole] = Branch(self._goes_on(loop), len(self._code), loop)
        self._code.append(Leave())

    def _while(self, loop: scf.WhileOp, alone: bool) -> None:
        before = loop.before_region.block
        if has(before, *SYNCHRONIZES):
            raise Refused(rule("form"), "what decides whether a loop goes on synchronizes", loop)
        self._enters(-1 - len(loops_around(loop)))
        head = len(self._code)
        self._code.append(Head())
        self._operations(before.ops, alone)
        condition = self.conditions.of(self.values.of(yielded(before, 0)))
        hole = self._hole()
        self._operations(loop.after_region.block.ops, alone)
        self._code.append(Next(head))
        self._code[hole] = Branch(condition, len(self._code), loop)
        self._code.append(Leave())


def _beside(loop: scf.ForOp) -> tuple[list[Operation], list[Operation]]:
    """Return what stands before a loop in its block, and what stands after it."""
    assert loop.parent is not None
    operations = list(loop.parent.ops)
    at = operations.index(loop)
    return operations[:at], operations[at + 1 :]
