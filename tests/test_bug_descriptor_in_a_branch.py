"""A descriptor that the host can make, made in a branch of a loop over tiles that blocks ask for.

It is made before the roles from what it is computed from; what decides about the branch is not
that. The number of the tile was moved there with it, out of its ring: an internal error.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def product_of_some(
    a_desc, b_desc, o_ptr, rows, columns, most, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, row + BLOCK, BLOCK):  # iterations differ: blocks ask for their tiles
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, 0]), acc)
    if row < most:
        o_desc = tl.make_tensor_descriptor(o_ptr, [rows, columns], [columns, 1], [BLOCK, BLOCK])
        o_desc.store([row, 0], acc.to(tl.float16))


@pytest.mark.parametrize("persistent", [True, False])
def test_a_descriptor_made_in_a_branch(persistent):
    random = np.random.default_rng(0)
    a = random.standard_normal((256, 256), np.float32).astype(np.float16)
    b = random.standard_normal((256, 64), np.float32).astype(np.float16)
    out = np.zeros((256, 64), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    arguments = (desc(a, [64, 64]), desc(b, [64, 64]), out, 256, 64, 192)
    compiled = product_of_some.compile(*arguments, grid=(4,), BLOCK=64, persistent=persistent)
    assert compiled.plan.walk == ("dynamic" if persistent else "forward")
    assert [store.via for store in compiled.plan.stores] == ["tma"]
    product_of_some[(4,)](*arguments, BLOCK=64, persistent=persistent)
    for row in range(0, 192, 64):
        part = slice(row, row + 64)
        want = a[part, : row + 64].astype(np.float32) @ b[: row + 64].astype(np.float32)
        assert np.abs(out[part] - want).max() < 0.05
    assert not out[192:].any()
