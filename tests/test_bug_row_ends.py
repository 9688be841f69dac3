"""TMA writes whole pieces of 16 bytes: no store by it may end inside one, or it changes what comes
after the row. The simulator writes what the hardware writes, so that these tests need no GPU.
"""

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import DescriptorError, LaunchError, PlanError
from tawa.passes import pipeline
from tawa.passes.descriptors import end_rows

DTYPES = (np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.int64)
GRID = (2, 8)
SIZES = {"BM": 16, "BN": 64}


@tawa.jit
def by_host(desc, value, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    desc.store([i, j], tl.full((BM, BN), value, tl.float32).to(desc.dtype))


@tawa.jit
def added_by_host(desc, value, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    desc.atomic_add([i, j], tl.full((BM, BN), value, tl.float32).to(desc.dtype))


@tawa.jit
def by_kernel(out, value, M, N, S, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    desc = tl.make_tensor_descriptor(out, [M, N], [S, 1], [BM, BN])
    desc.store([i, j], tl.full((BM, BN), value, tl.float32).to(desc.dtype))


@tawa.jit
def by_known_kernel(
    out, value, N: tl.constexpr, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    desc = tl.make_tensor_descriptor(out, [32, N], [S, 1], [BM, BN])
    desc.store([i, j], tl.full((BM, BN), value, tl.float32).to(desc.dtype))


@tawa.jit
def by_shape_of_another(like, out, value, S, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    desc = tl.make_tensor_descriptor(out, like.shape, [S, 1], [BM, BN])
    desc.store([i, j], tl.full((BM, BN), value, tl.float32).to(desc.dtype))


def guarded(dtype, columns, width=512):
    """Return an array of sevens in which an array of so many columns lies, and that array."""
    whole = np.full((34, width), 7, dtype)
    return whole, whole[1:-1, :columns]


def check(whole, columns, value):
    assert (whole[1:-1, :columns].astype(np.float64) == value).all()
    whole[1:-1, :columns] = 7
    assert (whole.astype(np.float64) == 7).all(), "nothing beside the tensor has changed"


def described(array):
    return tawa.TensorDescriptor.from_tensor(array, [SIZES["BM"], SIZES["BN"]])


def by_tma(compiled) -> bool:
    return "hopper.tma_store" in compiled.asm.text("hopper")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [466, 1, 449])
def test_rows_that_end_inside_16_bytes_end_there(dtype, columns) -> None:
    whole, part = guarded(dtype, columns)
    ran = by_host[GRID](described(part), 3.0, **SIZES)
    assert by_tma(ran) == (columns * part.itemsize % 16 == 0)
    check(whole, columns, 3)
    by_kernel[GRID](part, 4.0, 32, columns, 512, **SIZES)
    check(whole, columns, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_whole_pieces_go_by_tma(dtype) -> None:
    columns = 512 - 3 * 16 // np.dtype(dtype).itemsize
    whole, part = guarded(dtype, columns)
    assert by_tma(by_host[GRID](described(part), 3.0, **SIZES))
    check(whole, columns, 3)
    ran = by_kernel[GRID](part, 3.0, 32, columns, 512, **SIZES)
    assert by_tma(ran)
    check(whole, columns, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_reductions_too(dtype) -> None:
    for columns, whole_pieces in ((466, False), (464, True)):
        whole, part = guarded(dtype, columns)
        assert by_tma(added_by_host[GRID](described(part), 3.0, **SIZES)) == whole_pieces
        check(whole, columns, 10)


def test_a_launch_is_asked_what_compiling_does_not_know() -> None:
    """Of 4 elements of 4 bytes an argument's specialization says nothing."""
    for columns, whole_pieces in ((460, True), (466, False), (2, False)):
        whole, part = guarded(np.float32, columns)
        assert by_tma(by_kernel[GRID](part, 3.0, 32, columns, 512, **SIZES)) == whole_pieces
        check(whole, columns, 3)


@pytest.mark.parametrize("columns", [466, 464])
def test_constants_are_known(columns) -> None:
    whole, part = guarded(np.float16, columns)
    ran = by_known_kernel[GRID](part, 3.0, N=columns, S=512, **SIZES)
    assert by_tma(ran) == (columns == 464)
    assert not ran.guards
    check(whole, columns, 3)


def test_the_shape_of_another_descriptor() -> None:
    whole, part = guarded(np.float16, 466)
    by_shape_of_another[GRID](described(part.copy().repeat(1, 0)[:, :466]), part, 3.0, 512, **SIZES)
    check(whole, 466, 3)


def test_one_row_is_not_stepped_along() -> None:
    """Its stride may be anything, so that only the extent tells where it ends."""
    whole = np.full((1, 512), 7, np.float16)
    by_kernel[(1, 8)](whole[:, :466], 3.0, 1, 466, 466, **SIZES)
    assert (whole[:, :466] == 3).all()
    assert (whole[:, 466:] == 7).all()


def test_a_pinned_store_is_refused_with_the_reason() -> None:
    _, part = guarded(np.float16, 466)
    with pytest.raises(PlanError, match="rows are not known to end at a multiple of 16 bytes"):
        by_host.compile(described(part), 3.0, **SIZES, store="tma")


# --- the simulator writes what the hardware writes -----------------------------------------------


def wrongly(kernel, part, monkeypatch):
    """Run with stores by TMA although rows end inside 16 bytes."""
    passes = tuple(each for each in pipeline.TILE if each is not end_rows)
    monkeypatch.setattr(pipeline, "TILE", passes)
    compiled = kernel.compile(described(part), 3.0, **SIZES)
    assert by_tma(compiled)
    tawa.simulate(kernel, described(part), 3.0, grid=GRID, **SIZES)


@pytest.mark.parametrize(("dtype", "beyond"), [(np.int8, 448), (np.float16, 192), (np.float32, 64)])
def test_a_store_by_tma_goes_to_the_end_of_the_piece(dtype, beyond, monkeypatch, tmp_path) -> None:
    """The counts are those of an H100, where 32 rows of 466 columns were stored."""
    whole, part = guarded(dtype, 466)
    kernel = tawa.jit(by_host.fn)
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    wrongly(kernel, part, monkeypatch)
    assert (part == 3).all()
    assert (whole == 3).sum() == 32 * 466 + beyond


def test_beyond_the_last_row_of_all_is_an_error(monkeypatch, tmp_path) -> None:
    kernel = tawa.jit(by_host.fn)
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    whole = np.full((1, 512), 7, np.float16)
    with pytest.raises(LaunchError, match="outside of argument desc"):
        wrongly(kernel, whole[-1:, :466].copy(), monkeypatch)


# --- descriptors of more than there is -----------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides"), [([33, 512], [512, 1]), ([32, 512], [528, 1]), ([32, 520], [512, 1])]
)
def test_a_descriptor_of_more_than_its_array_is_refused(shape, strides) -> None:
    x = np.zeros((32, 512), np.float16)
    desc = tawa.TensorDescriptor(x, shape, strides, [16, 64])
    with pytest.raises(DescriptorError, match="its array shape") as caught:
        by_host[(1, 1)](desc, 3.0, **SIZES)
    assert "elements 0 to 16383" in str(caught.value)
    assert not x.any()


def test_a_descriptor_of_less_is_not() -> None:
    x = np.zeros((32, 512), np.float16)
    desc = tawa.TensorDescriptor(x, [16, 64], [1024, 1], [16, 64])
    by_host[(1, 1)](desc, 3.0, **SIZES)
    assert (x[::2, :64] == 3).all()
    assert x.sum() == 3 * 16 * 64
