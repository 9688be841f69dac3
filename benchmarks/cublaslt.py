"""A small binding of cuBLASLt's matmul, to time every algorithm its heuristic offers.

torch.mm takes the heuristic's first answer; the best of the first two dozen is often faster, and is
the figure a compiler has to beat. Enumerators and structure sizes are those of cublasLt.h 13.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

from harness import Call, Case, Inputs, Missing

DATA_TYPE = {"f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29, "f32": 0}
COMPUTE_32F, COMPUTE_32F_TF32 = 68, 77
OP_N, OP_T = 0, 1
DESC_TRANSA, DESC_TRANSB, DESC_FAST_ACCUM = 3, 4, 25
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_OFFSET = 5, 6
PREF_WORKSPACE = 1
WORKSPACE_BYTES = 64 << 20


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


def load() -> ctypes.CDLL:
    """Return the library torch has loaded, or the one beside it."""
    names = ["libcublasLt.so.13"]
    for entry in sys.path:
        names += map(str, Path(entry).glob("nvidia/*/lib/libcublasLt.so.13"))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Missing("libcublasLt.so.13 is not on this machine")


def _ok(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} returned {code}")


class CublasLt:
    """One handle and workspace; `plan` gives a problem's algorithms."""

    def __init__(self) -> None:
        import torch

        self._library = load()
        self._library.cublasLtGetVersion.restype = c_size_t
        self._handle = c_void_p()
        _ok(self._library.cublasLtCreate(byref(self._handle)), "cublasLtCreate")
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    @property
    def version(self) -> int:
        return int(self._library.cublasLtGetVersion())

    def _layout(self, kind: int, rows: int, columns: int, batch: int) -> c_void_p:
        """Return a dense column-major layout, batched by whole matrices."""
        layout = c_void_p()
        create = self._library.cublasLtMatrixLayoutCreate
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), c_int64(rows))
        _ok(create(byref(layout), kind, *sizes), "cublasLtMatrixLayoutCreate")
        if batch > 1:
            put = self._library.cublasLtMatrixLayoutSetAttribute
            count, offset = c_int32(batch), c_int64(rows * columns)
            _ok(put(layout, LAYOUT_BATCH_COUNT, byref(count), c_size_t(4)), "batch count")
            _ok(put(layout, LAYOUT_BATCH_OFFSET, byref(offset), c_size_t(8)), "batch offset")
        return layout

    def problem(self, case: Case, out: str, fast: bool, most: int = 24) -> Problem:
        """Describe `case` and ask the heuristic for up to `most` algorithms.

        Row-major C = A B is column-major C' = B' A', so B is cuBLAS's first operand.
        """
        library = self._library
        kind = DATA_TYPE[case.dtype]
        compute = COMPUTE_32F_TF32 if case.dtype == "f32" else COMPUTE_32F
        description = c_void_p()
        create = library.cublasLtMatmulDescCreate
        _ok(create(byref(description), compute, DATA_TYPE["f32"]), "cublasLtMatmulDescCreate")
        put = library.cublasLtMatmulDescSetAttribute
        first, second = c_int32(OP_N if case.b_rows else OP_T), c_int32(OP_N)
        _ok(put(description, DESC_TRANSA, byref(first), c_size_t(4)), "transpose of B")
        _ok(put(description, DESC_TRANSB, byref(second), c_size_t(4)), "transpose of A")
        if case.dtype in ("e4m3", "e5m2"):
            flag = c_int8(int(fast))
            _ok(put(description, DESC_FAST_ACCUM, byref(flag), c_size_t(1)), "fast accumulation")
        b_shape = (case.n, case.k) if case.b_rows else (case.k, case.n)
        b = self._layout(kind, *b_shape, case.batch)
        a = self._layout(kind, case.k, case.m, case.batch)
        d = self._layout(DATA_TYPE[out], case.n, case.m, case.batch)
        preference = c_void_p()
        _ok(library.cublasLtMatmulPreferenceCreate(byref(preference)), "preference")
        limit = c_size_t(WORKSPACE_BYTES)
        put = library.cublasLtMatmulPreferenceSetAttribute
        _ok(put(preference, PREF_WORKSPACE, byref(limit), c_size_t(8)), "workspace limit")
        results = (_Result * most)()
        found = c_int()
        ask = library.cublasLtMatmulAlgoGetHeuristic
        code = ask(self._handle, description, b, a, d, d, preference, most, results, byref(found))
        _ok(code, "cublasLtMatmulAlgoGetHeuristic")
        library.cublasLtMatmulPreferenceDestroy(preference)
        return Problem(self, description, (b, a, d), list(results[: found.value]))

    def run(self, problem: Problem, algorithm: _Result, inputs: Inputs, stream: int) -> None:
        b, a, d = problem.layouts
        out = c_void_p(inputs.c.data_ptr())
        code = self._library.cublasLtMatmul(
            self._handle,
            problem.description,
            byref(problem.alpha),
            c_void_p(inputs.b.data_ptr()),
            b,
            c_void_p(inputs.a.data_ptr()),
            a,
            byref(problem.beta),
            out,
            d,
            out,
            d,
            byref(algorithm, _Result.algo.offset),
            c_void_p(self._workspace.data_ptr()),
            c_size_t(WORKSPACE_BYTES),
            c_void_p(stream),
        )
        _ok(code, "cublasLtMatmul")


class Problem:
    """A described product and the algorithms offered for it."""

    def __init__(
        self,
        owner: CublasLt,
        description: c_void_p,
        layouts: tuple[c_void_p, c_void_p, c_void_p],
        algorithms: list[_Result],
    ) -> None:
        self.owner = owner
        self.description = description
        self.layouts = layouts
        self.algorithms = [each for each in algorithms if each.state == 0]
        self.alpha, self.beta = c_float(1.0), c_float(0.0)

    def calls(self, index: int, sets: Sequence[Inputs]) -> list[Call]:
        """Return a call for each set of inputs that runs algorithm `index` on torch's stream."""
        import torch

        stream = torch.cuda.current_stream().cuda_stream

        def call(inputs: Inputs) -> Call:
            algorithm = self.algorithms[index]
            return lambda: self.owner.run(self, algorithm, inputs, stream)

        return [call(inputs) for inputs in sets]
