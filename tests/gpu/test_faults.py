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
import test_bug_bools_and_sorting as small  # noqa: E402
import test_bug_casts_out_of_range as casts  # noqa: E402
import test_bug_extrema_in_memory as extrema  # noqa: E402
import test_bug_index_of_nan as nans  # noqa: E402
import test_bug_keys_not_there as keys  # noqa: E402
import test_bug_row_ends as ends  # noqa: E402
import test_bug_steps_of_the_run as steps  # noqa: E402
import test_bug_stored_bools as bools  # noqa: E402
import test_language_random as random  # noqa: E402
import test_short_axes as axes  # noqa: E402
from tawa.errors import LaunchError  # noqa: E402
from tawa.kernels.attention import attention  # noqa: E402

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


# --- what else the host's tests say, on the GPU --------------------------------------------------


def on_gpu(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)).cuda() for array in arrays]


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16])
def test_bools_say_whether_it_is_not_zero(dtype) -> None:
    x = bools.numbers(dtype)
    given, o = on_gpu(x, np.zeros((8, bools.N), np.bool_))
    for kernel in (bools.by_pointers, bools.by_scalars, bools.by_descriptor, bools.by_scatter):
        o.zero_()
        kernel[(1,)](given, o, N=bools.N)
        rows = o if kernel is bools.by_scatter else o[:1]
        assert (rows.cpu().numpy() == (x != 0)).all()


@pytest.mark.parametrize("bounds", steps.RANGES)
def test_steps_of_the_run_count_as_python_does(bounds) -> None:
    (o,) = on_gpu(np.full(64, 99, np.int32))
    steps.listed[(1,)](o, *bounds)
    steps.check(o.cpu().numpy(), bounds)
    o, held = on_gpu(np.full(64, 99, np.int32), np.array(bounds, np.int32))
    steps.listed_of_memory[(1,)](o, held)
    steps.check(o.cpu().numpy(), bounds)


@pytest.mark.parametrize("bounds", steps.WIDE)
def test_bounds_farther_apart_than_int64_says(bounds) -> None:
    o, held = on_gpu(np.full(64, 99, np.int64), np.array(bounds, np.int64))
    steps.listed_of_memory[(1,)](o, held)
    steps.check(o.cpu().numpy(), bounds)
    if bounds[2] < 0:
        o.fill_(99)
        steps.listed[(1,)](o, *bounds)
        steps.check(o.cpu().numpy(), bounds)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_decide_extrema_in_memory(dtype) -> None:
    held, x = extrema.pairs(dtype)
    low, high, given = on_gpu(held, held, x)
    extrema.extrema[(1,)](low, high, given, N=extrema.N)
    extrema.check(low.cpu().numpy(), high.cpu().numpy(), held, x)


@pytest.mark.parametrize("bounds", [(0, 10, 0), (steps.MOST - 10, steps.MOST, 4)])
def test_loops_without_an_end_are_refused(bounds) -> None:
    (o,) = on_gpu(np.zeros(64, np.int32))
    with pytest.raises(LaunchError, match="never ends"):
        steps.listed[(1,)](o, *bounds)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_no_order_lets_a_nan_win(axis, dtype) -> None:
    x = nans.rows().astype(dtype)
    given = nans.arguments(x, axis)
    held = on_gpu(*given)
    sizes = {"M": given[0].shape[0], "N": given[0].shape[1], "AXIS": axis}
    nans.places[(1,)](*held, **sizes)
    nans.check(x, *(each.cpu().numpy() for each in held[1:]))


def test_bools_are_numbers_to_differences() -> None:
    x, y = small.operands()
    given = on_gpu(x, y, np.zeros(10 * small.N, np.int32))
    small.differences[(1,)](*given, N=small.N)
    small.check(x, y, given[2].cpu().numpy())


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_no_more_keys_count_than_there_are(kind) -> None:
    q, k, v = keys.dense()
    lengths = np.array([1 << 20, -5, 100], kind)
    out = attention(*on_gpu(q, k, v), lengths=on_gpu(lengths)[0]).cpu().numpy()
    for one in (0, 2):
        np.testing.assert_allclose(out[one], keys.softmax(q[one], k[one], v[one]), atol=2e-3)
    assert (out[1] == 0).all()


@pytest.mark.parametrize("page", [64, 16])
@pytest.mark.parametrize("entry", [keys.PAGES, -1, 1 << 20])
def test_rows_that_see_a_page_that_is_not_there_are_nan(page, entry) -> None:
    q, k, v, table = keys.paged(page)
    table[1, 1] = entry
    out = attention(*on_gpu(q, k, v), block_table=on_gpu(table.astype(np.int32))[0])
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


def test_sine_and_cosine_of_turns() -> None:
    u = np.abs(random.turns())
    given, cosine, sine = on_gpu(u, np.zeros_like(u), np.zeros_like(u))
    random.turned[(1,)](given, cosine, sine, N=u.size)
    angle = 2 * np.pi * u.astype(np.float64)
    assert np.abs(cosine.cpu().numpy() - np.cos(angle)).max() < 8e-7
    assert np.abs(sine.cpu().numpy() - np.sin(angle)).max() < 8e-7


@pytest.mark.parametrize("columns", [False, True])
def test_sums_along_short_axes(columns) -> None:
    _, given, sizes = axes.of(axes.chains, (128, 8), columns)
    held = [*on_gpu(*given[:3]), given[3]]
    axes.chains[(1,)](*held, **sizes)
    tawa.simulate(axes.chains, *given, **sizes, grid=(1,), level="tile")
    np.testing.assert_allclose(held[2].cpu().numpy(), given[2], rtol=1e-4)
