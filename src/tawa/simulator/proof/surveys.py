"""The surveys of a kernel: runs whose questions are kept, who asked them, and what follows.

A survey has new questions, of which other inputs are run (`cells`), and all of them are compared:
what not all roles ask must follow from what they do (`common`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.common import Common
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.expressions import Facts
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.numbers import trip_count
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.run import Entry, Run
from tawa.simulator.proof.scalars import Scalars, itself, truth
from tawa.simulator.proof.sharing import Sharing

_FEW = 3  # questions of one loop or condition that inputs are made of
_WHAT = {trip_count: "trips", truth: "a condition", itself: "a slot or phase"}


@dataclass(frozen=True, slots=True)
class Survey:
    """A survey: its questions, those of them that inputs are made of, and what it entered."""

    configuration: Configuration
    scalars: Scalars
    questions: list[Question]
    new: set[Question]
    entered: set[Entry]


class Surveys:
    """The surveys so far; those that `listens` alone are heard, and no inputs are made of them."""

    def __init__(self, model: Model, sharing: Sharing) -> None:
        self.all: list[Survey] = []
        self.longest = model.shape.long
        """The trips of a loop in a run at most."""
        self._model, self._sharing = model, sharing
        self._fresh: list[Survey] = []
        self._asking: dict[Operation, set[Entry]] = {}
        self._askers: dict[Question, dict[Operation, list[Facts]]] = {}

    def note(self, run: Run) -> None:
        """Keep what a run asked, if it was a survey, and how long its loops were."""
        if not run.configuration.free:
            self.longest = max(self.longest, run.longest)
        for question, who in run.askers.items():
            askers = self._askers.setdefault(question, {})
            for asker, facts in who.items():
                askers.setdefault(asker, []).extend(facts)
        if run.asked and not run.configuration.listens:
            self._fresh.append(self._survey(run))

    def _survey(self, run: Run) -> Survey:
        """Return what a survey asked; of a longer run what each loop or condition asked first, and
        where all trips do the same further on, what they asked a few times.
        """
        shape = self._model.shape
        most = 1 if run.configuration.given else _FEW if shape.everywhere else len(run.asked)
        asked: Counter[Operation] = Counter()
        found: dict[Question, Operation] = {}
        for question, who in run.asked.items():
            asked[who] += 1
            if asked[who] <= most:
                found[question] = who
        new = {question for question, who in found.items() if self._is_new(question, who, run)}
        for who in found.values():
            self._asking.setdefault(who, set()).update(self._within(who, run))
        return Survey(run.configuration, run.scalars, list(found), new, run.entered)

    def _is_new(self, question: Question, who: Operation, run: Run) -> bool:
        """Tell whether what asks this asked nothing in a survey before, or, where roles ask unlike,
        what is inside it was not entered then.
        """
        if who not in self._asking:
            return True
        within = self._within(who, run) <= self._asking[who]
        return not within and not self._sharing.is_common(self._askers[question])

    def _within(self, who: Operation, run: Run) -> set[Entry]:
        """Return what a run entered of a loop or condition, and of those within."""
        holds = self._model.decoder.census.holds
        return {entry for entry in run.entered if holds(who, entry[0])}

    def fresh(self) -> list[Survey]:
        """Return the surveys since this was asked last."""
        found, self._fresh = self._fresh, []
        self.all += found
        return found

    def unlike(self) -> list[Question]:
        """Return the questions that not all roles ask which turn what they are about."""
        asked = self._askers.items()
        return [each for each, askers in asked if not self._sharing.is_common(askers)]

    def branches(self) -> dict[scf.IfOp, None]:
        """Return the conditions that not all roles ask for which turn what is in them."""
        asked = (who for question in self.unlike() for who in self._askers[question])
        found = (who for who in asked if isinstance(who, scf.IfOp))
        return dict.fromkeys(who for who in found if not self._sharing.is_even(who))

    def undecided(self) -> set[Question]:
        """Return the questions that do not follow from what all roles ask."""
        if not self.unlike():
            return set()
        units = self._model.expressions.units
        return Common(self._askers, self._sharing, units, self.longest).undecided()

    def decided(self, undecided: set[Question]) -> set[Question]:
        """Return the other questions."""
        return self._askers.keys() - undecided

    def doubt(self, undecided: set[Question]) -> Unproved:
        """Return what is to be said of questions that do not follow."""
        question = next(each for each in self._askers if each in undecided)
        return Unproved(
            f"roles ask for {_WHAT[question[0]]} in unlike ways, and may disagree for some input",
            next(iter(self._askers[question])),
        )
