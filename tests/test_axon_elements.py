"""Element types: a result has that of its type, of narrow integers and of what nothing says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tawa import axon
from tawa.axon.fuse import compile, fuse
from tawa.axon.run.values import NAMES
from tawa.errors import AxonError, AxonGuard

INTEGERS = """
X + Y; X - Y; X * Y; floordiv X P; mod X P; maximum X Y; minimum X Y; less X Y; where (X > Y) X Y
clip 1 100 X; neg X; abs X; sign X; square X; relu X; X * 2 - Y; sum {axes = [1]} X; sum_all X
prod {axes = [1]} X; sum_keep {axes = [0]} (X * Y); max {axis = 1} X; argmax {axis = 1} X
cumsum X; cumprod X; sort X; argsort X; topk {count = 2} X; matmul X (transpose Y)
einsum "ij,kj->ik" X Y; dot (ravel X) (ravel Y); pad {axis = 0, after = 1, value = 3} X
max_pool {size = 2, stride = 1, pad = 1} (reshape X [1, 1, 3, 4]); tril X; ones_like X
gather {axis = 0} F I; take_along {axis = 0} F J; embedding F I; cross_entropy (F * 1.0) L
fold (fn a => fn v => a + v) (select {axis = 0, index = 0} X) X; X * cast (last X); X + zeros [4]
X + iota 4; X + full 2 [4]; concat [X, ones [1, 4]] 0; X * cast B; cast_like X B
"""
HALVES = """
X * cast (last X); X * rsqrt (cast (last X)); X + zeros [4]; X + iota 4; X + full 0.5 [4]
concat [X, zeros [1, 4]] 0; where (X > 0.0) X (zeros [4]); linear X (eye 4); zeros [4] - X
one_hot {classes = 4} I + X; X * cast B; map (fn v => v * cast (last X)) X; fst_of (X, iota 4)
X + fold (fn a => fn v => a + v) 0.0 (iota 4); maximum (cast B) X; sum {axes = [0]} (X * zeros [4])
X * tanh 2.0; X / sqrt (square 0.5 + 0.75); X + where B 3.0 4.0; X + square 3 / square 2
X + insert {axes = [0]} 2.0; X + stack [2.0, 3.0, 4.0, 5.0] 0; X + expand 2.0 [3, 4]
X + reshape 2.0 [1]; concat [X, reshape 2 [1, 1] * ones [3, 1]] 1; X + sum {axes = []} 2.0
"""
WIDE = {"int8": 120, "uint8": 120, "int16": 9000, "int32": 2**30}


def expressions(text):
    return [item.strip() for item in text.replace("\n", ";").split(";") if item.strip()]


def result(text, env):
    used = [name for name in env if re.search(rf"\b{name}\b", text)]
    function = axon.load(f"fun fst_of (a, b) = a * b\nfun f {' '.join(used)} = {text}").f
    return function, [env[name] for name in used]


def typed(text, function, arguments, found):
    want = function.check(*arguments).element
    assert NAMES[str(found.dtype).removeprefix("torch.")] == want, (text, want, found.dtype)


@pytest.mark.parametrize("name", WIDE)
def test_integers_keep_their_type_and_wrap(name):
    """Every result is that of 64 bits, cut to the bits of its type; of torch the same."""
    torch = pytest.importorskip("torch")
    rng, info = np.random.default_rng(0), np.iinfo(name)
    low = max(info.min, -WIDE[name])
    wide = {
        "X": rng.integers(low, WIDE[name], (3, 4)),
        "Y": rng.integers(low, WIDE[name], (3, 4)),
        "P": rng.integers(1, 5, (3, 4)),
        "I": np.array([0, 2, 120]),
        "J": rng.integers(0, 120, (2, 4)),
    }
    rest = {"F": rng.random((300, 4), np.float32), "B": wide["X"] > 0}
    rest["L"] = rng.integers(0, 4, 300)
    narrow = {key: value.astype(name) for key, value in wide.items()}
    for text in expressions(INTEGERS):
        function, arguments = result(text, narrow | rest)
        found = function(*arguments)
        typed(text, function, arguments, found)
        exact, given = result(text, wide | rest)
        np.testing.assert_array_equal(found, np.asarray(exact(*given)).astype(found.dtype), text)
        tensors = function(*map(torch.as_tensor, arguments))
        typed(text, function, arguments, tensors)
        np.testing.assert_allclose(tensors.numpy(), found, 1e-6, err_msg=text)


def test_what_has_no_type_takes_that_of_what_it_meets():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    env = {"X": rng.random((3, 4)) - 0.5, "I": np.array([0, 2, 1]), "B": rng.random((3, 4)) > 0.5}
    for text in expressions(HALVES):
        for name in ("float16", "float64"):
            function, arguments = result(text, env | {"X": env["X"].astype(name)})
            typed(text, function, arguments, function(*arguments))
        tensors = env | {"X": torch.as_tensor(env["X"]).to(torch.bfloat16)}
        function, arguments = result(text, tensors)
        typed(text, function, arguments, function(*arguments))
    alone = axon.load("fun f x = (cast (last x), zeros [2], iota 2 * 2)").f(env["X"])
    assert [each.dtype.name for each in alone] == ["float32", "float32", "int64"]
    assert all(type(each) is np.ndarray for each in alone)


@pytest.mark.parametrize("name", ["float16", "float64"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_convolutions_of_images_without_a_type_have_that_of_the_filters(library, name):
    convert = pytest.importorskip("torch").from_numpy if library == "torch" else np.asarray
    program = """
    fun conv_ (w, x) = conv {pad = 1} w (cast x)
    fun back (w, x) = conv_transpose {} w (cast x)
    fun alone x = conv {} (ones [2, 3, 3]) (cast x)
    """
    module, x, w = axon.load(program), np.ones((1, 3, 4), np.int64), np.ones((3, 3, 3), name)
    for function in (module.conv_, module.back):
        found = function((convert(w), convert(x)))
        assert (str(found.dtype).removeprefix("torch."), float(found.max())) == (name, 9)
    alone = module.alone(convert(x))
    assert (str(alone.dtype).removeprefix("torch."), float(alone.max())) == ("float32", 9)


def test_a_number_that_does_not_fit_is_refused():
    torch = pytest.importorskip("torch")
    function = axon.load("fun f x = x + 300").f
    for one in (np.zeros(3, np.int8), torch.zeros(3, dtype=torch.int8)):
        with pytest.raises(AxonGuard, match=r"300 .*out of bounds for int8"):
            function(one)
    assert function(np.zeros(3, np.int16)).tolist() == [300] * 3


FUSED = """X * Y - X, mod X P, where (X > Y) X (neg Y), sign X,
sum {axes = [1]} (X * 2), max {axis = 1} X, X * cast (last X)"""
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("int8", "int16")]


@pytest.mark.parametrize("name", ["uint8", *LONG])
def test_kernels_of_narrow_integers_are_numpy(name):
    """All in one kernel: several take as many seconds to compile."""
    rng, low = np.random.default_rng(0), max(np.iinfo(name).min, -WIDE[name])
    env = {key: rng.integers(low, WIDE[name], (3, 40)).astype(name) for key in "XY"}
    env |= {"P": rng.integers(1, 5, (3, 40)).astype(name), "F": rng.random((3, 40), np.float32)}
    function, arguments = result(f"({FUSED})", env)
    for found, want in zip(fuse(function)(*arguments), function(*arguments), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)


def test_sums_of_a_traced_module_are_those_of_torch():
    """A traced module does not say of what type x is."""
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def forward(self, x):
            return x.sum(1), x.cumsum(1), x.prod(1)

    graph = axon.load_fx(Module(), dims={"x": "n m"})
    for dtype in (torch.float16, torch.int64):
        x = torch.full((2, 5), 100).to(dtype)
        for found, want in zip(graph(x), Module()(x), strict=True):
            torch.testing.assert_close(found, want)
    with pytest.raises(AxonGuard, match=r"int8 is i64 for torch.*\n.*load_export"):
        graph(torch.ones((2, 5), dtype=torch.int8))


def test_arrays_inside_of_a_kernel():
    function, x = axon.load("fun f x = x + zeros [40]").f, np.ones((3, 40), np.int8)
    assert compile(function)(x).dtype == np.int8
    both = compile(axon.load("fun f x = (concat [x, zeros [1, 40]] 0, iota 3)").f)
    assert [(type(each), each.dtype) for each in both(x)] == [
        (np.ndarray, np.int8),
        (np.ndarray, np.int64),
    ]
    with pytest.raises(AxonError, match=r"constant \[40\]"):
        fuse(function)(x)
