"""Faults that users met, on the GPU: the right values, and nothing beside them touched.

Needs torch with CUDA and a Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

import tawa  # noqa: E402
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
