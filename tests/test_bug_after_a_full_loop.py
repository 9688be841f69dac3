"""A loop that runs only after another one made all iterations that it can: the rows of the second
half of a block, where `rows` ends in either (inverses of triangular blocks are made so). Few
iterations of the first loop, which were all that was tried, leave none to the second.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, normal
from tawa.errors import ProtocolError
from tawa.ir import hopper
from tawa.ir.walk import all_of
from tawa.target import H200
from tawa.verify import verify


@tawa.jit
def running(x, o, first, rows, B: tl.constexpr, D: tl.constexpr):
    d = tl.arange(0, D)
    acc = tl.zeros((D, D), tl.float32)
    for i in range(0, min(B, rows - first)):
        row = tl.load(x + (first + i) * D + d)
        acc += tl.sum(acc * row[None, :], 1)[None, :] + row[:, None]
        tl.store(o + (first + i) * D + d, tl.sum(acc, 0))


@tawa.jit
def halves(x, o, rows, B: tl.constexpr, D: tl.constexpr):
    running(x, o, tl.program_id(0) * 2 * B, rows, B, D)
    running(x, o, tl.program_id(0) * 2 * B + B, rows, B, D)


def wanted(x, o, rows, B, D, **_):
    out = o.astype(np.float64)
    for first in range(0, rows, B):
        acc = np.zeros((D, D))
        for i in range(first, min(rows, first + B)):
            acc += (acc * x[i]).sum(1)[None, :] + x[i][:, None]
            out[i] = acc.sum(0)
    return {"o": out}


def case(rows: int) -> Idiom:
    given = {"x": normal(64, 16), "o": blank(64, 16), "rows": rows, "B": 16, "D": 16}
    return Idiom("halves", halves, given, (2,), wanted, 1e-4)


@pytest.mark.parametrize("rows", [41, 64, 7])
def test_it_is_proved_and_right(rows: int) -> None:
    case(rows).simulate("hopper")


def test_a_fault_in_the_second_loop_is_seen() -> None:
    arguments, named = case(41).call(case(41).arguments())
    compiled = halves.compile(*arguments, grid=(2,), **named)
    kernel = compiled.asm.program("hopper")
    verify(kernel, H200)
    last = list(all_of(kernel, hopper.NamedBarrier))[-1]
    last.detach()
    last.erase()
    with pytest.raises(ProtocolError, match="main reads scratch of main"):
        verify(kernel, H200)
