"""All configurations of a kernel, one run each, until everything in it has been seen to work.

Beyond the configurations that every kernel gets, numbers are drawn at random while an operation
that synchronizes has not been reached, or a slot and phase with which a loop ended were not seen to
begin a trip. What stays open then is *unproved*: nothing that was never run is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from xdsl.dialects import scf

from tawa.simulator.proof.answers import Answers, Repeated
from tawa.simulator.proof.apart import Apart
from tawa.simulator.proof.cells import cells, pairs
from tawa.simulator.proof.choices import rehearse
from tawa.simulator.proof.configuration import (
    Configuration,
    configurations,
    listening,
    longer,
    shortly,
)
from tawa.simulator.proof.counts import Counts
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.reach import Reach
from tawa.simulator.proof.recurrence import Recurrence
from tawa.simulator.proof.rules import Contest, Endless, Impatient, OutOfSteps, Unproved, Violation
from tawa.simulator.proof.run import Entry, Run
from tawa.simulator.proof.search import Search
from tawa.simulator.proof.searches import SEARCHES, Searches, full
from tawa.simulator.proof.sharing import Sharing
from tawa.simulator.proof.surveys import Surveys
from tawa.simulator.proof.tours import Tour, Tours
from tawa.simulator.proof.ways import Way, Ways

STEPS = 400_000
"""Steps of all runs together before a kernel is called unproved."""

_IN_VAIN = STEPS // 2  # steps of all runs of a search that were given up
_SHORT = 2  # trips of the loops in a run of a cell
_DRAWS, _FILLED = 32, 4_000  # runs in which loops make all trips they can, and the steps of one
_OTHERS = 4  # drawings of numbers in place of those with which a loop does not end
_SMALL = 1_000  # steps of a run of small numbers, and of tiles known to be short
# Steps of a run that should give a loop a trip count, and of all such that were given up.
_TRIED, _TRIED_IN_VAIN = 2_000, 6_000
_LONGER = STEPS // 4  # of a run that goes on from where another ended


class Exploration:
    """The runs of a kernel so far: `run` is the one at hand, `seen` the configurations done."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.seen: list[Configuration] = []
        self.states = 0
        self.in_vain = 0  # steps of runs that were given up
        self.patient = False  # whether no numbers end a loop within the trips of a hasty run
        self.run: Run | None = None
        self.search = Search(model)
        self.answers = Answers()
        self.recurrence = Recurrence(model.decoder.uniform.fixed)
        self.tours = Tours()
        self.free: list[Tour] = []  # runs with free ends
        self.surveyed: set[Entry] = set()
        self.held: set[Entry] = set()  # where nothing else is asked than where these stand
        self.sharing = Sharing(model.decoder)
        self.surveys = Surveys(model, self.sharing)
        self.counts = Counts(model, self.sharing)
        roles = [role.operation for role in model.roles]
        self.reach = Reach(model.decoder, roles, self.sharing, self.counts.spans)

    def explore(self) -> None:
        """Run all configurations. Raises Violation or Unproved."""
        self.model.check_pure()
        self._explore()
        self._survey()
        self._pairs()
        self._lengths()
        self._survey()
        self._listen()
        self._pairs()
        self._apart()
        self._jumps()
        self.search.close()

    def _explore(self) -> None:
        shape = self.model.shape
        for configuration in configurations(self.seen, shape):
            self._try(configuration)
        for found in self._cells():
            self._try(found)
        ways = Ways(self.model.decoder, tuple(role.operation for role in self.model.roles))
        for way in self._ways(ways):
            for configuration in way.configurations(shape):
                self._try(configuration)
        self._lengthen(_SMALL, 0, decided=True)
        searches = Searches(shape)
        for tries, steps in SEARCHES:
            for configuration in searches.fresh(self.seen, tries, steps):
                if self._is_whole():
                    return
                if self.in_vain >= _IN_VAIN:
                    break
                try:
                    self._try(configuration, steps)
                except OutOfSteps:
                    self.in_vain += steps
                    searches.give_up(configuration, steps)
                self._forget()
            self._lengthen(_LONGER, STEPS)
            for way in self._ways_to_missing(ways):
                for configuration in way.configurations(shape):
                    self._try(configuration)
            if not tries and self.reach.missing() is not None:
                self._fill()
        if (missing := self.reach.missing()) is not None:
            raise Unproved(f"no input was found that reaches {missing.name}", missing)
        if (loop := self.recurrence.missing()) is not None:
            raise Unproved(
                "the slots and phases of a loop were not seen to recur: later trips may "
                "synchronize in another way",
                loop,
            )

    def _is_whole(self) -> bool:
        return self.reach.missing() is None and self.recurrence.missing() is None

    def _is_taken(self) -> bool:
        """Tell whether a run of an input came to each place where roles meet, and took both sides
        of what they ask unlike, but for what is excluded.
        """
        untaken = self.reach.untaken(self.surveys.branches())
        return not self.reach.unlaunched() and untaken is None

    def _cells(self) -> list[Configuration]:
        """Return what runs the cells of inputs that surveys have questions about, and no run was in
        so far.
        """
        return [
            replace(each.configuration, outcomes={}, given=given, survey=False, hasty=False)
            for each in self.surveys.fresh()
            for given in cells(
                each.scalars, each.questions, _SHORT, self.tours.beyond(each.entered), each.new
            )
        ]

    def _fill(self) -> None:
        """Run loops with all their trips, on numbers drawn, while something is missing: as what
        follows a loop that makes so many at most, and runs after all of them only.
        """
        for configuration in full(self.model.shape, _DRAWS):
            if self.reach.missing() is None:
                return
            with suppress(OutOfSteps):
                self._try(configuration, _FILLED)
            self._forget()

    def _pairs(self) -> None:
        """Run small numbers of two arguments at a time where runs with free ends alone have come
        to, or of what roles ask unlike one side was not taken.
        """
        units = {each.place: each.unit for each in self.model.arguments}
        before = self.states
        for given in pairs({name: units[name[1]] for name in self.tours.arguments()}):  # pyright: ignore
            if self._is_taken() or self.states - before >= _TRIED_IN_VAIN:
                break
            try:
                again = replace(self.seen[0], given=given, survey=False, outcomes={})
                self._try(again, _SMALL)
            except OutOfSteps:
                self._give_up()

    def _ways(self, ways: Ways) -> Iterator[Way]:
        """Yield the ways to loops on other sides of conditions, and without what one holds that is
        the same throughout.
        """
        yield from ways.to_loops()
        for site in list(dict.fromkeys(site for one in self.seen for site in one.outcomes)):
            if site.kind == "once" and isinstance(site.operation, scf.IfOp):
                yield from ways.without(site.operation)

    def _ways_to_missing(self, ways: Ways) -> Iterator[Way]:
        """Yield the ways to what was not reached."""
        for operation in self.reach.unreached():
            if not self.reach.is_dead(operation):
                yield from ways.to(operation)

    def _lengthen(self, steps: int, vain: int, decided: bool = False) -> None:
        """Run what ended a loop as no trip was seen to begin again, with more trips of it: each in
        so many steps, and `vain` in all that were given up.
        """
        while (found := self.recurrence.astray(decided)) is not None:
            sites = dict.fromkeys(site for one in self.seen for site in one.outcomes)
            for again in longer(found.configuration, found.loop, sites, self.model.shape):
                if self.recurrence.missing() is None or vain < 0:
                    return
                try:
                    self._try(again, steps)
                except OutOfSteps:
                    vain -= steps
                    self._give_up()
                self._forget()

    def _try(self, configuration: Configuration, steps: int = STEPS, fresh: bool = False) -> None:
        """Run a configuration; a `fresh` one even where it repeats another. Numbers with which a
        loop of the program does not end are no launch's: others are drawn, unless they were given;
        and those with which it goes on for long are looked into only where all do.
        """
        for hasty in (False,) if configuration.given or self.patient else (True, False):
            asked, impatient = configuration, False
            if asked.hasty is not hasty or asked.outcomes:
                asked = replace(configuration, hasty=hasty, outcomes={})
            for seed in range(1, _OTHERS + 2):
                try:
                    return self._attempt(asked, steps, fresh)
                except Endless as found:
                    impatient |= isinstance(found, Impatient)
                    if seed > _OTHERS and not impatient:
                        raise
                self._give_up()
                if configuration.given:
                    return
                asked = replace(asked, outcomes={}, seed=seed)
            self.patient = True

    def _attempt(self, configuration: Configuration, steps: int, fresh: bool) -> None:
        try:
            run: Run = self._run(configuration, min(steps, STEPS - self.states), fresh=fresh)
        except Repeated:
            return self._give_up()
        except (Violation, Unproved) as found:
            if configuration.free:
                return self._forget()  # no input may do this: it proves and convicts nothing
            if isinstance(found, Unproved) or self.run is None:
                raise
            if not configuration.launched and not self.run.scalars.is_launch():
                self._give_up()  # blocks below zero convict nobody
                again = replace(configuration, launched=True, outcomes={})
                return self._attempt(again, steps, fresh)
            if not self.run.shortened:
                raise
            # What was left out may be what is missed: only a whole run convicts.
            run = self._run(replace(configuration, outcomes={}), STEPS, short=False)
        self.states += run.steps
        if run.scalars.course is not None:
            run.scalars.course.at.complete = True
        self.seen.append(run.configuration)
        self.reach.note(run)
        self.surveys.note(run)
        self.counts.note(run)
        if run.configuration.free:
            self.free.append(Tour(run.configuration, run.steps, {}, frozenset(run.entered)))
        else:
            self._note(run)
        self.recurrence.note(run)
        self._forget()

    def _note(self, run: Run) -> None:
        self.tours.note(run)
        if run.configuration.survey:
            self.surveyed |= run.entered
        elif run.configuration.is_held:
            self.held |= run.entered - self.reach.asked_in

    def _survey(self) -> None:
        """Survey what no survey has entered so far, and run the cells of inputs there, until these
        enter nothing else.
        """
        self._survey_tours()
        while found := self._cells():
            for configuration in found:
                self._try(configuration)
            self._survey_tours()

    def _survey_tours(self) -> None:
        """Go again where a run went that entered much of what no survey has, of alike ones the
        shortest.
        """
        while (tour := self.tours.farthest(self._surveyed())) is not None:
            tour = self._shortened(tour)
            self.surveyed |= tour.entered
            self._survey_of(tour)

    def _shortened(self, tour: Tour) -> Tour:
        """Return a run of as few tiles as a run that went far, if it goes as far."""
        numbers = {name: n for name, n in tour.given.items() if name[0] == "argument"}
        again = shortly(replace(tour.configuration, survey=False), self.model.shape)
        self._try(replace(again, given=numbers))
        found = self.tours.farthest(self._surveyed())
        return tour if found is None else found

    def _surveyed(self) -> set[Entry]:
        """Return what need not be surveyed: where all roles ask alike, what asks nothing itself."""
        mixed = self.model.decoder.uniform.mixed
        return self.surveyed if mixed or self.surveys.unlike() else self.surveyed | self.held

    def _survey_of(self, tour: Tour | None) -> None:
        """Go where a run went, as a survey."""
        if tour is not None:
            again = replace(tour.configuration, given=tour.given, survey=True, outcomes={})
            self._try(again, fresh=True)

    def _lengths(self) -> None:
        """Run loops that turn rings with trip counts they were not seen to make."""
        vain = 0
        for loop, wanted in self.counts.unmade():
            if not self.counts.is_surveyed(loop):
                self._survey_of(self.tours.shortest(loop))
            for configuration in self.counts.tries(loop, wanted):
                if vain >= _TRIED_IN_VAIN:
                    break
                try:
                    self._try(configuration, _TRIED)
                except OutOfSteps:
                    vain += _TRIED
                self._forget()
            self.counts.leave(loop, wanted)
        for loop, counts in self.counts.left.items():
            if not self.counts.agree(loop):
                raise Unproved(
                    f"no input was found with which a loop makes {counts[0]} trips, nor anything "
                    "that excludes it, and roles may make unlike numbers of trips then",
                    loop,
                )

    def _listen(self) -> None:
        """Hear what long loops ask, where that goes by an input and by the number of a trip, and
        what is asked where runs with free ends alone have come to.
        """
        if self.model.decoder.uniform.mixed:
            for configuration in listening(self.model.shape):
                self._try(configuration, fresh=True)
        for around in dict.fromkeys(self.reach.unlaunched().values()):
            free = (run for run in self.free if around in run.entered)
            again = replace(min(free, key=lambda run: run.steps).configuration, outcomes={})
            self._try(replace(again, survey=True, listens=True), fresh=True)

    def _apart(self) -> None:
        """Run inputs that tell apart what roles ask unlike, and all runs have answered alike; say
        what none of them showed to be wrong.
        """
        undecided = self.surveys.undecided()
        if not undecided:
            return
        decided = self.surveys.decided(undecided)
        for survey in self.surveys.all:
            beyond = self.tours.beyond(survey.entered)
            for given in Apart(survey.scalars, survey.questions, decided, beyond).inputs():
                with suppress(OutOfSteps):
                    again = replace(survey.configuration, outcomes={}, given=given, survey=False)
                    self._try(again, _FILLED)
                self._forget()
        raise self.surveys.doubt(undecided)

    def _jumps(self) -> None:
        """Raise Unproved where runs do not speak for other slots and phases."""
        for loop in self.model.decoder.uniform.jumping:
            raise Unproved(
                "a slot or phase goes on over the trips of other roles in a way that is not seen "
                "to be the same from each slot and phase",
                loop,
            )

    def _give_up(self) -> None:
        self.states += self.run.steps if self.run is not None else 0
        self._forget()

    def _forget(self) -> None:
        """Take the run at hand apart: nobody reports on it."""
        if self.run is not None:
            self.run.release()
            self.run = None

    def _run(
        self, configuration: Configuration, steps: int, short: bool = True, fresh: bool = False
    ) -> Run:
        # A free loop ends where it is wanted to, whatever its end is computed from.
        answers = None if fresh or configuration.free or not short else self.answers
        if answers is not None:
            rehearse(self.model, configuration, answers)
        run = Run(self.model, configuration, steps, short=short, answers=answers)
        self.run = run
        try:
            run.execute()
        except Contest as found:
            if configuration.free:
                raise
            try:
                return self.search.decide(configuration, found)
            finally:
                self.run = self.search.run
        return run
