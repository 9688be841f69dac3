"""`desc.gather` and `desc.scatter` of descriptors that the host made, and what they refuse."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import DescriptorError, TypeMismatch


@tawa.jit
def copy_rows(source, target, ids, N: tl.constexpr):
    rows = tl.load(ids + tl.arange(0, N))
    target.scatter(source.gather(rows, 8), tl.arange(0, N), 0)


def described(block=(1, 16)):
    x = np.random.default_rng(0).standard_normal((20, 24)).astype(np.float16)
    out = np.full((16, 16), 7, np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    return x, out, desc(x, list(block)), desc(out, [1, 16])


@pytest.mark.parametrize("level", ["tile", "hopper"])
def test_rows_are_moved_by_number(level):
    x, out, source, target = described()
    ids = np.array([3, 19, 0, 3, -1, 20, 7, 8], np.int32)
    tawa.simulate(copy_rows, source, target, ids, grid=(1,), level=level, N=8)
    wanted = np.stack([x[i, 8:] if 0 <= i < 20 else np.zeros(16) for i in ids])
    np.testing.assert_array_equal(out[:8], wanted)
    assert (out[8:] == 7).all()


def test_the_block_is_one_row():
    _, _, source, target = described((4, 16))
    with pytest.raises(DescriptorError, match="block_shape is \\[1, columns\\]") as caught:
        copy_rows[(1,)](source, target, np.zeros(8, np.int32), N=8)
    assert "block_shape [1, 16]" in str(caught.value)


@tawa.jit
def by_scalar(source, out):
    tl.store(out + tl.arange(0, 16), tl.sum(source.gather(3, 0), 0))


@tawa.jit
def by_floats(source, out):
    tl.store(out + tl.arange(0, 16), tl.sum(source.gather(tl.zeros((8,), tl.float32), 0), 0))


@pytest.mark.parametrize("kernel", [by_scalar, by_floats])
def test_rows_are_a_vector_of_integers(kernel):
    _, out, source, _ = described()
    with pytest.raises(TypeMismatch):
        kernel[(1,)](source, out)


@tawa.jit
def wrong_shape(target):
    target.scatter(tl.zeros((8, 8), tl.float16), tl.arange(0, 8), 0)


def test_what_is_scattered_has_a_row_for_each_number():
    *_, target = described()
    with pytest.raises(TypeMismatch, match="scatter of"):
        wrong_shape[(1,)](target)


def test_rows_outside_are_what_the_descriptor_is_padded_with():
    x, out, _, target = described()
    source = tawa.TensorDescriptor(x, x.shape, (24, 1), [1, 16], padding="nan")
    ids = np.array([3, -1, 0, 20, 1, 2, 7, 8], np.int32)
    tawa.simulate(copy_rows, source, target, ids, grid=(1,), N=8)
    assert np.isnan(out[[1, 3]]).all()
    np.testing.assert_array_equal(out[0], x[3, 8:])
