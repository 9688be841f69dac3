"""The surveys of a kernel: runs whose questions are kept, who asked them, and what follows.

A survey has new questions, of which other inputs are run (`cells`), and all of them are compared:
what not all roles ask must follow from what they do (`common`).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.common import Common
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.control import has_steps
from tawa.simulator.proof.expressions import Facts
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.numbers import trip_count
from tawa.simulator.proof.reach import Reach
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.run import Entry, Run
from tawa.simulator.proof.scalars import Scalars, itself, truth
from tawa.simulator.proof.sharing import Sharing

_CONTROLS = (scf.ForOp, scf.IfOp, scf.WhileOp)
_WHAT = {trip_count: "trips", truth: "a condition", itself: "a slot or phase"}


@dataclass(frozen=True, slots=True)
class Survey:
    """A survey: its questions, those of them that none before has asked, and what it entered."""

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
        self._asking: set[Operation] = set()
        self._met: set[Operation] = set()
        self._askers: dict[Question, dict[Operation, list[Facts]]] = {}

    def note(self, run: Run) -> None:
        """Keep what a run asked, if it was a survey, and how long its loops were."""
        if not run.configuration.free:
            self.longest = max(self.longest, run.longest)
        self._met |= run.surveyed
        for question, who in run.askers.items():
            askers = self._askers.setdefault(question, {})
            for asker, facts in who.items():
                askers.setdefault(asker, []).extend(facts)
        if run.asked and not run.configuration.listens:
            self._fresh.append(self._survey(run))

    def _survey(self, run: Run) -> Survey:
        """Return what a survey asked; of a longer run what each loop or condition asked first."""
        found = run.asked
        if run.configuration.given:
            first: dict[Operation, Question] = {}
            for question, who in run.asked.items():
                first.setdefault(who, question)
            found = {question: who for who, question in first.items()}
        new = {question for question, who in found.items() if who not in self._asking}
        self._asking.update(found.values())
        return Survey(run.configuration, run.scalars, list(found), new, run.entered)

    def fresh(self) -> list[Survey]:
        """Return the surveys since this was asked last."""
        found, self._fresh = self._fresh, []
        self.all += found
        return found

    def unmet(self, reach: Reach) -> list[Operation]:
        """Return the loops and conditions to which no survey came."""
        return [
            control
            for role in self._model.roles
            for control in self._model.decoder.census.of(*_CONTROLS, within=role.operation)
            if control not in self._met and not self._is_settled(control, reach)
        ]

    def _is_settled(self, control: Operation, reach: Reach) -> bool:
        """Tell whether no input decides what a loop or condition does, or it does nothing."""
        decoder = self._model.decoder
        if control in decoder.uniform.fixed or control in decoder.uniform.constant:
            return True
        blocks = [region.block for region in control.regions if region.blocks]
        return not any(has_steps(block, decoder) for block in blocks) or reach.is_dead(control)

    def unlike(self) -> list[Question]:
        """Return the questions that not all roles ask which turn what they are about."""
        asked = self._askers.items()
        return [each for each, askers in asked if not self._sharing.is_common(askers)]

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
