"""Stores in parts where warpgroups share the columns of a tile: a part has some of each one's."""

from __future__ import annotations

import pytest

import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import compile_case, run_case
from tawa.layouts.shared import split_columns


def product(a_desc, b_desc, c_desc, M: tl.constexpr, N: tl.constexpr):
    acc = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, 32, 16):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc.to(c_desc.dtype))


@pytest.mark.parametrize(("columns", "kind", "parts"), [(256, "f32", 2), (256, "bf16", 2)])
def test_a_part_has_columns_of_each_warpgroup(columns: int, kind: str, parts: int) -> None:
    case = written(
        product,
        {
            "a_desc": Array((64, 32), "bf16", (64, 16)),
            "b_desc": Array((32, columns), "bf16", (16, columns)),
            "c_desc": Array((64, columns), kind, (64, columns), low=0, limit=0),
        },
        constants={"M": 64, "N": columns},
        grid=(1, 1, 1),
        options={"consumers": 2, "split": "columns", "parts": parts},
    )
    outcome = run_case(case, seeds=1, emulated=COMPILER is not None)
    assert outcome.verdict == "equal"
    made = compile_case(case)
    assert made.plan.specialized
    assert [store.parts for store in made.plan.stores] == [parts]
    assert made.asm.text("cuda").count("tma_store_2d") > 2 * parts, "of each share, in each part"
    assert not any("parts" in item.feature for item in made.declined)


def test_parts_are_whole_panels_of_every_share() -> None:
    assert split_columns(512, 32, 2, 2) == (128, 128)
    assert split_columns(256, 16, 2, 2) == (64, 64)
    assert split_columns(256, 32, 3, 2) is None, "four panels a share are not three equal runs"
    assert split_columns(96, 32, 2, 2) is None, "a share of one and a half panels"
