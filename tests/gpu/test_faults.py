"""Faults that users met, on the GPU: the right values, and nothing beside them touched.

Needs torch with CUDA and a Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

import tawa  # noqa: E402
import test_bug_casts_out_of_range as casts  # noqa: E402
import test_bug_row_ends as ends  # noqa: E402

# --- rows that end inside 16 bytes ---------------------------------------------------------------


def guarded(dtype, columns):
    whole = torch.full((34, 512), 7, dtype=dtype, device="cuda")
    return whole, whole[1:-1, :columns]


def check(whole, columns, value):
    torch.cuda.synchronize()
    assert (whole[1:-1, :columns] == value).all()
    whole[1:-1, :columns] = 7
    assert (whole == 7).all(), "nothing beside the tensor has changed"


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32])
@pytest.mark.parametrize("columns", [466, 460, 464, 1])
def test_rows_end_where_they_end(dtype, columns) -> None:
    whole, part = guarded(dtype, columns)
    desc = tawa.TensorDescriptor.from_tensor(part, [16, 64])
    ran = ends.by_host[ends.GRID](desc, 3.0, **ends.SIZES)
    assert ends.by_tma(ran) == (columns * part.element_size() % 16 == 0)
    check(whole, columns, 3)
    ends.by_kernel[ends.GRID](part, 3.0, 32, columns, 512, **ends.SIZES)
    check(whole, columns, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
@pytest.mark.parametrize("columns", [466, 464])
def test_reductions_end_where_rows_end(dtype, columns) -> None:
    whole, part = guarded(dtype, columns)
    desc = tawa.TensorDescriptor.from_tensor(part, [16, 64])
    ends.added_by_host[ends.GRID](desc, 3.0, **ends.SIZES)
    check(whole, columns, 10)


# --- floats out of an integer's range ------------------------------------------------------------


@pytest.mark.parametrize("kernel", [casts.convert, casts.stored])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_floats_become_integers_as_in_the_simulator(dtype, kernel) -> None:
    given = casts.arguments(dtype)
    held = {name: torch.from_numpy(array.copy()).cuda() for name, array in given.items()}
    kernel[(1,)](*held.values(), N=casts.N)
    casts.check({name: array.cpu().numpy() for name, array in held.items()}, given["x"])


@pytest.mark.parametrize("value", [300.0, -1.0, 128.9, 4e9, -4e9, float("inf"), float("nan")])
def test_constants_out_of_range_mean_the_same(value) -> None:
    kinds = (torch.int8, torch.uint8, torch.int16)
    o8, p8, o16 = (torch.zeros(8, dtype=kind, device="cuda") for kind in kinds)
    casts.constants[(1,)](o8, p8, o16, V=value)
    x = np.full(8, value, np.float32)
    np.testing.assert_array_equal(o8.cpu().numpy(), casts.meant(x, np.int8))
    np.testing.assert_array_equal(p8.cpu().numpy(), casts.meant(x, np.uint8))
    np.testing.assert_array_equal(o16.cpu().numpy(), casts.meant(x * 2, np.int16))
