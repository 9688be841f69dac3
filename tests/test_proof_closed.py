"""Code that no input reaches is read in the text: what runs chose says nothing about other inputs,
and what is never negative in whole numbers may wrap.
"""

from __future__ import annotations

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType, StringAttr, i1, i32
from xdsl.ir import Block, Operation, Region

from ring_text import fails, kernel, loop, of, refused, start, turn
from tawa.ir import hopper, tile
from tawa.ir.types import int_array
from tawa.simulator.proof.closed import is_closed


def chosen_late(role: str, more: int, turns: int) -> str:
    """Ring B is turned where a sum falls short of a number: the first loop has chosen one of its
    operands by then, in every run, and most runs chose more than that.
    """
    return (
        "%pid = hopper.block_id {axis = #builtin.int<0>} : i32\n"
        + of("%sum", "add", "%K", "%c63")
        + of("%trips", "idiv", "%sum", "%c64")
        + loop(role, "A", 2, "%trips")
        + of("%low", "lt", "%K", "%c100", result="i1")
        + of("%far", "add", "%pid", "%K")
        + of("%enough", "ge", "%far", f"%c{more}", result="i1")
        + "scf.if %low {\n} else {\nscf.if %enough {\n} else {\n"
        + turn(role, "B", "%c0", start(role), 1) * turns
        + "}\n}\n"
    )


@pytest.mark.parametrize("more", [101, 110, 128])
def test_what_a_run_chose_closes_nothing(more: int) -> None:
    rings, constants = {"A": 2, "B": 1}, (63, 100, more)

    def text(turns: int) -> str:
        roles = chosen_late("load", more, turns), chosen_late("mma", more, 1)
        return kernel(rings, *roles, constants=constants)

    assert not refused(text(1))
    assert refused(text(0))
    assert fails(text(0), K=100)


@pytest.mark.parametrize(
    ("factor", "function", "limit", "within", "closed"),
    [
        (1, "lt", 0, (), True),
        (64, "lt", 0, (), False),  # block 2^25 has number -2^31
        (64, "lt", 0, (0, (1 << 31) - 1), True),  # a launch is asked
        (64, "lt", 1, (0, (1 << 31) - 1), False),
        (1, "gt", (1 << 31) - 2, (), True),
        (1, "gt", (1 << 31) - 3, (), False),
    ],
)
def test_numbers_wrap(
    factor: int, function: str, limit: int, within: tuple[int, ...], closed: bool
) -> None:
    def number(value: int) -> tile.Constant:
        return tile.Constant(attributes={"value": IntAttr(value)}, result_types=[i32])

    def apply(name: str, result: IntegerType, *inputs: Operation) -> tile.Elementwise:
        function = {"function": StringAttr(name)}
        operands = [[each.results[0] for each in inputs]]
        return tile.Elementwise(operands=operands, attributes=function, result_types=[result])

    program = hopper.BlockId(attributes={"axis": IntAttr(0)}, result_types=[i32])
    times, than = number(factor), number(limit)
    row = apply("mul", i32, program, times)
    if within:
        row.attributes["within"] = int_array(within)
    holds = apply(function, i1, row, than)
    branch = scf.IfOp(holds, [], Region(Block([scf.YieldOp()])))
    Block([program, times, than, row, holds, branch])
    assert is_closed(branch, 0, frozenset()) is closed
    assert not is_closed(branch, 1, frozenset())
