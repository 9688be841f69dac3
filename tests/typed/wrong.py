"""Mistakes that both tools must still see: one on each line that ends in `wrong`."""

import tawa
import tawa.language as tl


@tawa.jit
def kernel(x_ptr: tl.pointer, n: int, BLOCK: tl.constexpr) -> None:
    x = tl.load(x_ptr + tl.arange(0, BLOCK), maks=None)  # wrong
    y = tl.load(x_ptr)
    y.summ(0)  # wrong
    tl.store(x_ptr, tl.exp2(x, n))  # wrong
    tl.no_such_function(x)  # wrong
