"""What numbers are at least, whatever the input is: read in the text, never taken from a run."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntAttr, StringAttr, i32
from xdsl.ir import Block, Operation, SSAValue

from ring_text import fails, kernel, loop, of, refused, start, turn
from tawa.ir import hopper, tile
from tawa.simulator.proof.bounds import least_of_value

BLOCK = Block(arg_types=[i32])
LENGTH = BLOCK.args[0]


def put(operation: Operation) -> SSAValue:
    BLOCK.add_op(operation)
    return operation.results[0]


def number(value: int) -> SSAValue:
    return put(tile.Constant(attributes={"value": IntAttr(value)}, result_types=[i32]))


def apply(function: str, *inputs: SSAValue | int) -> SSAValue:
    values = [number(item) if isinstance(item, int) else item for item in inputs]
    name = {"function": StringAttr(function)}
    return put(tile.Elementwise(operands=[values], attributes=name, result_types=[i32]))


PROGRAM = put(hopper.BlockId(attributes={"axis": IntAttr(0)}, result_types=[i32]))
EXTENT = put(hopper.GridExtent(attributes={"axis": IntAttr(0)}, result_types=[i32]))


@pytest.mark.parametrize(
    ("value", "least"),
    [
        (number(7), 7),
        (PROGRAM, 0),
        (EXTENT, 1),
        (LENGTH, None),
        (apply("add", apply("mul", PROGRAM, 64), 64), 64),
        (apply("add", PROGRAM, LENGTH), None),
        (apply("irem", PROGRAM, LENGTH), 0),
        (apply("idiv", PROGRAM, EXTENT), 0),
        (apply("idiv", PROGRAM, LENGTH), None),
        (apply("min", EXTENT, 9), 1),
        (apply("max", LENGTH, 2), 2),
        (apply("mul", LENGTH, PROGRAM), None),
        (apply("sub", PROGRAM, 1), None),
    ],
)
def test_the_least(value: SSAValue, least: int | None) -> None:
    assert least_of_value(value) == least


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
