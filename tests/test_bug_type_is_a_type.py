"""`dtype is tl.bfloat16` was false where both are that type (FlagGems' argmax and randperm): the
type of an array's elements was another object than the language's.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def code(kind: tl.constexpr):
    if kind is tl.int32:
        return 1
    elif kind is not tl.float32:
        return 2
    else:
        return 3


@tawa.jit
def kernel(x, out):
    made = tl.load(x) + 1
    tl.store(out, code(x.dtype.element_ty))
    tl.store(out + 1, code(x.type.element_ty) + 10 * code(made.dtype))


def test_a_type_is_that_type():
    for element, wanted in ((np.int32, 1), (np.int16, 2), (np.float32, 3)):
        out = np.zeros(2, np.int32)
        kernel[(1,)](np.zeros(1, element), out)
        assert out.tolist() == [wanted, 11 * wanted]
