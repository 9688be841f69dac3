"""Schemes, errors and calls of `tawa.axon`, word for word; known failures of other tools."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from axon_programs import other_inputs, random_program
from tawa import axon
from tawa.axon.library import composed, reference, scheme_of, signatures
from tawa.axon.shapes.solver import Solver
from tawa.errors import AxonError, AxonGuard, MissingPackage
from tawa.tools.cli import main

SOURCE = Path(axon.__file__).parent


def schemes(text):
    return axon.check(text, "net.axon").split("\n")


def test_the_schemes_of_the_manual():
    text = """
fun dense (w, b) x = linear x w + b                     (* no shape is written *)
fun attention (q, k, v) =
  let val s = matmul q (transpose k) * rsqrt (cast (last q))
  in matmul (softmax s) v end
fun deep n f x = loop n f x                              (* f : 'a -> 'a keeps the shape *)
fun half filter (x : f32[n, c, h, w]) : f32[n, k, (h + 1) // 2, (w + 1) // 2] =
  conv {kernel = 3, stride = 2, pad = 1} filter x
"""
    assert schemes(text) == [
        "dense     : (f32[m, n] * f32[..b]) -> f32[..s, m] -> f32[..r]"
        "    where ..r = broadcast([..s, n], ..b)",
        "attention : (f32[..q, t, d] * f32[..k, u, d] * f32[..v, u, e]) -> f32[..r, t, e]"
        "    where ..r = broadcast(..q, ..k, ..v)",
        "deep      : int n -> ('a -> 'a) -> 'a -> 'a    requires n >= 0",
        "half      : f32[k, c, 3, 3] -> f32[n, c, h, w] -> f32[n, k, (h + 1)//2, (w + 1)//2]"
        "    requires h >= 1, w >= 1",
    ]


STEP = """fun step : forall n h w. (x : f32[n, 3, h, w]) (f : f32[k, 3, 3, 3]){requires} =
  let val c = conv {{stride = 2, pad = 1}} f x
  val up = upsample {{scale = 2}} c
  val y = concat [x, up] 1
  in y end
"""


def test_the_error_of_a_step_of_u_net():
    with pytest.raises(AxonError) as caught:
        axon.check(STEP.format(requires=""), "net.axon")
    assert str(caught.value) == (
        "net.axon:4:11: error: the shapes of `concat` differ on axis 2\n"
        "   4 |   val y = concat [x, up] 1\n"
        "     |                      ^^ axis 2 is 2*((h + 1)//2), "
        "from conv at 2:15 and upsample at 3:12\n"
        "   1 | fun step : forall n h w. (x : f32[n, 3, h, w]) (f : f32[k, 3, 3, 3]) =\n"
        "     |                           ^ axis 2 is h\n"
        "  they are equal only where h is even.  do: write `requires h % 2 = 0`, or pad x"
    )


def test_a_promise_with_what_it_requires():
    kept = STEP.format(requires=" requires h % 2 = 0, w % 2 = 0")
    step = axon.load(kept).step
    assert step(np.zeros((1, 3, 4, 6), np.float32), np.zeros((5, 3, 3, 3), np.float32)).shape == (
        1, 8, 4, 6,
    )  # fmt: skip
    with pytest.raises(AxonError, match="w is even"):
        axon.check(STEP.format(requires=" requires h % 2 = 0"))


def test_without_a_promise_the_condition_is_a_guard():
    step = axon.load(STEP.format(requires="").replace(": forall n h w. ", "")).step
    assert {guard.text for guard in step.guards} == {
        "h % 2 == 0", "w % 2 == 0", "h >= 2", "w >= 2",
    }  # fmt: skip
    filters = np.ones((2, 3, 3, 3), np.float32)
    assert step(np.ones((1, 3, 4, 6), np.float32), filters).shape == (1, 5, 4, 6)
    with pytest.raises(AxonGuard, match=r"it needs h % 2 = 0, for `concat` at 4:11"):
        step(np.ones((1, 3, 5, 6), np.float32), filters)


LEVELS = """fun net (x : f32[n, 4, h, w]) (f : f32[4, 4, 3, 3]) (g : f32[4, 4, 2, 2]) =
  let {down} {up}
  in u0 end
"""


def levels(count):
    down = ["val d0 = x"]
    up = [f"val u{count} = d{count}"]
    for level in range(1, count + 1):
        down.append(f"val d{level} = conv {{stride = 2, pad = 1}} f d{level - 1}")
        up.append(
            f"val u{count - level} = "
            f"conv_transpose {{stride = 2}} g u{count - level + 1} + d{count - level}"
        )
    return LEVELS.format(down="\n".join(down), up="\n".join(up))


@pytest.mark.parametrize(
    ("body", "scheme"),
    [
        ("x + slice {axis = 0} (dim 1 x) (p : f32[512, d])", "f32[b, n, d]    requires n <= 512"),
        ("(slice {axis = 0} 1 x : f32[1, ..s])", "f32[1, n, d]    requires b >= 1"),
        ("concat [slice {axis = 0} 1 x, x] 0", "f32[b + min(1, b), n, d]"),
        ("x + slice {axis = 0} 2 (p : f32[k, d])",
         "f32[b, broadcast(n, min(2, k)), d]    requires min(2, k) = n or n = 1 or k = 1"),
    ],
)  # fmt: skip
def test_extremes_are_said_shortly_where_sizes_decide_them(body: str, scheme: str):
    program = axon.load(f"fun f (x : f32[b, n, d]) p = {body}")
    assert program.f.scheme.partition(" -> ")[2].partition(" -> ")[2] == scheme


def test_what_is_broadcast_and_cannot_be_is_refused_when_loaded():
    text = "matmul (matmul (pad {axis = 1, before = 3} y + reshape y [dim 0 y, -1]) x) x"
    with pytest.raises(AxonError, match="the shapes of `matmul` differ on axis 1"):
        axon.load(f"fun f (x : f32[b, n, d]) (y : f32[b, n]) = {text}")


def test_a_rank_below_nothing_is_an_error_of_the_program():
    parts = "diagonal (unsqueeze {axis = 2} y), unsqueeze {axis = 2} (insert {axes = [-2]} x)"
    inner = f"concat [{parts}] 1"
    text = f"fun f (x : f32[n, ..s]) (y : f32[k, d]) = concat [{inner}, insert {{axes = [1]}} y] 1"
    with pytest.raises(AxonError, match="a rank would be negative"):
        axon.load(text)


def test_axes_at_a_known_end_need_no_rank():
    norm = "fun norm (x : f32[..s, d]) = x * rsqrt (mean_keep {axes = [-1]} (square x))"
    assert axon.load(norm).norm.scheme == "f32[..s, d] -> f32[..s, d]"
    inner = "insert {axes = [0]} (sum {axes = [-1]} x)"
    ends = f"fun ends (x : f32[d, ..s, e]) = sum {{axes = [0, 1]}} ({inner})"
    assert axon.load(ends).ends.scheme == "f32[d, ..s, e] -> f32[..s]"
    at = "fun at (x : f32[..s, d, e]) (y : f32[..t]) : f32[..t at -1] = reshape x [last y]"
    assert " at " not in axon.load(at).at.scheme


def test_why_divisible_by_sixteen():
    """pytorch#144852: the answer is `h % 16 == 0`, not a chain of floors."""
    concat = levels(4)
    for level in range(4):
        inner = f"conv_transpose {{stride = 2}} g u{level + 1} + d{level}"
        same = f"concat [conv_transpose {{stride = 2}} g u{level + 1}, d{level}] 1"
        concat = concat.replace(inner, f"drop_last {{axis = 1, count = 4}} ({same})")
    found = {guard.text for guard in axon.load(concat).net.guards}
    assert {"h % 16 == 0", "w % 16 == 0"} <= found
    sums = axon.load(levels(4)).net  # a sum broadcasts: sizes of 1 fit too
    weights = np.ones((4, 4, 3, 3), np.float32), np.ones((4, 4, 2, 2), np.float32)
    assert sums(np.ones((1, 4, 16, 32), np.float32), *weights).shape == (1, 4, 16, 32)
    with pytest.raises(AxonGuard):
        sums(np.ones((1, 4, 24, 32), np.float32), *weights)


def test_floor_and_ceil_forms_are_one():
    """onnxruntime#21120: `ceil(d/2 - 1/2)` is `floor(d/2)`."""
    odd = "slice {axis = 0, start = 1, step = 2} (dim 0 x) x"
    text = f"fun f (x : f32[d]) = reshape ({odd}) [d // 2]"
    assert axon.load(text).f.guards == []


def test_resnet_needs_no_example():
    """pytorch#124507: odd and even sizes; no guard but that the input is not empty."""
    text = """fun net (x : f32[n, 3, h, w]) (a : f32[8, 3, 7, 7]) (b : f32[8, 8, 3, 3]) =
      let val y = max_pool {size = 3, stride = 2, pad = 1} (relu (conv {stride = 2, pad = 3} a x))
          val z = y + conv {pad = 1} b y
          fun down v = relu (conv {stride = 2, pad = 1} b v)
      in global_avg_pool (down (down z)) end"""
    net = axon.load(text).net
    assert [guard.text for guard in net.guards] == ["h >= 1", "w >= 1"]
    weights = np.ones((8, 3, 7, 7), np.float32), np.ones((8, 8, 3, 3), np.float32)
    for h, w in ((1, 1), (7, 8), (16, 9)):
        assert net(np.ones((2, 3, h, w), np.float32), *weights).shape == (2, 8)


def test_batches_of_any_size():
    """pytorch#133653: a reshape that keeps the batch puts no condition on it."""
    text = "fun f (x : f32[b, t, 8]) = unheads (heads {count = 2} x) + reshape x [b, -1, 8]"
    assert [guard.text for guard in axon.load(text).f.guards] == ["b >= 1"]


def test_a_condition_names_sizes_that_a_scheme_has():
    """What stands for some size that fits is projected away."""
    text = "fun f (x : f32[d]) = sum_all (heads {count = 3} (transpose (unfold SIZES x)))"
    made = axon.load(text.replace("SIZES", "{size = 2, stride = 2}")).f
    assert made.scheme == "f32[d] -> f32    requires d >= 2, d >= 6*((d + 4)//6)"
    for d in range(20):
        fits = d >= 2 and d // 2 % 3 == 0
        assert fits == (d >= 2 and d >= 6 * ((d + 4) // 6))
        with contextlib.nullcontext() if fits else pytest.raises(AxonGuard):
            made.check(np.zeros(d, np.float32))


def test_sizes_that_are_computed_twice():
    """onnxruntime#18360: a shape taken apart and put together is the shape."""
    text = "fun f (x : f32[a, b, c]) = reshape (ravel x) [dim 0 x, dim 1 x, size x // (a * b)]"
    found = schemes(text)[0]
    assert found.startswith("f : f32[a, b, c] -> f32[a, b, c]")


def test_sizes_in_annotations_may_be_sums():
    """jaxtyping#6: `n + 1` in an annotation binds and checks."""
    text = "fun f (x : f32[n]) (y : f32[n + 1]) = y + pad {axis = 0, after = 1} x"
    f = axon.load(text).f
    assert f(np.ones(3, np.float32), np.ones(4, np.float32)).shape == (4,)
    with pytest.raises(AxonGuard):
        f(np.ones(3, np.float32), np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fun f x = relux x", "net.axon:1:11: error: `relux` is not defined; did you mean `relu`"),
        ("fun f x = split {axis = 0} x 2", "takes no further argument: it is {axis : int"),
        ("fun f x = relu {axis = 1} x", "`relu` takes no options here: it is f32[..r] -> f32[..r]"),
        ("fun f g x = relu (rms_norm g)", ", a function that waits for another argument"),
        ("fun f x = max x", "`max` needs the option `axis`"),
        ("fun f x = max {axes = 1} x", "has no option `axes`; it has axis"),
        ("fun f x = x x", "would have to contain itself"),
        ("fun f (x : f32[n]) (y : i64[n]) = x + y", "cast one of them"),
        ("fun f (x : f32[2, 3]) = reshape x [4, -1]", "no sizes satisfy it"),
        ("fun f (x : f32[2, 3]) = permute x [0, 0]", "name one axis twice"),
        ("fun f (x : f32[2, 3]) = sum {axes = [2]} x", "axes [2] of a shape with 2 axes"),
        ("fun f (x : f32[3]) = matmul x x", "at least 2 axes wanted, 1 axis given"),
        ("fun f x = (x", "net.axon:1:13: error: `,` or `)` is wanted here, not the end"),
        ("fun f x = x $ x", "'$' means nothing"),
        ("fun f x = x (* never", "the comment has no end"),
        ("fun f (x : f32[n // 0]) = x", "a dimension is divided by 0"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(AxonError) as caught:
        axon.check(text, "net.axon")
    assert message in str(caught.value)


def test_a_call_that_does_not_fit_names_the_array_and_the_axis():
    dense = axon.load("fun dense (w, b) x = linear x w + b").dense
    w, b, x = np.ones((3, 4)), np.ones(4), np.ones((2, 3))
    for given, why in (
        (((w, b), x.T), r": axis 1 of \[3, 2\] is 2, 3 is wanted\n"),
        (((w[0], b), x), r": \[4\]: 2 axes wanted, 1 axis given\n"),
        (((w, b[:3]), x), r": it needs \.\.r = broadcast.* for `\+` at 1:33\n"),
    ):
        with pytest.raises(AxonGuard, match=why):
            dense(*given)


def test_a_graph_has_the_product_of_matrices_and_refuses_others_where_they_stand():
    @axon.graph
    def product(x, y):
        x @= y
        return x

    assert product.scheme == axon.load("fun product x y = matmul x y").product.scheme
    shown = r"do not have this operator\n.*return x << y\n *\| *\^{6}$"
    with pytest.raises(AxonError, match=shown):

        @axon.graph
        def shifted(x, y):
            return x << y


def test_let_is_general_and_an_application_is_not():
    general = """fun f (x : f32[2]) (y : f32[3, 3]) =
      let fun twice v = v + v in (twice x, twice y) end"""
    assert schemes(general) == ["f : f32[2] -> f32[3, 3] -> f32[2] * f32[3, 3]"]
    applied = """fun f (x : f32[2]) (y : f32[3, 3]) =
      let val same = identity (fn v => v) in (same x, same y) end"""
    with pytest.raises(AxonError, match="axis 0 is 3, 2 is wanted"):
        axon.check(applied)
    named = "fun f (x : f32[2]) (y : f32[3, 3]) = let val g = relu in (g x, g y) end"
    assert schemes(named) == ["f : f32[2] -> f32[3, 3] -> f32[2] * f32[3, 3]"]


def test_conditions_of_an_inner_function_hold_where_it_is_used():
    text = """fun f (x : f32[n, 4]) (y : f32[m, 4]) =
      let fun halves v = reshape v [2, -1] in (halves x, relu y) end"""
    f = axon.load(text).f
    assert [guard.text for guard in f.guards] == []  # 4*n is even
    text = text.replace("4]", "3]")
    assert [guard.text for guard in axon.load(text).f.guards] == ["n % 2 == 0"]


def test_functions_of_functions_run():
    text = """fun twice f x = f (f x)
      fun main x = twice (fn v => v + 1.0) (map (fn row => sum {axes = [0]} row) x)
      fun total x = fold (fn a => fn row => a + row) (zeros [dim 1 x]) x
      fun stairs x = scan (fn a => fn b => maximum a b) x
      fun power n x = loop n (fn v => v * x) x"""
    made = axon.load(text)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert made.main(x).tolist() == [5, 14]
    assert made.total(x).tolist() == [3, 5, 7]
    assert made.stairs(x).shape == (2, 3)
    assert made.power(2, x)[1, 2] == 125


def test_what_a_type_says_is_computed():
    """A cast, and what is made of no array, is of the element type that is written."""
    made = axon.load("""fun whole (x : f64[..s]) = (cast x : i64[..])
      fun places (x : f16[n]) = x + (iota n : f16[..])
      fun like x y = cast_like x y
      fun bound x = let val y : i64[..] = cast x in y end
      fun given (x : f64[..s]) : i64[..s] = cast x""")
    large = np.array([2.0**40 + 1, -1.5])
    for cast in (made.whole, made.bound, made.given):
        assert cast(large).tolist() == [2**40 + 1, -1]
    assert made.places(np.ones(3, np.float16)).dtype == np.float16
    assert made.like(np.ones(1, np.int8), np.ones(2)).dtype == np.int8


def test_composed_operators_of_large_numbers():
    made = axon.load("fun f x = (softplus x, log_sigmoid x, mish x, logaddexp x x)")
    x = np.array([-1e4, 0.0, 1e4], np.float32)
    two = np.log(2)
    for found, wanted in zip(
        made.f(x), ([0, two, 1e4], [-1e4, -two, 0], [0, 0, 1e4], [two - 1e4, two, 1e4 + two])
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@axon.graph
def half(x, w):
    """A function that others use."""
    return axon.relu(axon.conv(x, w, stride=2, pad=1, kernel=3))


LEVELS_DOWN, DOUBLE = 2, True


@axon.graph
def block(x: f32[n, 4, h, w], w):  # noqa: F821
    y = x
    for _ in range(LEVELS_DOWN):
        y = half(y, w)
    if DOUBLE:
        y = axon.upsample(y, 4)
    return axon.concat([x, y], axis=1)


def test_a_graph_in_python():
    assert {guard.text for guard in block.guards} == {
        "h % 4 == 0", "w % 4 == 0", "h >= 4", "w >= 4",
    }  # fmt: skip
    x, w = np.ones((1, 4, 8, 4), np.float32), np.ones((4, 4, 3, 3), np.float32)
    assert block(x, w).shape == (1, 8, 8, 4)
    with pytest.raises(AxonGuard):
        block(x[:, :, :6], w)


def test_what_a_graph_in_python_cannot_have():
    def late(x):
        if x:
            return x
        return x

    def odd(x):
        while True:
            x = x + 1

    with pytest.raises(AxonError, match="`x` is not known when the graph is made"):
        axon.graph(late)
    with pytest.raises(AxonError, match="cannot have this statement") as caught:
        axon.graph(odd)
    assert "test_axon_programs.py:" in str(caught.value)


def test_every_operator_has_a_scheme_and_a_meaning():
    assert len(signatures()) + len(composed()) >= 170
    assert not set(signatures()) & set(composed())
    for name in (*signatures(), *composed()):
        assert scheme_of(name) is not None
        assert name in composed() or callable(reference.meaning(name))


def test_the_order_of_constraints_does_not_matter(monkeypatch):
    """Shuffled, they give a scheme that takes and refuses the same, with the same shapes."""
    settle = Solver.settle
    for seed in range(60):
        made = random_program(seed)
        try:
            plain = axon.load(made.text()).f
        except AxonError:
            plain = None

        def shuffled(solver, seed=seed):
            items = list(solver._queue)
            random.Random(seed).shuffle(items)
            solver._queue.clear()
            solver._queue.extend(items)
            settle(solver)

        with monkeypatch.context() as patch:
            patch.setattr(Solver, "settle", shuffled)
            try:
                other = axon.load(made.text()).f
            except AxonError:
                other = None
        assert (plain is None) == (other is None)
        if plain is None:
            continue
        for turn in range(5):
            arrays = made.inputs if turn == 0 else other_inputs(made, seed * 10 + turn)
            found = []
            for function in (plain, other):
                try:
                    found.append([size.value for size in function.check(*arrays).word])
                except AxonGuard:
                    found.append(None)
            assert found[0] == found[1], made.text()


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "net.axon"
    path.write_text("fun f (x : f32[n]) = relu x\n")
    assert main(["axon", "check", str(path)]) == 0
    assert capsys.readouterr().out == "f : f32[n] -> f32[n]\n"
    assert main(["axon", "infer", f"{path}:f", "--args", "f32[3]"]) == 0
    assert capsys.readouterr().out == "f32[3]\n"
    assert main(["axon", "run", f"{path}:f", "--args", "f32[0]"]) == 0
    assert capsys.readouterr().out == "float32[0]\n"
    assert main(["axon", "run", f"{path}:f", "--args", "f32[2,2]"]) == 1
    assert "f cannot take [2, 2]" in capsys.readouterr().err
    path.write_text("fun f (w, b) x = linear x w + b\n")
    assert main(["axon", "infer", f"{path}:f", "--args", "(f32[3, 4],f32[4])", "f32[2,3]"]) == 0
    assert capsys.readouterr().out == "f32[2, 4]\n"
    assert main(["axon", "infer", f"{path}:f", "--args", "(f32[3,4], x)"]) == 2
    assert "'x' is no argument" in capsys.readouterr().err
    path.write_text("fun f x = nothing x")
    assert main(["axon", "check", str(path)]) == 1
    assert "net.axon:1:11" in capsys.readouterr().err
    assert main(["axon", "check", str(tmp_path / "no.axon")]) == 2


def test_without_islpy_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "islpy", None)
    assert schemes("fun f x = relu x") == ["f : f32[..s] -> f32[..s]"]
    with pytest.raises(MissingPackage, match=r'pip install "tawa\[axon\]"'):
        axon.check("fun f (x : f32[n]) = reshape x [2, -1]")


def test_axon_imports_nothing_of_the_compiler():
    for path in SOURCE.rglob("*.py"):
        allowed = ("tawa.axon", "tawa.errors", "tawa.integers")
        if path.parent.name == "fuse":  # makes kernels, by the door that is open to all
            door = ("tawa.ir.build", "tawa.language", "tawa.runtime.tile_function", "tawa ")
            allowed = (*allowed, *door, "tawa.runtime.arrays", "tawa.runtime.tensors")
            if path.name == "calls.py":  # what the library computes
                allowed = (*allowed, "tawa.kernels")
        for line in path.read_text().split("\n"):
            words = line.split()
            if words[:1] in (["from"], ["import"]) and words[1].startswith("tawa"):
                assert f"{words[1]} ".startswith(allowed), f"{path.name}: {line}"
    for path in SOURCE.parent.rglob("*.py"):
        if SOURCE not in path.parents and path.name != "cli.py":
            assert "tawa.axon" not in path.read_text().replace("`tawa.axon", ""), path
    code = "import sys, tawa.axon; assert not {'torch', 'onnx', 'islpy', 'xdsl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("val x = " + "(" * 3000 + "1" + ")" * 3000, "nested too deeply"),
        ("val x = " + "-" * 3000 + "1", "nested too deeply"),
        ("fun f (x : " + "(" * 3000, "nested too deeply"),
        ("fun f x = x" + " + x" * 3000, "nested too deeply"),
        ("fun f (x, (y, x)) = x", "the name `x` stands twice"),
        ("val f = fn (x, x) => x", "the name `x` stands twice"),
        ("fun f : forall n n. (x : f32[n]) = x", "`n` stands twice"),
        ("fun f x w = conv {pad = 1, pad = 2} w x", "the option `pad` stands twice"),
        ("val x = 1e999", "greater than any float"),
        ("val x = " + "9" * 5000, "more than 18 digits"),
        ("fun f (x : f32[" + "9" * 5000 + "]) = x", "more than 18 digits"),
    ],
)
def test_programs_beyond_the_parser_are_refused_with_a_place(text: str, why: str):
    limit = sys.getrecursionlimit()  # other tests' compilations raise it for the process
    sys.setrecursionlimit(1000)
    try:
        with pytest.raises(AxonError, match=why) as caught:
            axon.check(text)
    finally:
        sys.setrecursionlimit(limit)
    assert "^" in str(caught.value)


def test_the_type_of_einsum_follows_from_its_equation():
    module = axon.load(
        'fun product a b = einsum "ij, jk -> ik" a b\n'
        'fun batches a b = einsum "...ij,...jk->...ik" a b\n'
        'fun traced a = einsum "ii" a\n'
        'fun three (a, w, b) = einsum "bm,kmn,bn->bk" a w b'
    )
    assert module.product.scheme == "f32[i, j] -> f32[j, k] -> f32[i, k]"
    assert module.batches.scheme.endswith("where ..r = broadcast(..a, ..b)")
    assert module.traced.scheme == "f32[i, i] -> f32"
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((2, 1, 3, 4)), draw((5, 4, 2))
    np.testing.assert_allclose(module.batches(a, b), a @ b)
    given = draw((2, 3)), draw((4, 3, 5)), draw((2, 5))
    np.testing.assert_allclose(module.three(given), np.einsum("bm,kmn,bn->bk", *given))
    with pytest.raises(AxonGuard, match=r"cannot take \[2, 1\], \[3, 4\]"):
        module.product(draw((2, 1)), draw((3, 4)))  # which NumPy would broadcast
    for wrong, why in (("ij->ix", "in no operand"), ("i.j", "is letters"), ("...i->i", "has no")):
        with pytest.raises(AxonError, match=why):
            axon.check(f'fun f a = einsum "{wrong}" a')
    with pytest.raises(AxonError, match="equation stands first"):
        axon.check("fun f e a = einsum e a")


def test_shapes_are_joined():
    module = axon.load(
        "fun f x = reshape x ([1] ++ shape x ++ [1])\nfun g (x : f32[..s ++ [3]]) = x"
    )
    assert module.f(np.ones((2, 3))).shape == (1, 2, 3, 1)
    assert module.g.scheme == "f32[..s, 3] -> f32[..s, 3]"
    with pytest.raises(AxonError, match="not for integers"):
        axon.check("fun f x = reshape x (1 ++ 2)")
