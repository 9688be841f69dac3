"""Tile IR that no Python function made: compiled, launched, kept, refused; programs of kernels."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

import tawa
from lower_kernels import CASES
from tawa.analysis.statements import name_statements
from tawa.errors import ArgumentError, PlanError, TawaError
from tawa.frontend import build
from tawa.ir import LABEL, tile
from tawa.ir.build import KernelBuilder
from tawa.plan.pins import Pins
from tawa.runtime.compiler import compile_kernel
from tawa.runtime.request import Request
from tawa.runtime.store import DiskStore
from tawa.target import H200

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "05_without_source.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def add_one(name: str = "add_one", element: str = "f32") -> tile.Kernel:
    k = KernelBuilder(name)
    x, out, n = k.pointer("x", element), k.pointer("out", element), k.scalar("n", "i32")
    where = k.program_id(0) * 64 + k.arange(0, 64)
    value = k.load(x + where, where < n, name="value")
    k.store(out + where, value + 1, where < n, name="result")
    return k.finish()


@pytest.fixture(scope="module")
def kernel():
    return tawa.compile_ir(add_one())


# --- compiled -------------------------------------------------------------------------------------


def test_the_cuda_text_is_that_of_the_written_kernels(example):
    pairs = list(example["compiled"]())
    assert [built.name for _, built in pairs] == ["matmul", "row_sums"]
    for written, built in pairs:
        assert built.asm["cuda"] == written.asm["cuda"]
        assert built.plan == written.plan
        assert built.proof.ok


def test_the_example_computes(example):
    assert example["in_simulator"](np) < 1e-5


def test_plans_and_pins_speak_of_given_names():
    k = KernelBuilder("product")
    a, b = k.descriptor("a", "f16", (64, 64)), k.descriptor("b", "f16", (64, 64))
    c, extent = k.descriptor("c", "f32", (64, 64)), k.scalar("extent", "i32", divisible=16)
    with k.range(0, extent, 64, carry=[k.zeros((64, 64), "f32")], name="main") as loop:
        left = a.load([0, loop.index], name="left")
        right = b.load([loop.index, 0], name="right")
        loop.yield_(k.dot(left, right, loop.carried[0], name="partial"))
    c.store([0, 0], loop.results[0], name="whole")
    product = k.finish()
    made = tawa.compile_ir(product, depth={"left": 2}, schedule="fine")
    assert "aref left + right depth=2\nloop main schedule=fine" in str(made.plan)
    assert "store whole via=tma" in str(made.plan)
    assert tawa.compile_ir(product, plan=made.plan).asm["cuda"] == made.asm["cuda"]
    assert tawa.compile_ir(product, plan=str(made.plan)).plan == made.plan
    assert tawa.compile_ir(product, plan=Pins(depth={"left": 2})).plan.arefs == made.plan.arefs
    assert tawa.compile_ir(made.asm.text("tile"), plan=made.plan).asm["cuda"] == made.asm["cuda"]
    with pytest.raises(PlanError, match="nothing named 'middle'"):
        tawa.compile_ir(product, depth={"middle": 2})


@pytest.mark.parametrize("name", ["matmul", "attention", "gradients", "pointers"])
@pytest.mark.short("matmul", "attention")
def test_given_names_reach_the_generated_text(name):
    """Every statement is renamed; the plan and the CUDA text are the same but for the names."""
    case = CASES[next(each for each in CASES if each.split()[0] == name)]
    texts = []
    for offset in (0, 70000):
        kernel = build(case.function, case.signature, case.options)
        for statement, operation in name_statements(kernel).items():
            variable, _, line = statement.partition("@")
            operation.attributes[LABEL] = StringAttr(f"{variable}@{int(line) + 10000 + offset}")
        made = compile_kernel(Request(kernel, "", case.signature, case.options, case.pins, H200))
        texts.append(f"{made.plan}\n{made.asm['cuda']}")
    assert "@1" in texts[0]
    assert texts[1].replace("@80", "@10").replace("_80", "_10") == texts[0].replace("_80", "_10")


def test_options_and_pins_are_those_of_compile_ir(kernel):
    assert tawa.compile_ir(add_one(), {"num_warps": 2}).plan.warps == 2
    with pytest.raises(ArgumentError, match="a launch has no option 'depth'"):
        tawa.compile_ir(add_one(), {"depth": 2})
    with pytest.raises(ArgumentError, match="compile_ir does not know 'deep'"):
        tawa.compile_ir(add_one(), deep=2)
    with pytest.raises(ArgumentError, match="compile_ir got Pins and consumers besides"):
        tawa.compile_ir(add_one(), plan=Pins(), consumers=1)
    x = np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match="a launch of add_one gives num_warps"):
        kernel[1,](x, x, 64, num_warps=2)


def test_only_tile_ir_is_compiled(kernel):
    with pytest.raises(ArgumentError, match="hopper"):
        tawa.compile_ir(kernel.asm.text("hopper"))


@pytest.mark.parametrize(
    "given", ["hello", '"tile.kernel"() ({}) {} : () -> ()', "", 3, test_only_tile_ir_is_compiled]
)
def test_what_is_no_kernel_is_refused(given):
    with pytest.raises(ArgumentError, match=r"is no kernel of tile IR|compile_ir got a"):
        tawa.compile_ir(given)


def test_arguments_may_be_named_like_options():
    k = KernelBuilder("named")
    grid, depth = k.pointer("grid", "f32"), k.scalar("depth", "i32")
    k.store(grid, k.load(grid) + depth + k.scalar("num_warps", "i32"))
    x = np.ones(4, np.float32)
    tawa.compile_ir(k.finish())[1,](x, depth=3, num_warps=2)
    assert x[0] == 6


def test_a_kernel_is_kept_by_its_text(tmp_path):
    compiled = []

    def compiler(request):
        compiled.append(request)
        return compile_kernel(request)

    store = DiskStore(tmp_path)

    def make(program, **how):
        return tawa.compile_ir(program, compiler=compiler, store=store, **how)

    first = make(add_one())
    assert len(compiled) == 1
    again = make(add_one())
    assert len(compiled) == 1
    assert again.asm["cuda"] == first.asm["cuda"]
    make(add_one(element="f64"))
    make(add_one(), plan=str(first.plan))
    make(add_one(), launch={"num_warps": 8})
    make(add_one(), strict=True)
    assert len(compiled) == 5


def test_compiling_changes_no_kernel():
    program = add_one()
    before = str(program)
    tawa.compile_ir(program, {"num_warps": 2})
    assert str(program) == before


# --- launched -------------------------------------------------------------------------------------


def test_a_launch_runs_in_the_simulator(kernel):
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    assert kernel[2,](x, out, 100).plan == kernel.plan
    np.testing.assert_array_equal(out, x + 1)
    kernel[lambda v: (tawa.cdiv(v["n"], 64),)](x=out, out=x, n=70)
    np.testing.assert_array_equal(x[:70], out[:70] + 1)
    assert "kernel add_one" in kernel.explain()
    tawa.simulate(kernel, x, out, 100, grid=(2,), level="tile")
    np.testing.assert_array_equal(out, x + 1)


def test_guards_lead_to_the_ordinary_kernel():
    k = KernelBuilder("moved")
    x, out = k.descriptor("x", "f32", (64, 64)), k.descriptor("out", "f32", (64, 64))
    n, acc = k.scalar("n", "i32"), k.zeros((64, 64), "f32")
    with k.range(0, n, 64, carry=[acc]) as loop:
        tile_ = x.load([0, loop.index], name="tile").to("bf16")
        loop.yield_(k.dot(tile_, tile_, loop.carried[0]))
    out.store([0, 0], loop.results[0], name="out")
    moved = tawa.compile_ir(k.finish())
    assert moved.guards
    given = np.random.default_rng(0).integers(-2, 3, (64, 128)).astype(np.float32)
    expected = sum(part @ part for part in (given[:, :64], given[:, 64:]))
    describe = tawa.TensorDescriptor.from_tensor
    apart = np.zeros((64, 64), np.float32)
    moved[1,](describe(given.copy(), [64, 64]), describe(apart, [64, 64]), 128)
    np.testing.assert_array_equal(apart, expected)
    shared = given.copy()  # the result lies where the operand lies
    moved[1,](describe(shared, [64, 64]), describe(shared, [64, 64]), 128)
    np.testing.assert_array_equal(shared[:, :64], expected)


def test_a_launch_is_checked_against_what_is_declared():
    k = KernelBuilder("declared")
    x, n = k.pointer("x", "f32"), k.scalar("n", "i32", divisible=8)
    d = k.descriptor("d", "f32", (8, 16))
    k.store(x + n, d.load([0, n]).sum())
    declared = tawa.compile_ir(k.finish())
    x, d = np.zeros(64, np.float32), np.ones((8, 64), np.float32)
    desc = tawa.TensorDescriptor.from_tensor(d, [8, 16])
    for n in (8, 16):
        declared[1,](x, n, desc)
        assert x[n] == 128
    wide = tawa.TensorDescriptor.from_tensor(d, [8, 32])
    for given, words in (
        ((x, 12, desc), r"'n' is 12"),
        ((x, 8.5, desc), r"'n' is 8.5"),
        ((x, 1 << 35, desc), r"argument n = 34359738368"),
        ((x.astype(np.float64), 8, desc), r"'x' is \*f64"),
        ((x[1:], 8, desc), r"'x' is \*f32"),
        ((x, 8, wide), r"'d' is descriptor of f32\[8x32\]"),
        ((x, 8, d), r"'d' is \*f32"),
        ((x, None, desc), r"'n' is = None"),
    ):
        with pytest.raises(ArgumentError, match=words):
            declared[1,](*given)


# --- programs -------------------------------------------------------------------------------------


def steps(kernel):
    grid = lambda v: (tawa.cdiv(v["n"], 64),)  # noqa: E731
    return (tawa.Step(kernel, grid, {"out": "t"}), tawa.Step(kernel, grid, {"x": "t"}))


def test_kernels_run_in_order_through_a_buffer(kernel):
    between = tawa.Buffer("t", "f32", (lambda v: v["x"].shape[0],))
    twice = tawa.Program("twice", ("x", "out", "n"), (between,), steps(kernel))
    for n in (100, 64, 0):
        x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        buffers = twice(x, out, n=n)
        np.testing.assert_array_equal(out, x + 2)
        np.testing.assert_array_equal(buffers["t"], x + 1)
    assert "buffer t: f32 ['computed']" in twice.explain()
    assert twice.explain().count("kernel add_one") == 2


def test_a_buffer_holds_nothing_before_it_is_written(kernel):
    read = tawa.Program("read", ("out", "n"), (tawa.Buffer("t", "f32", (64,)),), steps(kernel)[1:])
    out = np.zeros(64, np.float32)
    read(out, 64)
    assert np.isnan(out).all()


def test_torch_tensors_of_the_cpu(kernel):
    torch = pytest.importorskip("torch")
    between = tawa.Buffer("t", "f32", (64,))
    twice = tawa.Program("twice", ("x", "out", "n"), (between,), steps(kernel))
    x, out = torch.arange(64.0), torch.zeros(64)
    assert isinstance(twice(x, out, 64)["t"], torch.Tensor)
    assert torch.equal(out, x + 2)


def test_written_kernels_are_steps_too(example):
    sums = tawa.Step(
        example["row_sums"],
        (8,),
        {"x_ptr": "x", "out_ptr": "t", "n": 32, "BLOCK": lambda _: 32},
    )
    add = tawa.Step(tawa.compile_ir(add_one()), (1,), {"x": "t", "n": 8})
    both = tawa.Program("both", ("x", "out"), (tawa.Buffer("t", "f32", (8,)),), (sums, add))
    x, out = np.ones((8, 32), np.float32), np.zeros(8, np.float32)
    both(x, out)
    np.testing.assert_array_equal(out, np.full(8, 33))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arguments": ("x", "x", "out", "n")}, "has two values named x"),
        ({"arguments": ("x", "n")}, "gives add_one no out"),
        ({"buffers": ()}, "has no value 't', which add_one takes as 'out'"),
        ({"spare": True}, "no kernel of twice is given the buffer spare"),
    ],
)
def test_programs_whose_names_do_not_fit_are_refused(kernel, change, words):
    buffers = [tawa.Buffer("t", "f32", (64,))]
    if change.pop("spare", False):
        buffers.append(tawa.Buffer("spare", "f32", (64,)))
    fields = {"name": "twice", "arguments": ("x", "out", "n"), "buffers": tuple(buffers)}
    with pytest.raises(ArgumentError, match=words):
        tawa.Program(steps=steps(kernel), **{**fields, **change})


def test_calls_of_programs_that_do_not_fit_are_refused(kernel):
    between = tawa.Buffer("t", "f32", (lambda v: v["n"] / 2,))
    twice = tawa.Program("twice", ("x", "out", "n"), (between,), steps(kernel))
    x = np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match="got 2 arguments by position"):
        twice(x, x)
    with pytest.raises(ArgumentError, match="by name m"):
        twice(x, x, 64, m=3)
    with pytest.raises(ArgumentError, match=r"the buffer t has the shape \(32.0,\)"):
        twice(x, x, 64)
    with pytest.raises(TawaError, match="add_one has no parameter 'y'"):
        tawa.Program("one", ("x",), (), (tawa.Step(kernel, (1,), {"y": "x"}),))


def test_rows_that_end_inside_16_bytes_need_a_descriptor_that_says_so():
    """TMA writes pieces of 16 bytes whole: what lies beyond such rows would be overwritten."""

    def copying(**facts):
        k = KernelBuilder("copy")
        source = k.descriptor("source", "f16", [8, 64])
        target = k.descriptor("target", "f16", [8, 64], **facts)
        target.store([0, 64], source.load([0, 64]))
        return tawa.compile_ir(k.finish())

    a = np.arange(8 * 128, dtype=np.float16).reshape(8, 128)
    out = np.full((8, 128), -1, np.float16)
    ends = tawa.TensorDescriptor(out, (8, 100), (128, 1), [8, 64])
    whole = tawa.TensorDescriptor.from_tensor(a, [8, 64])
    with pytest.raises(ArgumentError, match="the argument 'target'"):
        copying()[1,](whole, ends)
    copying(ragged=True)[1,](whole, ends)
    np.testing.assert_array_equal(out[:, 64:100], a[:, 64:100])
    assert (out[:, 100:] == -1).all()
    copying(ragged=True)[1,](whole, tawa.TensorDescriptor.from_tensor(out, [8, 64]))
    np.testing.assert_array_equal(out[:, 64:], a[:, 64:])
