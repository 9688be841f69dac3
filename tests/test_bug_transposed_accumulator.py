"""A tile that a product adds to, and that is read again under another name of its registers."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def twice(a_desc, b_desc, p_desc, v_desc, c_desc, o_ptr, K, BM: tl.constexpr, BN: tl.constexpr):
    acc, k = tl.zeros((BM, BN), tl.float32), 0
    while k < K:
        for half in range(0, 2):
            acc = tl.dot(a_desc.load([0, k + half * 64]), b_desc.load([k + half * 64, 0]), acc)
        k += 128
    c_desc.store([0, 0], tl.dot(p_desc.load([0, 0]), v_desc.load([0, 0])) + acc)
    rows, columns = tl.arange(0, BN)[:, None], tl.arange(0, BM)[None, :]
    tl.store(o_ptr + rows * BM + columns, tl.trans(acc))


@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.parametrize("BM", [16, 64])
def test_what_a_product_adds_to_is_kept_where_it_is_read_transposed(BM, specialize):
    random = np.random.default_rng(BM)

    def blocks(m, n, box):
        made = random.integers(-2, 3, (m, n)).astype(np.float16)
        return made, tawa.TensorDescriptor.from_tensor(made, box)

    a, a_desc = blocks(BM, 256, [BM, 64])
    b, b_desc = blocks(256, 64, [64, 64])
    p, p_desc = blocks(BM, 64, [BM, 64])
    v, v_desc = blocks(64, 64, [64, 64])
    c, o = np.zeros((BM, 64), np.float32), np.zeros((64, BM), np.float32)
    c_desc = tawa.TensorDescriptor.from_tensor(c, [BM, 64])
    given = (a_desc, b_desc, p_desc, v_desc, c_desc, o, 256)
    twice[(1,)](*given, BM=BM, BN=64, specialize=specialize)
    product = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(o, product.T)
    assert np.array_equal(c, product + p.astype(np.float32) @ v.astype(np.float32))
