"""What lies past the ends of tensors: no result depends on it, or the program is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import BLOCK, GLOBAL, HOST, NONE, REGISTER, SHARED, WARPGROUP, f16, f32
from tawa.errors import MappingError

I, T16, V32 = cy.Instance, cy.Tensor[f16, 2], cy.Tensor[f32, 1]


@cy.inner("rows", reads="A", writes="Y")
def rows_host(Y: V32, A: T16, *, U: int):
    cy.same(Y.shape[0], A.shape[0])
    y, a = cy.blocks(Y, (U,)), cy.blocks(A, (U, A.shape[1]))
    for i in cy.prange(y.grid[0]):
        cy.launch("rows", y[i], a[i, 0])


@cy.inner("rows", reads="A", writes="Y")
def rows_block(Y: V32, A: T16, *, W: int):
    """Take the blocks of columns one by one; all but the last are inside."""
    a = cy.blocks(A, (A.shape[0], W))
    most = cy.make_tensor(f32, Y.shape)
    cy.launch("lowest", most)
    for j in cy.srange(A.shape[1] // W):
        cy.launch("inner", most, a[0, j])
    for j in cy.srange(a.grid[1] - A.shape[1] // W):
        at = A.shape[1] // W + j
        columns, rows = cy.inside(a[0, at], 1), cy.inside(a[0, at], 0)
        cy.launch("edge", most, a[0, at], columns, rows)
    cy.launch("copy", Y, most)


@cy.leaf("lowest", writes="M")
def lowest(M):
    return tl.full(M.shape, -1000.0, M.dtype)


@cy.leaf("inner", reads="M A", writes="M")
def inner_max(M, A):
    return tl.maximum(M, tl.max(A.to(tl.float32), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def masked(M, A, C, R):
    return tl.maximum(M, tl.max(tl.where(C[None, :], A.to(tl.float32), float("-inf")), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def finite(M, A, C, R):
    return tl.maximum(M, tl.max(tl.where(C[None, :], A.to(tl.float32), -9.0), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def turned(M, A, C, R):
    return tl.maximum(M, tl.max(tl.where(C[None, :], float("-inf"), A.to(tl.float32)), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def of_rows(M, A, C, R):
    return tl.maximum(M, tl.max(tl.where(R[:, None], A.to(tl.float32), float("-inf")), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def open_(M, A, C, R):
    return tl.maximum(M, tl.max(A.to(tl.float32), 1))


@cy.leaf("edge", reads="M A C R", writes="M")
def counted(M, A, C, R):
    return M + tl.sum(tl.where(C[None, :], 1.0, 1.0) + A.to(tl.float32) * 0.0, 1)


@cy.leaf("edge", reads="M A C R", writes="M")
def exponentials(M, A, C, R):
    hidden = tl.where(C[None, :] & R[:, None], A.to(tl.float32), float("-inf"))
    return M + tl.sum(tl.exp2(hidden * 2.0 - M[:, None]), 1)


@cy.inner("lowest", writes="M")
def lowest_tile(M: V32, *, WGS: int):
    m = cy.blocks(M, (M.shape[0] // WGS,))
    for i in cy.prange(WGS):
        cy.launch("lowest", m[i])


def rows_program(edge, block=rows_block):
    calls = ["lowest", "inner", "edge", "copy"]
    held = [REGISTER, SHARED, REGISTER, REGISTER]
    return cy.program(
        cy.Mapping(
            [
                I("host", rows_host, HOST, [GLOBAL] * 2, {"U": 64}, calls=["block"], entry=True),
                I("block", block, BLOCK, [GLOBAL] * 2, {"W": 32}, calls=calls),
                I("lowest", lowest_tile, BLOCK, [NONE], {"WGS": 1}, calls=["low"]),
                I("low", lowest, WARPGROUP, [REGISTER]),
                *cy.lib.rows("inner", inner_max, like="lowest", mems=[REGISTER, SHARED]),
                *cy.lib.rows("edge", edge, like="lowest", mems=held),
                *cy.lib.rows("copy", cy.lib.copy_leaf, like="lowest", mems=[GLOBAL, REGISTER]),
            ]
        )
    )


@pytest.mark.parametrize("columns", [8, 64, 72])
def test_a_masked_maximum_is_that_of_the_tensor(columns):
    program = rows_program(masked)
    a = -1 - (np.arange(72 * columns) % 7).reshape(72, columns).astype(np.float16)
    for run in (program, program.sequential, program.interpret):
        ours = np.ones(72, np.float32)
        run(ours, a)
        np.testing.assert_array_equal(ours, a.max(1))


def test_exponentials_of_what_is_hidden_are_zero():
    rows_program(exponentials)


@pytest.mark.parametrize("edge", [finite, turned, of_rows, open_, counted])
def test_a_mask_that_does_not_cover_the_end_is_refused(edge):
    with pytest.raises(MappingError, match="depends on elements past the end"):
        rows_program(edge)


@cy.inner("rows", reads="A", writes="Y")
def one_too_far(Y: V32, A: T16, *, W: int):
    a = cy.blocks(A, (A.shape[0], W))
    most = cy.make_tensor(f32, Y.shape)
    cy.launch("lowest", most)
    for j in cy.srange(A.shape[1] // W + 1):
        cy.launch("inner", most, a[0, j])
    for j in cy.srange(a.grid[1]):
        cy.launch("edge", most, a[0, j], cy.inside(a[0, j], 1), cy.inside(a[0, j], 0))
    cy.launch("copy", Y, most)


def test_a_loop_that_goes_one_block_too_far_is_not_inside():
    with pytest.raises(MappingError, match='"inner": the max of A depends on elements past'):
        rows_program(masked, one_too_far)


@cy.leaf("edge", reads="M A C R", writes="M A")
def changed(M, A, C, R):
    return M + tl.sum(A.to(tl.float32), 1), A + 1


@cy.leaf("inner", reads="M A", writes="M")
def inner_sum(M, A):
    return M + tl.sum(A.to(tl.float32), 1)


@cy.leaf("zeros", writes="M")
def zeros(M):
    return tl.zeros(M.shape, M.dtype)


@cy.inner("rows", reads="A", writes="Y")
def sums_of_what_changes(Y: V32, A: T16, *, W: int):
    a = cy.blocks(A, (A.shape[0], W))
    total = cy.make_tensor(f32, Y.shape)
    kept = cy.make_tensor(f16, (A.shape[0], W))
    cy.launch("lowest", total)
    cy.launch("zeros", kept)
    for j in cy.srange(a.grid[1]):
        cy.launch("edge", total, kept, cy.inside(a[0, j], 1), cy.inside(a[0, j], 0))
        cy.launch("inner", total, a[0, j])
    cy.launch("copy", Y, total)


def test_what_a_trip_changes_is_seen_by_the_next():
    # In the first iteration `kept` is zero everywhere, in the second one past the end too.
    calls = ["lowest", "zeros", "inner", "edge", "copy"]
    held = [REGISTER, REGISTER, REGISTER, REGISTER]
    mapping = cy.Mapping(
        [
            I("host", rows_host, HOST, [GLOBAL] * 2, {"U": 64}, calls=["block"], entry=True),
            I("block", sums_of_what_changes, BLOCK, [GLOBAL] * 2, {"W": 32}, calls=calls),
            I("lowest", lowest_tile, BLOCK, [NONE], {"WGS": 1}, calls=["low"]),
            I("low", lowest, WARPGROUP, [REGISTER]),
            *cy.lib.rows("zeros", zeros, like="lowest"),
            *cy.lib.rows("inner", inner_sum, like="lowest", mems=[REGISTER, SHARED]),
            *cy.lib.rows("edge", changed, like="lowest", mems=held),
            *cy.lib.rows("copy", cy.lib.copy_leaf, like="lowest", mems=[GLOBAL, REGISTER]),
        ]
    )
    with pytest.raises(MappingError, match='"edge": the add of A depends on elements past the end'):
        cy.program(mapping)


def test_places_are_those_of_the_programs_tensors():
    @cy.inner("rows", reads="A", writes="Y")
    def block(Y: V32, A: T16, *, W: int):
        made = cy.make_tensor(f32, (W,))
        cy.inside(made, 0)

    with pytest.raises(MappingError, match="has no places in a tensor of the program"):
        rows_program(masked, block)

    @cy.inner("rows", reads="A", writes="Y")
    def loops(Y: V32, A: T16, *, W: int):
        for j in cy.srange(A.shape[1] // W):
            cy.same(j, A.shape[1])

    with pytest.raises(MappingError, match=r"cy\.same of j"):
        rows_program(masked, loops)


@cy.inner("rows", reads="A B", writes="Y")
def other_host(Y: V32, A: T16, B: T16, *, U: int):
    y, a = cy.blocks(Y, (U,)), cy.blocks(A, (U, A.shape[1]))
    for i in cy.prange(y.grid[0]):
        cy.launch("rows", y[i], a[i, 0], B)


@cy.inner("rows", reads="A B", writes="Y")
def masked_by_another(Y: V32, A: T16, B: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, W))
    most = cy.make_tensor(f32, Y.shape)
    cy.launch("lowest", most)
    for j in cy.srange(a.grid[1]):
        cy.launch("edge", most, a[0, j], cy.inside(b[0, j], 1), cy.inside(a[0, j], 0))
    cy.launch("copy", Y, most)


@cy.inner("rows", reads="A B", writes="Y")
def same_host(Y: V32, A: T16, B: T16, *, U: int):
    cy.same(A.shape[1], B.shape[1])
    y, a = cy.blocks(Y, (U,)), cy.blocks(A, (U, A.shape[1]))
    for i in cy.prange(y.grid[0]):
        cy.launch("rows", y[i], a[i, 0], B)


def test_a_mask_is_of_the_tensor_that_it_masks():
    names = {"lowest": lowest_tile, "edge": masked}
    for host, fits in ((other_host, False), (same_host, True)):
        mapping = cy.Mapping(
            [
                I("host", host, HOST, [GLOBAL] * 3, {"U": 64}, calls=["block"], entry=True),
                I(
                    "block",
                    masked_by_another,
                    BLOCK,
                    [GLOBAL] * 3,
                    {"W": 32},
                    calls=[*names, "copy"],
                ),
                I("lowest", lowest_tile, BLOCK, [NONE], {"WGS": 1}, calls=["low"]),
                I("low", lowest, WARPGROUP, [REGISTER]),
                *cy.lib.rows(
                    "edge", masked, like="lowest", mems=[REGISTER, SHARED, REGISTER, REGISTER]
                ),
                *cy.lib.rows("copy", cy.lib.copy_leaf, like="lowest", mems=[GLOBAL, REGISTER]),
            ]
        )
        # Right where the extents are the same; that B is never loaded is another matter.
        why = "B.shape[1] is asked for, and no block loads" if fits else "past the end"
        with pytest.raises(MappingError, match=re.escape(why)):
            cy.program(mapping)
