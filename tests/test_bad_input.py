"""Bad input, end to end: each launch is refused with what, where, why and what to do, and nothing
runs. One row for each kind of mistake that a user can make.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tawa
import tawa.language as tl
from runtime_fakes import FakeDriver, GpuArray, install
from tawa.errors import (
    ArgumentError,
    BuildError,
    DescriptorError,
    NoDriver,
    OverBudget,
    PlanError,
    ShapeUnsupported,
    TawaError,
    TypeMismatch,
    UnknownName,
    UnsupportedSyntax,
)
from tawa.runtime import compiler, cubins, dispatch, nvrtc

CUBINS = True

HALF = np.float16


def matrix(rows: int, columns: int, dtype: Any = HALF) -> np.ndarray:
    return np.ones((rows, columns), dtype)


def blocks(array: Any, *block: int) -> tawa.TensorDescriptor:
    return tawa.TensorDescriptor.from_tensor(array, list(block))


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(tl.float16))


def launch_matmul(a, b, c, bm=64, bn=64, bk=64, blocks_of=None, **options):
    shapes = blocks_of or {"a": (bm, bk), "b": (bk, bn), "c": (bm, bn)}
    descs = blocks(a, *shapes["a"]), blocks(b, *shapes["b"]), blocks(c, *shapes["c"])
    matmul[(1, 1)](*descs, a.shape[1], BM=bm, BN=bn, BK=bk, **options)


def good() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix(64, 64), matrix(64, 64), np.full((64, 64), np.nan, HALF)


# Each function launches once, on a result that must stay untouched; it returns the result.


def unsupported_python(c):
    def kernel(c, n):
        for i in range(n):
            if i > 3:
                continue
            tl.store(c + i, 1.0)

    tawa.jit(kernel)[(1,)](c, 8)


def unsupported_function(c):
    def kernel(c, B: tl.constexpr):
        tl.store(c, tl.extern_elementwise("", "", [B], {}, False))

    tawa.jit(kernel)[(1,)](c, B=64)


def unknown_name(c):
    def kernel(c):
        tl.store(c, scale_of_nobody)  # noqa: F821

    tawa.jit(kernel)[(1,)](c)


def shapes_of_a_dot(c):
    a, b, _ = good()
    launch_matmul(a, b, c, blocks_of={"a": (64, 32), "b": (64, 64), "c": (64, 64)})


def types_of_a_dot(c):
    a, b, _ = good()
    launch_matmul(a, b.astype(np.float32), c)


def block_sizes(c):
    def kernel(c, B: tl.constexpr):
        at = tl.arange(0, B)
        tl.store(c + at, at.to(tl.float16))

    tawa.jit(kernel)[(1,)](c, B=60)


def strides(c):
    _, b, _ = good()
    launch_matmul(matrix(64, 65)[:, :64], b, c)


def alignment(c):
    _, b, _ = good()
    flat = np.ones(64 * 64 + 8, HALF)
    offset = next(i for i in range(8) if flat[i:].ctypes.data % 16 == 2)
    launch_matmul(flat[offset : offset + 64 * 64].reshape(64, 64), b, c)


def shared_memory(c):
    a, b, _ = good()
    launch_matmul(a, b, c, depth=16)


def registers(c):
    a, b, _ = good()
    launch_matmul(a, b, c, bm=64, bn=256, bk=64, registers={"load": 40, "mma": 512})


def wrong_dtype(c):
    def kernel(x, c, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(c + at, tl.load(x + at))

    tawa.jit(kernel)[(1,)](np.ones(64, np.complex64), c, N=64)


def missing_argument(c):
    a, b, _ = good()
    matmul[(1, 1)](blocks(a, 64, 64), blocks(b, 64, 64), blocks(c, 64, 64), BM=64, BN=64, BK=64)


def unknown_argument(c):
    a, b, _ = good()
    launch_matmul(a, b, c, BLOCK_M=64)


def pin(c):
    a, b, _ = good()
    launch_matmul(a, b, c, consumers=2)


def bad_grid(c):
    a, b, _ = good()
    descs = blocks(a, 64, 64), blocks(b, 64, 64), blocks(c, 64, 64)
    matmul[(1.5, 1)](*descs, 64, BM=64, BN=64, BK=64)


REFUSED = {
    unsupported_python: (UnsupportedSyntax, "continue cannot stand in a kernel", True),
    unsupported_function: (UnsupportedSyntax, "tl.extern_elementwise is not supported", True),
    unknown_name: (UnknownName, "scale_of_nobody", True),
    shapes_of_a_dot: (TypeMismatch, "the operands of tl.dot do not fit", True),
    types_of_a_dot: (TypeMismatch, "tl.dot", True),
    block_sizes: (ShapeUnsupported, "an extent of 60", True),
    strides: (DescriptorError, "got 130 (65 x f16) along dimension 0", False),
    alignment: (DescriptorError, "a_desc", False),
    shared_memory: (OverBudget, "bytes of shared memory", False),
    registers: (TawaError, "512", False),
    wrong_dtype: (ArgumentError, "complex64", False),
    missing_argument: (ArgumentError, "matmul needs 'K'", False),
    unknown_argument: (ArgumentError, "BLOCK_M", False),
    pin: (PlanError, "consumers=2", False),
    bad_grid: (ArgumentError, "1.5", False),
}


@pytest.mark.parametrize("launch", REFUSED, ids=lambda launch: launch.__name__)
def test_a_launch_that_is_refused(launch) -> None:
    kind, text, placed = REFUSED[launch]
    result = np.full((64, 64), np.nan, HALF)
    with pytest.raises(kind) as caught:
        launch(result)
    error = caught.value
    assert text in str(error)
    assert error.remedy, error
    assert error.why or launch in (strides, alignment), error
    assert (error.place is not None) == placed
    if placed:
        line, caret = str(error).splitlines()[2:4]
        assert error.place.file == __file__
        assert set(caret.strip()) == {"^"}
        assert line[caret.index("^")] != " "
    assert np.isnan(result).all()


def test_a_box_that_tma_cannot_take_goes_through_pointers() -> None:
    """Rows of 8 bytes: TMA moves 16 at least."""

    def kernel(x_desc, c_desc):
        c_desc.store([0, 0], x_desc.load([0, 0]))

    x, c = np.arange(4096).reshape(64, 64).astype(HALF), np.full((64, 64), np.nan, HALF)
    tawa.jit(kernel)[(1,)](blocks(x, 64, 4), blocks(c, 64, 4))
    np.testing.assert_array_equal(c[:, :4], x[:, :4])
    assert np.isnan(c[:, 4:]).all()


def test_shared_memory_over_budget_lists_the_buffers() -> None:
    with pytest.raises(OverBudget) as caught:
        shared_memory(np.full((64, 64), np.nan, HALF))
    for part in ("a@", "b@", "x 16 slots", "barriers of", "stage of c_desc@"):
        assert part in caught.value.why


def test_registers_over_budget_list_what_is_held() -> None:
    """Blocks whose sums no number of warpgroups can hold."""
    a, b = tawa.array((512, 64), "f16"), tawa.array((64, 2048), "f16")
    c = tawa.array((512, 2048), "f16")
    with pytest.raises(OverBudget, match="registers a thread") as caught:
        matmul.compile(
            *(blocks(a, 64, 64), blocks(b, 64, 1024), blocks(c, 64, 1024), 64),
            **{"BM": 64, "BN": 1024, "BK": 64, "specialize": True},
        )
    assert "acc" in caught.value.why
    assert caught.value.remedy == "use smaller block sizes"


# --- what needs, or lacks, a GPU ----------------------------------------------------------------


@tawa.jit
def fill(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.load(y + at))


def test_arrays_of_two_devices(monkeypatch) -> None:
    driver = FakeDriver()
    install(monkeypatch, driver)
    with pytest.raises(ArgumentError, match=r"x is on cuda:0, y is on the CPU") as caught:
        fill[(1,)](GpuArray((64,)), np.ones(64, np.float32), N=64)
    assert caught.value.remedy
    assert driver.launches == []


def test_no_driver(monkeypatch) -> None:
    def none():
        raise NoDriver("there is no NVIDIA driver on this machine", remedy="use the simulator")

    monkeypatch.setattr(dispatch, "connect", none)
    dispatch.gpu_target.cache_clear()
    with pytest.raises(NoDriver):
        fill[(1,)](GpuArray((64,)), GpuArray((64,)), N=64)


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
def test_a_failed_build_runs_nothing(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))

    def broken(kernel):
        source = generate(kernel)
        fields = {name: getattr(source, name) for name in source.__slots__}
        return type(source)(**{**fields, "text": source.text + "\nnonsense;\n"})

    generate = compiler.generate
    monkeypatch.setattr(compiler, "generate", broken)
    result = np.full(64, np.nan, np.float32)
    with pytest.raises(BuildError, match="NVRTC refused the code generated for") as caught:
        tawa.jit(fill.fn)[(1,)](result, np.ones(64, np.float32), N=64)
    assert "nonsense" in caught.value.why
    assert np.isnan(result).all()


def test_a_build_with_a_defect_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    log = "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions"

    def defective(text, name, *, arch, strict=True):
        nvrtc.check_log(log, name)

    monkeypatch.setattr(nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(cubins, "nvrtc", SimpleNamespace(**{**vars(nvrtc), "build": defective}))
    result = np.full(64, np.nan, np.float32)
    with pytest.raises(BuildError, match="wgmma is serialised"):
        tawa.jit(fill.fn)[(1,)](result, np.ones(64, np.float32), N=64)
    assert np.isnan(result).all()
