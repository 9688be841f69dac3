"""What decides a condition, and what a run knows of it: one answer for all agents that ask.

A condition is made of factors (`conditions.Holds`), each a function of the launch and of the
numbers of the iterations around it. A factor `length - step * (i + k) > 0` belongs to the *family*
of loops of this length and step: it falls once, so that of a family only its end is not known, and
what one agent has found holds for all. Any other factor is a free choice at each iteration, made
once.

A *label* says where an agent is in a loop. (EXACT, i) is iteration i. (tag, i) is iteration i + c,
for a number c >= 0 that nobody knows and that all labels of this tag (at this depth) share. Agents
in iterations of one loop that are all beyond `exact` get one tag, and are then told apart by how
far they are from one another. What is known of other labels than the asker's is used where it holds
for every c, and is no answer else: so runs may be looked at that no launch makes, and none is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tawa.verify.terms import ALWAYS, Condition, Conditions, Holds, Term
from tawa.verify.values import Span

EXACT = -1
Label: TypeAlias = tuple[int, int]
Labels: TypeAlias = tuple[Label, ...]
Question: TypeAlias = tuple[int | Holds, Labels, int]
"""A family by its number, or a free choice by its factor; the labels that it depends on; the tag of
the family's own loop."""
Answer: TypeAlias = tuple[int | None, int | None]
"""Of a family: the largest number known to be inside, the least one known not to be. Of a free
choice: (1, None) where it holds, (None, 0) where not."""
Known: TypeAlias = dict[Question, Answer]
Loop: TypeAlias = tuple[int, int]
"""The family of a loop, or -1 - depth where it has none, and the how manieth of its kind it is."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Whether another loop may begin, and what may be asked (families and free choices): after the
    loop that an agent is in, and in all of that loop, if it goes on."""

    enters: bool
    asks: frozenset[int | Holds]
    again: frozenset[int | Holds]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent is: its labels, what loops these are, what is ahead at each depth up to here
    while the labels above it stay, and whether all is done."""

    labels: Labels
    loops: tuple[Loop, ...]
    ahead: tuple[Ahead, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class _Member:
    """`length - step * (i + more) > 0` of a family, or (not `falls`) that it is not; i is 0 where
    `depth` is None."""

    family: int
    depth: int | None
    more: int
    falls: bool


@dataclass(frozen=True, slots=True)
class _Fixed:
    """a * iteration + b, of the loop at `depth`; `far`: what it is in iterations that are not
    known exactly, where it is of a family."""

    depth: int
    a: int
    b: int
    far: _Member | None = None


@dataclass(frozen=True, slots=True)
class _Capped:
    """Of a minimum: both hold (`every`); of a maximum: one of them does."""

    every: bool
    parts: tuple[Condition, Condition]


_Class: TypeAlias = "_Fixed | _Member | _Capped | None"
Ordered: TypeAlias = tuple[tuple[tuple[Holds, ...], int], ...]


@dataclass(slots=True)
class Decisions:
    """The questions of one kernel."""

    conditions: Conditions
    patience: int = 0
    """For how many iterations agents are counted exactly while others may yet join them."""
    slots: int = 0
    """How many slots all rings have. Nobody is later than that: thresholds of iterations, and ends
    of loops, are met exactly, one by one, where none is further than this from the one before it;
    those beyond are taken to come at any time."""
    behind: int = 0
    """How far conditions ask before the iteration that they stand in, and beyond it."""
    beyond: int = 0
    edges: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """By the depth of loops: the iterations from which on something is no more as it was."""
    _exact: dict[int, int] = field(default_factory=dict[int, int])
    families: list[tuple[Term, Term, int]] = field(default_factory=list[tuple[Term, Term, int]])
    """Length, step, and the depth of the loop; -1 where it is none."""
    ends: list[int | None] = field(default_factory=list[int | None])
    """How many iterations a family makes, where that is a number."""
    _ordered: dict[Condition, Ordered] = field(default_factory=dict[Condition, "Ordered"])
    _sure: dict[tuple[int, int], Condition] = field(
        default_factory=dict[tuple[int, int], Condition]
    )
    _classes: dict[Holds, _Class] = field(default_factory=dict[Holds, _Class])
    _support: dict[int | Holds, tuple[int, ...]] = field(
        default_factory=dict[int | Holds, tuple[int, ...]]
    )

    def loop(self, span: Span, depth: int) -> int:
        """Return the family of a loop."""
        terms = self.conditions.terms
        length, step = terms.number(span.length), terms.number(span.step)
        end = None if length is None or not step else max(0, -(-length // step))
        if end is not None:
            self.edges.setdefault(depth, set()).add(end)
        for number, (first, each, own) in enumerate(self.families):
            later = terms.ratio(terms.sub(first, span.length), each)
            if each == span.step and own == depth and later is not None:
                return number
        self.families.append((span.length, span.step, depth))
        self.ends.append(end)
        return len(self.families) - 1

    def learn(self, condition: Condition, *, guards: bool) -> None:
        """Learn how far a condition asks back; of one that guards something, let the iterations
        that it tells apart be counted exactly."""
        for factor in self._factors(condition):
            match self._class(factor):
                case _Capped(_, parts):  # of a loop, too: its cap is met exactly
                    for part in parts:
                        self.learn(part, guards=True)
                case _Fixed(depth, a, b, far):
                    edge = -(b // a) if (b > 0) == (a < 0) else 0
                    edge += int(a > 0 >= b) or int(factor.what == "zero")
                    if guards:
                        self.edges.setdefault(depth, set()).add(edge)
                    reach = far.more if far is not None else 0
                    self.behind, self.beyond = max(self.behind, -reach), max(self.beyond, reach)
                case _Member(_, int(), more):
                    self.behind, self.beyond = max(self.behind, -more), max(self.beyond, more)
                case _Member(family, None, edge) if guards and self.families[family][2] >= 0:
                    self.edges.setdefault(self.families[family][2], set()).add(edge)
                case _:
                    continue

    def exact(self, depth: int) -> int:
        """Return the iteration of loops at a depth from which on numbers need not be exact."""
        if depth not in self._exact:
            found = 0
            for edge in sorted(self.edges.get(depth, ())):
                found = max(found, edge) if edge <= found + self.slots else found
            self._exact[depth] = found
        return self._exact[depth]

    # --- what a factor is -------------------------------------------------------------------------

    def _class(self, factor: Holds) -> _Class:
        if factor not in self._classes:
            self._classes[factor] = self._classify(factor)
        return self._classes[factor]

    def _classify(self, factor: Holds) -> _Class:
        if factor.what == "true":
            return None
        terms = self.conditions.terms
        depths = [depth for kind, depth in terms.support(factor.x) if kind == "iteration"]
        if depths:
            depth = max(depths)
            parts = terms.linear(factor.x, terms.iteration(depth))
            if parts is not None:
                b, a = terms.number(parts[0]), terms.number(parts[1])
                if a and b is not None:
                    far = self._member(factor.x) if factor.what == "positive" else None
                    return _Fixed(depth, a, b, far)
                if b == 0 and any(parts[1] == step for _, step, _ in self.families):
                    return _Fixed(depth, 1, 0)  # a step is above 0
        if factor.what != "positive":
            return None
        if (capped := self._capped(factor.x)) is not None:
            return capped
        return self._member(factor.x) or self._threshold(factor.x)

    def _member(self, x: Term) -> _Member | None:
        terms = self.conditions.terms
        for each, falls in ((x, True), (terms.sub(terms.one, x), False)):
            for number, (length, step, depth) in enumerate(self.families):
                left = terms.sub(length, each)
                inside = terms.sub(left, terms.mul(step, terms.iteration(depth)))
                for rest, own in ((inside, depth), (left, None)):
                    more = terms.ratio(rest, step)
                    if more is not None:
                        return _Member(number, own, more, falls)
        return None

    def _capped(self, x: Term) -> _Capped | None:
        terms = self.conditions.terms
        found = terms.bounded(x)
        if found is None:
            return None
        every, (one, other) = found
        if not self._is_plain(one) and not self._is_plain(other):
            return None
        return _Capped(every, (self.conditions.positive(one), self.conditions.positive(other)))

    def _is_plain(self, x: Term) -> bool:
        """Tell whether a term is a number, or one beside numbers of iterations."""
        terms = self.conditions.terms
        for _, depth in terms.support(x):
            parts = terms.linear(x, terms.iteration(depth))
            if parts is None or terms.number(parts[1]) is None:
                return False
            x = parts[0]
        return terms.number(x) is not None

    def open(self, condition: Condition) -> None:
        """Make the families of what falls by a number from iteration to iteration."""
        terms = self.conditions.terms
        for factor in self._factors(condition):
            if factor.what != "positive":
                continue
            if (capped := self._capped(factor.x)) is not None:
                for part in capped.parts:
                    self.open(part)
                continue
            depths = [d for kind, d in terms.support(factor.x) if kind == "iteration"]
            parts = terms.linear(factor.x, terms.iteration(max(depths))) if depths else None
            if parts is None or terms.number(parts[0]) is not None:
                continue
            step = terms.number(parts[1])
            if step is not None and step < 0:
                self.loop(Span(parts[0], terms.constant(-step)), max(depths))

    def _threshold(self, x: Term) -> _Class:
        """Of all x + number > 0 only from which number on they hold is open."""
        terms = self.conditions.terms
        rest = terms.sub(x, terms.constant(terms.offset(x)))
        falls = rest != terms.zero and terms.leading(rest) > 0
        base = rest if falls else terms.scale(rest, -1)
        family = base, terms.one, -1
        if family not in self.families:
            self.families.append(family)
            self.ends.append(None)
        number = self.families.index(family)
        # base + n > 0, or -base + n > 0, which is that base + 1 - n > 0 does not hold
        offset = terms.offset(x)
        return _Member(number, None, -offset if falls else offset - 1, falls)

    def _depends(self, what: int | Holds) -> tuple[int, ...]:
        """Return how deep the loops are that a family, or a factor, depends on."""
        found = self._support.get(what)
        if found is None:
            terms = self.conditions.terms
            if isinstance(what, int):
                leaves = terms.support_of(self.families[what][:2])
                own = self.families[what][2]
                depths = [d for kind, d in leaves if kind == "iteration" and d != own]
            else:
                depths = [d for kind, d in terms.support(what.x) if kind == "iteration"]
            found = self._support[what] = tuple(sorted(depths))
        return found

    def _factors(self, condition: Condition) -> Iterator[Holds]:
        return (factor for factors, _ in self._in_order(condition) for factor in factors)

    # --- asking -----------------------------------------------------------------------------------

    def asked(self, condition: Condition) -> frozenset[int | Holds]:
        """Return the families and the free choices that a condition may be decided by."""
        found: set[int | Holds] = set()
        for factor in self._factors(condition):
            match self._class(factor):
                case _Member(family) | _Fixed(far=_Member(family)):
                    found.add(family)
                case _Capped(_, parts):
                    found.update(*map(self.asked, parts))
                case _:
                    found.add(factor)
        return frozenset(found)

    def ask(
        self, condition: Condition, known: Known, labels: Labels
    ) -> bool | tuple[Question, int]:
        """Tell whether a condition holds, or the first question that is open and its number: none
        of a product of which something is known not to hold."""
        total, question = 0, None
        for factors, times in self._in_order(condition):
            open_, holds = None, True
            for factor in factors:
                answer = self._ask(factor, known, labels)
                if isinstance(answer, bool):
                    holds = holds and answer
                else:
                    open_ = open_ or answer
            if holds and open_ is not None:
                question = question or open_
            elif holds:
                total += times
        return total != 0 if question is None else question

    def _in_order(self, condition: Condition) -> Ordered:
        """Return the products of a condition, and their factors, in one order in every process."""
        found = self._ordered.get(condition)
        if found is None:
            products = [(tuple(sorted(product, key=str)), times) for product, times in condition]
            found = self._ordered[condition] = tuple(sorted(products, key=str))
        return found

    def _ask(self, factor: Holds, known: Known, labels: Labels) -> bool | tuple[Question, int]:
        match self._class(factor):
            case _Fixed() as fixed if (answer := self._fixed(factor, fixed, labels)) is not None:
                return answer
            case _Capped(every, parts):
                for part in parts:
                    answer = self.ask(part, known, labels)
                    if not isinstance(answer, bool) or answer != every:
                        return answer
                return every
            case (_Member() as member) | _Fixed(far=_Member() as member):
                answer = self._inside(member, known, labels)
                return answer == member.falls if isinstance(answer, bool) else answer
            case _:
                question = factor, self._key(factor, labels), EXACT
                found = known.get(question)
                return (question, 0) if found is None else found[0] is not None

    def _fixed(self, factor: Holds, fixed: _Fixed, labels: Labels) -> bool | None:
        """Decide a function of one iteration's number; of a far one where it has no threshold."""
        tag, i = labels[fixed.depth]
        x = fixed.a * i + fixed.b
        if factor.what == "zero":
            if tag == EXACT:
                return x == 0
            return None if -fixed.b // fixed.a >= i else False
        if tag == EXACT or (x > 0) == (fixed.a > 0):
            return x > 0
        return None

    def _inside(self, member: _Member, known: Known, labels: Labels) -> bool | tuple[Question, int]:
        """Tell whether a number of a family is inside of it."""
        family = member.family
        tag, number = labels[member.depth] if member.depth is not None else (EXACT, 0)
        number += member.more
        end = self.ends[family]
        if end is not None and (tag == EXACT or number >= end):
            return number < end
        key = self._key(family, labels)
        question = family, key, tag
        low, high = known.get(question, (None, None))
        if low is not None and number <= low:
            return True
        if high is not None and number >= high:
            return False
        if tag == EXACT:
            sure = self._always(family, number)
            if sure is not None:
                return sure
            far = (
                low
                for (what, other, _), (low, _) in known.items()
                if (what, other) == (family, key)
            )
            if any(low is not None and number <= low for low in far):
                return True
        else:
            _, most = known.get((family, key, EXACT), (None, None))
            if most is not None and number >= most:
                return False
        return question, number

    def _always(self, family: int, number: int) -> bool | None:
        """Tell what holds for every launch of a number of a family."""
        known = self._sure.get((family, number))
        if known is None:
            terms, (length, step, _) = self.conditions.terms, self.families[family]
            known = self.conditions.positive(terms.add(length, step, -number))
            self._sure[family, number] = known
        if not known:
            return False
        return True if known == ALWAYS else None

    def follows(self, question: Question, number: int, known: Known, labels: Labels) -> bool | None:
        """Tell the answer to an open question that numbers of iterations around a loop give, of
        which its length is made, or what is known of other families; None where it is open."""
        family, _, tag = question
        if not isinstance(family, int) or tag != EXACT:
            return None
        length, step, _ = self.families[family]
        left = self.conditions.terms.add(length, step, -number)
        answer = self.ask(self.conditions.positive(left), known, labels)
        return answer if isinstance(answer, bool) else None

    def _key(self, what: int | Holds, labels: Labels) -> Labels:
        return tuple(labels[depth] for depth in self._depends(what))

    def told(self, known: Known) -> str:
        """Say of which launches the answers are that were got in iterations known exactly."""
        terms, found = self.conditions.terms, list[str]()
        for (what, labels, own), (low, high) in known.items():
            if {own, *(tag for tag, _ in labels)} != {EXACT}:
                continue
            if isinstance(what, int):
                length, step, _ = self.families[what]
                for number, holds in ((low, "> 0"), (high, "<= 0")):
                    if number is not None:
                        found.append(f"{terms.text(terms.add(length, step, -number))} {holds}")
            else:
                found.append(("not " if low is None else "") + self.conditions.text(what))
        return ", ".join(found)

    # --- forgetting -------------------------------------------------------------------------------

    def settled(
        self, known: Known, places: Sequence[Place], unit: int
    ) -> tuple[Known, list[Labels]]:
        """Write what is known, and where agents are, in its normal form: far iterations are counted
        from the least of them, and what nobody will ask again is forgotten.

        `unit`: how many instances share the iterations of the outermost loop.
        """
        labels = [place.labels for place in places]
        for depth in range(max(map(len, labels), default=0)):
            crowds: dict[tuple[Labels, Loop], list[int]] = {}
            for who, each in enumerate(labels):
                if len(each) > depth:
                    crowd = each[:depth], places[who].loops[depth]
                    crowds.setdefault(crowd, []).append(who)
            for (prefix, (family, _)), crowd in crowds.items():
                late = any(
                    who not in crowd and _joins(labels[who], place, prefix)
                    for who, place in enumerate(places)
                )
                wait = self.patience if late else 0
                share = unit if depth == 0 else 1
                known = self._moved(known, labels, crowd, depth, family, share, wait)
        return self._forgotten(known, labels, places), labels

    def _moved(
        self,
        known: Known,
        labels: list[Labels],
        crowd: list[int],
        depth: int,
        family: int,
        unit: int,
        wait: int,
    ) -> Known:
        """Condition the iterations of agents in one loop from the least of them; exactly for `wait`
        iterations more."""
        tags = {labels[who][depth][0] for who in crowd}
        if len(tags) > 1:  # some came late, and go by themselves
            for tag in sorted(tags):
                some = [who for who in crowd if labels[who][depth][0] == tag]
                for part in [[who] for who in some] if tag == EXACT else [some]:
                    known = self._moved(known, labels, part, depth, family, unit, wait)
            return known
        (old,) = tags
        if min(labels[who][depth][1] for who in crowd) <= self.exact(depth) + wait:
            return known
        more = (min(labels[who][depth][1] for who in crowd) - self.exact(depth)) // unit * unit
        if more <= 0:
            return known
        tag = old
        if tag == EXACT:
            taken = {each[depth][0] for each in labels if len(each) > depth}
            tag = next(each for each in range(len(labels)) if each not in taken)
        prefix = labels[crowd[0]][:depth]
        for who in crowd:
            each = labels[who]
            labels[who] = (*each[:depth], (tag, each[depth][1] - more), *each[depth + 1 :])
        kept: Known = {}
        for (what, key, own), (low, high) in known.items():
            depends = self._depends(what)
            mine = isinstance(what, int) and self.families[what][2] == depth
            place = depends.index(depth) if depth in depends else None
            of = key[place][0] if place is not None else own if mine else old
            if of == tag != old:
                continue  # the tag was of others, who have left: of another c
            here = all(key[n] == prefix[d] for n, d in enumerate(depends) if d < depth)
            if place is not None and of == old and here:
                number = key[place][1]
                if number < self.exact(depth) + more:
                    continue
                key = (*key[:place], (tag, number - more), *key[place + 1 :])
            elif mine and of == old and here:
                far = (
                    low - more if low is not None and low - more >= -self.behind else None,
                    max(high - more, -self.behind) if high is not None else None,
                )
                if far != (None, None):
                    kept[what, key, tag] = far
                if old != EXACT:
                    continue
            kept[what, key, own] = low, high
        end = self.ends[family] if family >= 0 else None
        if old == EXACT and end is not None:  # what was seen of a loop whose end nobody asks
            last = max(labels[who][depth][1] for who in crowd) + self.beyond
            kept[family, (), tag] = min(end - 1 - more, last), None
        return kept

    def _forgotten(self, known: Known, labels: list[Labels], places: Sequence[Place]) -> Known:
        kept: Known = {}
        for (what, key, tag), (low, high) in known.items():
            depends = self._depends(what)
            if not any(
                what in self._asks(labels[who], place, known, depends, key)
                for who, place in enumerate(places)
            ):
                continue
            if isinstance(what, int):
                depth = self.families[what][2]
                if depth < 0:
                    kept[what, key, tag] = low, high
                    continue
                inside = {each[depth][0] for each in labels if len(each) > depth}
                if tag not in inside:
                    # Nobody is there now: only a bound is left, for who comes to the loop again;
                    # who has yet to come to these iterations makes as many as the others.
                    late = inside or len(depends) == depth
                    most = self.exact(depth) + (self.patience + 1 if late else 0)
                    low = min(low, most) if low is not None else None
                    if tag != EXACT or (high is not None and high > most):
                        high = None
                    before, after = kept.get((what, key, EXACT), (None, None))
                    low = max((n for n in (low, before) if n is not None), default=None)
                    high = after if high is None else high
                    tag = EXACT
                elif tag == EXACT and (what, key, EXACT) in kept:
                    before, _ = kept[what, key, EXACT]
                    low = max((n for n in (low, before) if n is not None), default=None)
                if (low, high) == (None, None):
                    continue
            kept[what, key, tag] = low, high
        return kept

    def _asks(
        self, labels: Labels, place: Place, known: Known, depends: tuple[int, ...], key: Labels
    ) -> frozenset[int | Holds]:
        """Return what an agent may still ask in iterations of these labels: of the loops that it is
        in, or of one that is yet to begin, whose first iterations are exact."""
        none = frozenset[int | Holds]()
        if place.ended:
            return none
        level = depends[-1] + 1 if depends else 0
        for depth, (tag, number) in zip(depends, key, strict=True):
            own, at = labels[depth] if depth < len(labels) else (tag, -1)
            if own != tag or at > number:
                soon = tag == EXACT and number <= self.exact(depth) + self.patience
                return place.ahead[depth].asks if soon and place.ahead[depth].enters else none
            if at < number:
                level = min(depth, len(labels))
                break
        found = place.ahead[level].asks
        for depth in range(level, len(labels)):
            family = place.loops[depth][0]
            following = _Member(family, depth, 1, True)
            if family < 0 or self._inside(following, known, labels) is not False:
                return found | place.ahead[depth].again
            found |= place.ahead[depth + 1].asks | {family}  # at its head it asks for its end
        return found


def answered(known: Known, question: Question, number: int, *, holds: bool) -> Known:
    """Return what is known once a question is answered: at `number` a family goes on, or not."""
    low, high = known.get(question, (None, None))
    if not isinstance(question[0], int):
        return {**known, question: (1, None) if holds else (None, 0)}
    return {**known, question: (number, high) if holds else (low, number)}


def _joins(labels: Labels, place: Place, prefix: Labels) -> bool:
    """Tell whether an agent outside of a loop may still come to it, in iterations `prefix` of the
    loops around it."""
    if place.ended:
        return False
    for own, other in zip(labels, prefix, strict=False):
        if own != other:
            return own[0] != other[0] or own[1] < other[1]
    return place.ahead[min(len(labels), len(prefix))].enters
