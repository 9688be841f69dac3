"""Random programs: their guards hold exactly where NumPy runs them, and shapes are equal."""

from __future__ import annotations

import numpy as np
import pytest

from axon_programs import annotations_hold, other_inputs, random_program
from tawa import axon
from tawa.axon.library import scheme_of
from tawa.axon.module import Function
from tawa.axon.run.evaluate import Evaluation
from tawa.axon.shapes.constraints import Holds
from tawa.axon.shapes.solver import Conflict
from tawa.axon.shapes.words import Source
from tawa.axon.syntax.parser import parse_program
from tawa.axon.types.infer import Inference
from tawa.axon.types.kinds import Scheme, Tensor, arrows
from tawa.axon.types.unify import Mismatch
from tawa.errors import AxonError, AxonGuard
from tawa.integers import constant


def by_numpy(made, value, arrays):
    """The result, None where NumPy or the annotations refuse."""
    if not annotations_hold(made, arrays):
        return None
    try:
        with np.errstate(all="ignore"):
            for array in arrays:
                value = value(array)
    except (ValueError, IndexError):
        return None
    return value


def by_guards(function, arrays):
    """The shape of the result, None where a guard refuses."""
    try:
        return tuple(size.value for size in function.check(*arrays).word)
    except AxonGuard:
        return None


def with_simple_guards(function):
    """The function with its conditions as they are printed, simplified."""
    inferred = function.inferred
    scheme = inferred.scheme
    kept = [c for c in scheme.constraints if not isinstance(c, Holds)]
    asked = [c for c in scheme.constraints if isinstance(c, Holds)]
    kept += [Holds(asked[0].source, condition) for condition in function.conditions]
    simple = Function(inferred, function.names, function._evaluation)
    simple.inferred = type(inferred)(
        inferred.name, Scheme(scheme.type, scheme.general, tuple(kept)), inferred.place
    )
    return simple


def judge(seed: int) -> bool:
    """Compare on five inputs; tell whether a check was left for run time."""
    made = random_program(seed)
    text = made.text()
    value = Evaluation(parse_program(text)).value("f")
    try:
        function = axon.load(text).f
    except AxonError:
        function = None
    simple = with_simple_guards(function) if function is not None else None
    for turn in range(5):
        arrays = made.inputs if turn == 0 else other_inputs(made, seed * 10 + turn)
        result = by_numpy(made, value, arrays)
        shape = None if result is None else result.shape
        if function is None:
            assert shape is None, f"refused, but NumPy runs it: seed {seed}\n{text}"
            continue
        said = by_guards(function, arrays)
        assert said == shape, f"guards {said}, NumPy {shape}: seed {seed}\n{text}"
        assert by_guards(simple, arrays) == shape, f"simplified guards: seed {seed}\n{text}"
    if function is None:
        return False
    known = all(p.startswith("(") and ".." not in p for p in made.parameters)
    waiting = [c for c in function.inferred.scheme.constraints if not isinstance(c, Holds)]
    return known and bool(waiting)


def test_guards_hold_where_numpy_runs():
    late = sum(judge(seed) for seed in (*range(500), 7968))
    assert late < 10  # 2%


@pytest.mark.long
@pytest.mark.parametrize("start", range(500, 10_000, 500))
def test_guards_hold_where_numpy_runs_long(start):
    late = sum(judge(seed) for seed in range(start, start + 500))
    assert late < 10


def instantiates(function, shapes):
    """Whether a function's scheme has the type of f32 arrays of shapes, the last its result."""
    inference = Inference(scheme_of, lambda place, why: AxonError(why))
    inference.begin()
    place = function.inferred.place
    source = Source(0, function.name, place, place)
    kind = inference.instantiate(function.inferred.scheme, source)
    *taken, given = [Tensor("f32", tuple(map(constant, shape))) for shape in shapes]
    try:
        inference.unify(arrows(taken, given), kind, source)
        inference.release()
        inference.settle(final=True)
    except (Conflict, Mismatch):
        return False
    return not inference.solver.waiting and not inference.solver.facts


def instances(seed: int) -> int:
    """Compare a scheme with types of sizes alone that it has, and that it has not; count those."""
    made = random_program(seed)
    text = made.text()
    value = Evaluation(parse_program(text)).value("f")
    found, function = 0, None
    for turn in range(5):
        arrays = made.inputs if turn == 0 else other_inputs(made, seed * 10 + turn)
        result = by_numpy(made, value, arrays)
        if result is None:
            continue
        found += 1
        function = function or axon.load(text).f
        taken, sizes = [array.shape for array in arrays], result.shape
        assert instantiates(function, [*taken, sizes]), f"seed {seed}\n{text}"
        places = range(len(sizes))
        more = [[size + (axis == k) for axis, size in enumerate(sizes)] for k in places]
        for other in ([*sizes, 1], *more):
            assert not instantiates(function, [*taken, other]), f"seed {seed}\n{text}"
    return found


def test_schemes_are_those_of_all_their_instances():
    assert sum(map(instances, range(1000, 1040))) > 80


@pytest.mark.long
def test_schemes_are_those_of_2000_instances():
    seeds, found = iter(range(1000, 10_000)), 0
    while found < 2000:
        found += instances(next(seeds))
