"""An integer divided by zero ended the emulation (SIGFPE), where a GPU goes on with some number."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.ir import parse


@tawa.jit
def quotients(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, a // b)
    tl.store(o + B + i, a % b)


@needs_compiler
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_the_emulation_goes_on_as_the_oracle_does(kind: str) -> None:
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.resize(np.array([7, 0, least, most, least, 100], kind), 64)
    y = np.resize(np.array([0, 0, 0, 0, np.array(-1).astype(kind), 7], kind), 64)
    arguments = {"x": x, "y": y, "o": np.zeros(128, kind)}
    want = arguments["o"].copy()
    tawa.simulate(quotients, x, y, want, B=64, grid=(1,), level="tile")
    assert want[5] == 14
    assert want[64] == 7
    compiled = quotients.compile(*arguments.values(), B=64, grid=(1,))
    emulate(parse(str(compiled.asm["hopper"])), arguments, (1, 1, 1))
    np.testing.assert_array_equal(arguments["o"], want)
