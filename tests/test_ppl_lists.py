"""Lists by recursion: cells in a lane's memory."""

from __future__ import annotations

import numpy as np
import pytest

import ppl_models as models
from tawa import ppl
from tawa.errors import GradientError, ModelError, StackError


@ppl.model
def collected(stop):
    def go(xs):
        if ppl.sample(ppl.Bernoulli(stop)):
            return xs
        return go(ppl.cons(ppl.sample(ppl.Normal(1.0, 1.0)), xs))

    xs = go(ppl.nil(0.0))
    return len(xs), ppl.to_vector(xs, 3, 0.0), ppl.reduce(lambda a, b: a + b, xs, 0.0)


@ppl.model
def filtered(ys):
    def go(xs, x):
        if ppl.empty(xs):
            return x
        x = ppl.sample(ppl.Normal(0.9 * x, 0.5))
        ppl.observe(ppl.Normal(x, 1.0), ppl.head(xs))
        return go(ppl.tail(xs), x)

    return go(ppl.to_list(ys), ppl.sample(ppl.Normal(0.0, 1.0)))


@ppl.model
def remembered(ys):
    """What particles remember is copied with them."""
    xs = ppl.nil(0.0)
    x = 0.0
    for y in ys:
        x = ppl.sample(ppl.Normal(0.9 * x, 0.5))
        xs = ppl.cons(x, xs)
        ppl.observe(ppl.Normal(x, 1.0), y)
    return x, ppl.to_vector(xs, len(ys), 0.0), ppl.head(xs)


def test_a_list_of_random_length_has_the_distribution_of_its_items():
    n, stop = 40_000, 0.4
    post = ppl.infer(collected, stop, method="importance", draws=n, stack=200, seed=1)
    count, first, total = (np.asarray(v)[0] for v in post.value)
    mean = (1 - stop) / stop
    spread = np.sqrt((1 - stop) / stop**2)
    assert abs(count.mean() - mean) < 4 * spread / np.sqrt(n)
    assert np.corrcoef(count, total)[0, 1] > 0.7
    assert abs(total.mean() - mean) < 4 * np.sqrt(mean + spread**2) / np.sqrt(n)
    np.testing.assert_array_equal((first != 0.0).sum(1), np.minimum(count, 3))
    short = count <= 3
    np.testing.assert_allclose(first[short].sum(1), total[short], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("method", "size"), [("smc", "particles"), ("importance", "draws")])
def test_recursion_over_a_list_is_a_loop_over_its_vector(method, size):
    options = {"method": method, "seed": 2, size: 500, "stack": 100}
    lists = ppl.infer(filtered, models.SERIES, **options)
    loop = ppl.infer(models.kalman, models.SERIES, **options)
    assert lists.log_evidence == loop.log_evidence
    np.testing.assert_array_equal(lists.value, loop.value)


def test_particles_keep_their_lists_when_they_are_copied():
    post = ppl.infer(remembered, models.SERIES, method="smc", particles=400, seed=3)
    last, path, head = (np.asarray(v)[0] for v in post.value)
    np.testing.assert_array_equal(path[:, 0], last)
    np.testing.assert_array_equal(head, last)
    assert len(np.unique(path[:, -1])) < 250, "ancestors are shared"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_have_the_same_bits_in_the_interpreter(dtype):
    options = {"dtype": dtype, "seed": 5, "stack": 200}
    for model, given, method, size in (
        (collected, (0.5,), "importance", {"draws": 20}),
        (remembered, (models.SERIES,), "smc", {"particles": 20}),
        (filtered, (models.SERIES,), "mh", {"chains": 2, "draws": 5, "warmup": 2}),
        (filtered, (models.SERIES[:3],), "tempered", {"particles": 20, "steps": 2}),
    ):
        posts = [
            ppl.infer(model, *given, method=method, device=device, **options, **size)
            for device in ("cpu", "interpreter")
        ]
        for a, b in zip(*(p.value if isinstance(p.value, tuple) else (p.value,) for p in posts)):
            np.testing.assert_array_equal(a, b)


def test_items_are_numbers_vectors_records_and_lists():
    @ppl.model
    def mixed(n):
        inner = ppl.cons(1.5, ppl.nil(0.0))
        outer = ppl.cons(ppl.cons(2.5, inner), ppl.nil(inner))
        rows = ppl.cons([1.0, 2.0], ppl.nil([0.0, 0.0]))
        records = ppl.nil((0, 0.0, True))
        for i in range(n):
            records = ppl.cons((i, i / 2.0, i == 2), records)
        if n > 3:
            inner = ppl.cons(0.5, inner)
        second = ppl.head(ppl.tail(records))
        return ppl.head(ppl.tail(ppl.head(outer))), ppl.head(rows), len(inner), second

    deep, row, count, second = ppl.infer(mixed, 4, method="importance", draws=1).value
    assert deep == 1.5
    np.testing.assert_array_equal(row[0, 0], [1.0, 2.0])
    assert count == 2
    assert [np.asarray(v).item() for v in second] == [2, 1.0, True]


def test_a_branch_chooses_between_lists():
    @ppl.model
    def chosen():
        xs = ppl.nil(0.0)
        if ppl.sample(ppl.Bernoulli(0.5)):
            xs = ppl.cons(1.0, ppl.cons(2.0, xs))
        return len(xs)

    found = ppl.infer(chosen, method="importance", draws=100, seed=1).value
    assert set(np.unique(found)) == {0, 2}


def test_a_vector_holds_lists():
    @ppl.model
    def held(y):
        lists = ppl.map(lambda v: ppl.cons(v, ppl.cons(2.0 * v, ppl.nil(0.0))), y)
        return ppl.head(ppl.tail(lists[1])), ppl.map(lambda xs: ppl.head(xs), lists)

    second, heads = ppl.infer(held, np.array([3.0, 5.0]), method="importance", draws=1).value
    assert second == 10.0
    np.testing.assert_array_equal(heads[0, 0], [3.0, 5.0])


def _run(model, *given, **options):
    return ppl.infer(model, *given, **{"method": "importance", "draws": 8, **options})


def test_what_lists_cannot_do_is_an_error():
    @ppl.model
    def returned():
        return ppl.nil(0.0)

    @ppl.model
    def mixed():
        return ppl.head(ppl.cons((1.0, 2.0), ppl.nil(0.0)))

    @ppl.model
    def through(x):
        total = 0.0
        for v in ppl.to_list(x):
            total = total + v
        return total

    @ppl.model
    def no_list(x):
        return ppl.head(x)

    @ppl.model
    def none():
        return ppl.nil(None)

    x = np.ones(3)
    for model, given, text in (
        (returned, (), "to_vector"),
        (mixed, (), "a list of .* cannot begin with a record of 2"),
        (through, (x,), "a list cannot be gone through"),
        (no_list, (x,), "head takes a list"),
        (none, (), "a list cannot hold None"),
    ):
        with pytest.raises(ModelError, match=text):
            _run(model, *given)
    with pytest.raises(GradientError, match="remembered has lists"):
        ppl.infer(remembered, models.SERIES, method="nuts")


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_a_lane_that_cannot_go_on_ends(device):
    """Loops that wait for what never comes after a fault: an empty list, a heap, an index."""

    @ppl.model
    def headless(x):
        xs = ppl.nil(x)
        while ppl.head(xs) < 1.0:
            xs = ppl.tail(xs)
        return 1

    @ppl.model
    def endless(x):
        xs = ppl.cons(x, ppl.nil(x))
        while ppl.head(xs) < 1.0:
            xs = ppl.cons(ppl.head(xs), xs)
        return 1

    @ppl.model
    def beyond(xs):
        k = 0
        while xs[k] < 3.0:
            k += 1
        return k

    for model, given, error, text in (
        (headless, 0.0, ModelError, "head or tail of an empty list in 8 of 8"),
        (endless, 0.0, StackError, "lists took more than 64 words in 8 of 8"),
        (beyond, np.zeros(3), ModelError, "an index was outside of its vector in 8 of 8"),
    ):
        with pytest.raises(error, match=text):
            _run(model, given, device=device)
