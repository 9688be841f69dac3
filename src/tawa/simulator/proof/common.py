"""What all roles ask of an input, and what follows from it.

Runs of a few inputs speak for all where roles go by the same answers: what one does by an answer,
the others do, and each answer is run. So the questions of the surveys are compared in normal form
(`forms`). A question is *common* where all roles that turn a ring in what asked it ask it as well.
Others must follow from those that are. Roles often split one length in two ways:

    for k in range(low, high, 64): put          if low < high: get
                                                for k in range(low + 64, high, 64): get

These are functions of one number, ``high - low``, and the trips on the left decide what is asked on
the right: a *class* of questions, which all roles of the ring ask something of. What neither is nor
follows from such is *undecided*: roles may disagree on it for inputs that no run was of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import Operation

from tawa.ir import tile
from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.expressions import Expr, Facts, parts_of
from tawa.simulator.proof.forms import ONE, Form, Forms, Terms, direction, plain, plus
from tawa.simulator.proof.numbers import trip_count
from tawa.simulator.proof.scalars import truth
from tawa.simulator.proof.sharing import Sharing
from tawa.simulator.proof.single import Singles
from tawa.simulator.proof.words import least_of

Askers: TypeAlias = Mapping[Operation, Sequence[Facts]]
"""Who asked a question, and what held there."""


@dataclass(eq=False, slots=True)
class Place:
    """Where something was asked: what is positive there, and what follows from that."""

    facts: tuple[Form, ...]
    follows: dict[Form, bool] = field(default_factory=dict[Form, bool])


class Common:
    """The questions of a kernel, with who asked them; more than `many` trips are all alike."""

    def __init__(
        self,
        questions: Mapping[Question, Askers],
        sharing: Sharing,
        units: Mapping[Expr, int],
        many: int,
    ) -> None:
        self._sharing = sharing
        self._forms = Forms(units, list(dict.fromkeys(_steps(questions))))
        self._singles = Singles(self._forms, many)
        self._places: dict[int, Place] = {}
        self._told: dict[tuple[Form, ...], Place] = {}
        self._form = {question: self._form_of(question) for question in questions}
        self._who: dict[Form, list[Operation]] = {}
        self._where: dict[Form, dict[Place, None]] = {}
        for question, askers in questions.items():
            form = self._form[question]
            for who, facts in askers.items():
                if form[0] and _goes_by(who) and not sharing.is_even(who):
                    self._who.setdefault(form, []).append(who)
                    places = dict.fromkeys(map(self._place, facts))
                    self._where.setdefault(form, {}).update(places)
        self._known: dict[Terms, Form] = {}
        self._of: dict[Terms, list[Form]] = {}
        self._pairs: dict[Form, list[tuple[Form, Terms]]] = {}
        self._may: dict[Form, bool] = {}
        self._over: dict[Form, list[Form]] = {}
        for form, who in self._who.items():
            if sharing.is_shared(who):
                self._know(form)

    def undecided(self) -> set[Question]:
        """Return the questions that neither are common nor follow from such."""
        left = [form for form in self._who if not self._follows_always(form)]
        while left and (found := self._class(left)) is not None:
            self._know(found)
            self._pairs.clear()
            self._may.clear()
            for place in self._told.values():
                place.follows = {form: True for form, does in place.follows.items() if does}
            left = [form for form in left if not self._follows_always(form)]
        return {question for question, form in self._form.items() if form in left}

    def _know(self, form: Form) -> None:
        """Take a question for one that all roles go by."""
        self._known[form[0]] = form
        for number in self._singles.numbers(form):
            self._of.setdefault(number, []).append(form)

    def _form_of(self, question: Question) -> Form:
        """Return what a question asks about, but for a factor and a number."""
        outcome, scalars = question
        forms = [self._forms.of(item) for item in scalars]
        if outcome is trip_count:
            form = self._forms.trips(*forms)
        else:
            form = self._forms.truth(forms[0]) if outcome is truth else forms[0]
        return direction(form) if form[0] else (), 0

    def _place(self, facts: Facts) -> Place:
        found = self._places.get(id(facts))
        if found is None:
            told = tuple(sorted(set(self._positive(facts))))
            found = self._places[id(facts)] = self._told.setdefault(told, Place(told))
        return found

    def _positive(self, facts: Facts) -> Iterator[Form]:
        """Yield what is positive where something was asked."""
        while facts is not None:
            facts, one, other = facts
            more = plus(self._forms.of(one), self._forms.of(other), -1)
            yield from (more, *self._forms.by_steps(more))

    # --- what follows -----------------------------------------------------------------------------

    def _follows_always(self, form: Form) -> bool:
        """Tell whether an answer follows from common ones wherever it is asked for."""
        return all(self._follows(form, place) for place in self._where[form])

    def _follows(self, form: Form, place: Place) -> bool:
        """Tell whether a form follows from what is common."""
        found = place.follows.get(form)
        if found is None:
            found = not form[0] or (
                self._may_follow(form)
                and (self._is_decided(form, place) or self._is_made(form, place))
            )
            place.follows[form] = found
        return found

    def _may_follow(self, form: Form) -> bool:
        """Tell whether a form may follow somewhere, whatever holds there."""
        if not form[0]:
            return True
        found = self._may.get(form)
        if found is None:
            found = self._may[form] = self._may_be_decided(form) or self._may_be_made(form)
        return found

    def _may_be_decided(self, form: Form) -> bool:
        return direction(form) in self._known or bool(self._beside(form))

    def _may_be_made(self, form: Form) -> bool:
        if len(form[0]) > 1:
            return all(self._may_follow(plain(at)) for at, _ in form[0])
        at, _ = next(iter(form[0]))
        atom = self._forms.atoms[at]
        if isinstance(atom, Expr):
            return False
        function, args = atom
        return (
            function == "rounded"
            or (function == "positive" and any(map(self._may_be_decided, self._overs(args[0]))))
            or all(map(self._may_follow, args))
        )

    def _is_decided(self, form: Form, place: Place) -> bool:
        """Tell whether something common decides a form, as functions of one number."""
        if direction(form) in self._known:
            return True
        decides, facts = self._singles.decides, place.facts
        return any(decides(known, form, number, facts) for known, number in self._beside(form))

    def _beside(self, form: Form) -> list[tuple[Form, Terms]]:
        """Return what is common and a function of a sum that a form is a function of, with it."""
        found = self._pairs.get(form)
        if found is None:
            singles = self._singles
            found = self._pairs[form] = [
                (known, number)
                for number in singles.numbers(form)
                for known in self._of.get(number, ())
            ]
        return found

    def _is_made(self, form: Form, place: Place) -> bool:
        """Tell whether a form is made of what follows from what is common."""
        if len(form[0]) > 1:
            return all(self._follows(plain(at), place) for at, _ in form[0])
        at, _ = next(iter(form[0]))
        atom = self._forms.atoms[at]
        if isinstance(atom, Expr):
            return False
        function, args = atom
        if function == "positive" and self._by_a_step(args[0], place):
            return True
        if function == "rounded" and self._is_natural(args[0], place):
            return True
        return all(self._follows(arg, place) for arg in args)

    def _by_a_step(self, form: Form, place: Place) -> bool:
        """Tell whether it follows whether a form is positive: it, or what is where it is not, is
        so where it is at least one step.
        """
        return any(self._is_decided(over, place) for over in self._overs(form))

    def _overs(self, form: Form) -> list[Form]:
        found = self._over.get(form)
        if found is None:
            sides = form, plus(ONE, form, -1)
            by_steps = (over for side in sides for over in self._forms.by_steps(side))
            found = self._over[form] = [self._forms.positive(over) for over in by_steps]
        return found

    def _is_natural(self, form: Form, place: Place) -> bool:
        """Tell whether a form is surely not below zero: not below what is positive, less one."""
        more = plus(form, ONE)
        return any(self._forms.is_natural(plus(more, fact, -1)) for fact in place.facts)

    # --- classes ----------------------------------------------------------------------------------

    def _class(self, left: list[Form]) -> Form | None:
        """Return a question from which others follow that are functions of the same number, if all
        roles that turn a ring where one of them was asked ask some of them.
        """
        for number in dict.fromkeys(n for form in left for n in self._singles.numbers(form)):
            members = [form for form in left if self._singles.is_of(form, number)]
            if self._sharing.is_shared(who for form in members for who in self._who[form]):
                for form in members:
                    if all(self._decides(form, other, number) for other in members):
                        return form
        return None

    def _decides(self, one: Form, other: Form, number: Terms) -> bool:
        """Tell whether one question of a class decides another wherever that is asked."""
        return one == other or all(
            self._singles.decides(one, other, number, place.facts) for place in self._where[other]
        )


def _steps(questions: Iterable[Question]) -> Iterator[Expr]:
    """Yield the sizes of the grid by which loops advance: they are positive."""
    for outcome, scalars in questions:
        if outcome is trip_count:
            for part in parts_of(scalars[2:]):
                if isinstance(part, Expr) and (least_of(part) or 0) > 0:
                    yield part


def _goes_by(who: Operation) -> bool:
    """Tell whether an operation goes by an answer: others hand it on, to what asks about that."""
    return bool(who.regions) or not isinstance(who, tile.Elementwise)
