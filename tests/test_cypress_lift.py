"""Lift: plain tile kernels as tasks and mappings, whose CUDA text is that of the kernel."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import lift_kernels
import tawa.cypress as cy
import tawa.language as tl
from lift_kernels import LIFTED, REFUSED
from lower_kernels import CASES
from tawa import compile_ir
from tawa.errors import ArgumentError, DefinitionError, MappingError, PlanError
from tawa.frontend import build
from tawa.tools.cli import main
from tawa.tools.lift import lift, read


def compiled(kernel):
    function, signature = kernel
    return compile_ir(build(function, signature, {}))


@cache
def lifted(name):
    return lift(compiled(LIFTED[name]))


QUICK = ("gemm", "gemm, batched", "softmax", "row sums", "row maxima", "scaled", "pointers")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.short("gemm, batched", "row sums", "softmax", "pointers")
def test_what_is_lifted_compiles_to_the_text_of_the_kernel(name):
    assert "mapping = cy.Mapping([" in lifted(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(LIFTED) - set(QUICK)))
def test_wider_kernels_are_lifted(name):
    assert "mapping = cy.Mapping([" in lifted(name)


def test_tiles_that_a_role_turns_round_are_lifted():
    case = CASES["matmul fp8 nn"]
    kernel = compile_ir(build(case.function, case.signature, case.options), plan=case.pins)
    text = lift(kernel)
    plan = read(text).show("plan")
    assert [role.label for role in kernel.plan.roles] == ["load", "transpose", "mma"]
    assert re.findall(r"role (\w+)", plan) == ["load", "transpose", "mma"]
    assert re.findall(r"aref (.*) depth=\d(.*)", plan)[-1] == ("b@42", " via=transpose")


def test_products_of_plain_leaves_go_by_their_names():
    case = CASES["matmul 16x128"]
    kernel = compile_ir(build(case.function, case.signature, case.options), plan=case.pins)
    assert re.search(r"'\w+': 'acc@\d+'", lift(kernel))


@pytest.mark.parametrize("what", REFUSED)
def test_what_tasks_cannot_say_is_refused_by_name(what):
    with pytest.raises(MappingError, match=f"({what}).*cannot be said as tasks") as caught:
        lift(compiled(REFUSED[what]))
    assert caught.value.why


def run_lifted(name, *tensors):
    """Run a lifted program in the simulator, its events in any order, and task by task."""
    program = read(lifted(name))
    results = []
    for run in (program, program.sequential, program.interpret):
        given = [each.copy() if isinstance(each, np.ndarray) else each for each in tensors]
        run(*given)
        results.append(given)
    return program, results


def test_a_lifted_program_is_a_program():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((136, 80), (80, 264)))
    c = np.full((136, 264), 7, np.float16)
    _, results = run_lifted("gemm", a, b, c, 80)
    for *_, made, _ in results:
        np.testing.assert_array_equal(made, a.astype(int) @ b.astype(int))
    x, o = rng.integers(-9, 9, (72, 128)).astype(np.float16), np.zeros(72, np.float32)
    program, results = run_lifted("pointers to rows", x, o)
    assert program.parameters == ("x", "o")
    for _, made in results:
        np.testing.assert_array_equal(made, x.sum(1, dtype=np.float32))
    x, scale = rng.standard_normal((72, 128)).astype(np.float32), -3
    _, results = run_lifted("scaled", x, np.zeros_like(x), scale)
    for _, made, _ in results:
        np.testing.assert_array_equal(
            made, np.where(x > 0, np.maximum(x * np.float32(-3), -x), 0.5)
        )


def test_calls_in_which_an_end_would_show_are_refused():
    program, results = run_lifted(
        "row maxima", np.ones((8, 128), np.float32), np.zeros(8, np.float32)
    )
    assert all((made == 1).all() for _, made in results)
    with pytest.raises(ArgumentError, match=r"x_desc.shape\[1\] is 120, 128 is 128"):
        program(np.ones((8, 120), np.float32), np.zeros(8, np.float32))


def test_numbers_of_a_call_are_checked():
    program = read(lifted("row sums"))
    x, o = np.ones((64, 256), np.float16), np.zeros(64, np.float32)
    program(x, o, 256)
    assert (o == 256).all()
    program(x, o, 100)  # a loop of one iteration, over a whole block
    assert (o == 128).all()
    for wrong in ("256", 256.0, -1, True, np.ones(3)):
        with pytest.raises(ArgumentError, match=r"N is .*, which is no such number"):
            program(x, o, wrong)


def test_lines_of_the_plan_replace_those_of_the_fields():
    text = lifted("gemm")
    assert "plan=['loop for k@127 schedule=fine mma_depth=1']" in text
    program = read(text)
    assert "loop for k@127 schedule=fine mma_depth=1\n" in program.show("plan")
    line = "loop for k@127 schedule=fine mma_depth=2"
    assert line in cy.program(program.mapping.with_("block", plan=[])).show("plan")
    without = cy.program(
        program.mapping.with_("block", plan=["guard a_desc, c_desc", "loop for k@127"])
    )
    assert "loop for" not in without.show("plan")
    with pytest.raises(PlanError, match="is not understood"):
        cy.program(program.mapping.with_("block", plan=["loop for k@127 schedule=fast"]))
    with pytest.raises(MappingError, match="gives lines of the plan, and leaves pipeline"):
        cy.program(program.mapping.with_("block", pipeline=cy.auto))


def test_statements_are_called_as_in_the_kernel():
    text = lifted("gemm")
    program = read(text)
    assert "aref a_desc@128 + b_desc@128 depth=3" in program.show("plan")
    names = dict(program.mapping["block"].names)
    assert names["cast_leaf_out"] == "c_desc@129"
    plain = cy.program(program.mapping.with_("block", names={}, plan=[]))
    assert "aref a_desc + b_desc depth=3" in plain.show("plan")
    with pytest.raises(MappingError, match='"block" names l, and there is no such') as caught:
        cy.program(program.mapping.with_("block", names={"l": "loop"}, plan=[]))
    assert caught.value.why.startswith("its statements are ")
    twice = names | {"a_desc": "b_desc@128"}
    with pytest.raises(DefinitionError, match="two statements are named b_desc@128"):
        cy.program(program.mapping.with_("block", names=twice))
    with pytest.raises(DefinitionError, match="'a b' cannot name a statement"):
        cy.program(program.mapping.with_("block", names={"a_desc": "a b"}, plan=[]))


def test_the_command_prints_what_reads_back(capsys):
    blocks = {"a": "128x64", "b": "64x128", "c": "128x128"}
    args = [f"{name}_desc=bf16[512,512]:{block}" for name, block in blocks.items()]
    args += ["K=512", "BLOCK_M=128", "BLOCK_N=128", "BLOCK_K=64"]
    assert main(["lift", "tawa.kernels.gemm:matmul_descriptors", "--args", *args]) == 0
    printed = capsys.readouterr().out
    assert "specialize=True, pipeline={'a_desc b_desc': 6}, persistent=True" in printed
    assert read(printed).parameters == ("a_desc", "b_desc", "c_desc", "K")
    assert main(["lift", f"{lift_kernels.__file__}:pointers", "--args", "x_ptr=f32[128]"]) == 2
    assert "no argument for o_ptr, B" in capsys.readouterr().err


@cy.inner("odd", reads="A", writes="Y")
def odd_host(Y: cy.Tensor[cy.f32, 1], A: cy.Tensor[cy.f16, 2]):
    y, a = cy.blocks(Y, (64,)), cy.blocks(A, (64, A.shape[1]))
    for i in cy.prange(*y.grid):
        cy.launch("odd", y[i], a[i, 0])


@cy.inner("odd", reads="A", writes="Y")
def odd_block(Y: cy.Tensor[cy.f32, 1], A: cy.Tensor[cy.f16, 2]):
    a = cy.blocks(A, (64, 32))
    total = cy.make_tensor(cy.f32, (64,))
    cy.launch("clear", total)
    for k in cy.srange(1, a.grid[1], 2):
        cy.launch("add", total, a[0, k])
    cy.launch("copy", Y, total)


@cy.leaf("add", reads="R A", writes="R")
def add_leaf(R, A):
    return R + tl.sum(A.to(tl.float32), 1)


@cy.inner("add", reads="R A", writes="R")
def add_over(R: cy.Tensor[cy.f32, 1], A: cy.Tensor[cy.f16, 2]):
    for _ in cy.prange(1):
        cy.launch("add", R, A)


def odd_mapping():
    I, WG = cy.Instance, cy.WARPGROUP
    calls = ["clear", "over", "copy"]
    return cy.Mapping(
        [
            I("host", odd_host, cy.HOST, [cy.GLOBAL] * 2, calls=["block"], entry=True),
            I("block", odd_block, cy.BLOCK, [cy.GLOBAL] * 2, calls=calls, pipeline=2),
            I("over", add_over, cy.BLOCK, [cy.NONE, cy.SHARED], calls=["add"]),
            I("add", add_leaf, WG, [cy.REGISTER, cy.SHARED]),
            I("clear", cy.lib.clear_leaf, WG, [cy.REGISTER], like="over"),
            I("copy", cy.lib.copy_leaf, WG, [cy.GLOBAL, cy.REGISTER], like="over"),
        ]
    )


@pytest.mark.parametrize("columns", [8, 32, 64, 136, 200])
def test_a_loop_may_start_and_step_elsewhere(columns):
    program = cy.program(odd_mapping())
    a = (np.arange(72 * columns) % 5).astype(np.float16).reshape(72, columns)
    wanted = sum((a[:, k : k + 32].astype(np.float32).sum(1) for k in range(32, columns, 64)), 0.0)
    for run in (program, program.sequential, program.interpret):
        y = np.full(72, 7, np.float32)
        run(y, a)
        np.testing.assert_array_equal(y, np.broadcast_to(wanted, 72))


@cy.inner("odd", reads="A", writes="Y")
def untyped_host(Y: cy.Tensor[None, 1], A: cy.Tensor[cy.f16, 2]):
    cy.launch("odd", Y, A)


@cy.inner("odd", reads="A", writes="Y")
def sizing_host(Y: cy.Tensor[cy.f32, 1], A: cy.Tensor[cy.f16, 2]):
    for _ in cy.srange(cy.size(A)):
        cy.launch("odd", Y, A)


def test_numbers_and_elements_are_declared():
    with pytest.raises(MappingError, match="does not say of which type the elements of Y are"):
        cy.program(odd_mapping().with_("host", variant=untyped_host))
    with pytest.raises(MappingError, match="A is no integer of the call"):
        cy.program(odd_mapping().with_("host", variant=sizing_host))
    with pytest.raises(MappingError, match="is no type of tensors"):
        cy.Tensor[cy.f32, 0, 7]
