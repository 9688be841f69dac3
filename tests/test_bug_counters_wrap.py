"""What is computed from a counter or a program's number wraps: comparisons were folded away.

Iterations and programs were taken to be 65,536 at most, so that a counter of large steps times a
factor was a natural number, and so was the number of one of a hundred thousand programs.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.ir import parse
from tawa.runtime.dispatch import guards_hold


@tawa.jit
def negative_products(out, n):
    found = 0
    for k in range(0, n, 1000):
        if k * 30000 < 0:
            found += 1
    tl.store(out, found)


@tawa.jit
def negative_programs(out):
    i = tl.program_id(0)
    if i * 30000 < 0:
        tl.store(out, i)


@tawa.jit
def quotients_of_wrapped(out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    for k in range(0, n, 1000):
        tl.store(out + k // 1000 * N + i, (k * 30000 + 16 + i) // 16)


def wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def test_a_product_of_a_counter():
    out = np.zeros(1, np.int32)
    tawa.simulate(negative_products, out, 80001, grid=(1,))
    assert out[0] == sum(wrapped(k * 30000) < 0 for k in range(0, 80001, 1000))


def test_a_product_of_a_program():
    text = negative_programs.compile(np.zeros(1, np.int32), grid=(80_000,)).asm["tile"]
    assert '"lt"' in text  # no range decides it


@pytest.mark.parametrize("run", ["simulated", pytest.param("emulated", marks=needs_compiler)])
def test_quotients_of_a_product(run):
    iterations, n = np.arange(0, 80001, 1000), 1024
    out = np.zeros(iterations.size * n, np.int32)
    if run == "simulated":
        tawa.simulate(quotients_of_wrapped, out, 80001, N=n, grid=(1,))
    else:
        asked = quotients_of_wrapped.compile(out, 80001, N=n, grid=(1,))
        assert not guards_hold(asked, {"out": out, "n": 80001}, (1, 1, 1))
        compiled = quotients_of_wrapped.compile_plain(out, 80001, N=n, grid=(1,))
        assert not compiled.guards
        emulate(parse(compiled.asm["hopper"]), {"out": out, "n": 80001}, (1, 1, 1))
    products = (iterations[:, None] * 30000 + 16 + np.arange(n)).astype(np.int32)
    np.testing.assert_array_equal(out.reshape(products.shape), np.trunc(products / 16))
