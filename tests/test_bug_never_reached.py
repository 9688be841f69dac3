"""Code behind a condition that no input fulfils was searched for an input, and not proved: behind
the opposite of what always holds, and of what a condition around it says of the same number.
"""

import operator
from collections.abc import Callable
from itertools import product

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1, i32
from xdsl.ir import Block, Region, SSAValue

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import compile_case, run_case
from tawa.ir import tile
from tawa.simulator.proof.closed import is_closed

ARGUMENTS = {
    "a_desc": Array((128, 64), "f16", (64, 64)),
    "b_desc": Array((64, 64), "f16", (64, 64)),
    "c_desc": Array((128, 64), "f32", (64, 64), 0, 0),
    "flag": 1,
}
SHAPE = {"BM": 64, "BN": 64}


def after_a_return(a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, 0]))
    c_desc.store([row, 0], acc)
    if row >= -1:
        return
    c_desc.store([row, 0], acc + 1)


def unlike_the_one_around(a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    if flag > 0:
        acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, 0]))
        if flag == 0:
            acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc)
    c_desc.store([row, 0], acc)


def other_words_for_the_same(a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    if tl.program_id(0) == 0:
        acc += 1
    else:
        acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, 0]))
        if tl.program_id(0) != 0:
            acc += 1
        else:
            acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc)
    c_desc.store([row, 0], acc)


@pytest.mark.parametrize(
    "kernel", [after_a_return, unlike_the_one_around, other_words_for_the_same]
)
def test_it_is_proved(kernel: Callable[..., None]) -> None:
    case = written(kernel, ARGUMENTS, constants=SHAPE, grid=(2, 1, 1))
    assert run_case(case).verdict == "equal"


def open_condition(a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, 0]))
    c_desc.store([row, 0], acc)
    if row >= flag:
        return
    if flag > 0:
        acc += 1
        if flag == 2:
            c_desc.store([row, 0], acc + 1)


def test_what_an_input_reaches_is_reached() -> None:
    made = compile_case(written(open_condition, ARGUMENTS, constants=SHAPE, grid=(2, 1, 1)))
    assert made.proof.ok
    assert "reached by no input" not in made.proof.verdict


FUNCTIONS = ("eq", "ne", "lt", "le", "gt", "ge")


def compared(block: Block, number: SSAValue, function: str, than: int, turned: bool) -> SSAValue:
    constant = tile.Constant(attributes={"value": IntAttr(than)}, result_types=[i32])
    operands = [constant.result, number] if turned else [number, constant.result]
    compares = tile.Elementwise(
        operands=[operands], attributes={"function": StringAttr(function)}, result_types=[i1]
    )
    block.add_ops([constant, compares])
    return compares.result


@pytest.mark.parametrize(("first", "second"), list(product(FUNCTIONS, FUNCTIONS)))
def test_comparisons_with_constants_close_what_no_number_fulfils(first: str, second: str) -> None:
    for low, high, turned in product((-1, 0, 1), (-1, 0, 1), (False, True)):
        block = Block(arg_types=[i32])
        number = block.args[0]
        outer = compared(block, number, first, low, turned)
        body = Block()
        inner = compared(body, number, second, high, not turned)
        branch = scf.IfOp(inner, [], Region(Block([scf.YieldOp()])))
        body.add_ops([branch, scf.YieldOp()])
        block.add_op(scf.IfOp(outer, [], Region(body)))

        def holds(x: int, function: str, than: int, turned: bool) -> bool:
            one, other = (than, x) if turned else (x, than)
            return getattr(operator, function)(one, other)

        for side in (0, 1):
            fulfilled = any(
                holds(x, first, low, turned) and holds(x, second, high, not turned) == (side == 0)
                for x in range(-4, 5)
            )
            assert is_closed(branch, side, frozenset()) is not fulfilled
