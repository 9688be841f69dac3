"""The sums that a form is a function of: those found in it are all there are."""

from __future__ import annotations

import pytest

from proof_kernels import text
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.simulator.proof.common import Common
from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.forms import Form, Terms, direction
from tawa.target import H200


def sums_in(common: Common, form: Form) -> set[Terms]:
    """All sums anywhere in a form."""
    found: set[Terms] = set()
    work = [form]
    for item in work:
        if item[0] and direction(item) not in found:
            found.add(direction(item))
            for place, _ in item[0]:
                atom = common._forms.atoms[place]
                if not isinstance(atom, Expr):
                    work += atom[1]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "flash 128 causal split",
        "attention packed 1",
        "instances three",
        "instances residual depth 1",
    ],
)
def test_numbers_are_the_sums_that_say_all(name: str, monkeypatch) -> None:
    made: list[Common] = []
    undecided = Common.undecided

    def keep(common: Common):
        made.append(common)
        return undecided(common)

    monkeypatch.setattr(Common, "undecided", keep)
    prove(parse(text(name)), H200)
    assert made
    for common in made:
        singles = common._singles
        forms = list(common._who)
        sums = {each for form in forms for each in sums_in(common, form)}
        for form in forms:
            assert set(singles.numbers(form)) == {
                each for each in sums if singles.is_of(form, each)
            }
