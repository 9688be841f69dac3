"""The generated text itself, run on the host: layouts, fragments, descriptors and addresses."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

import codegen_kernels as kernels
from codegen_emulator import emulate, needs_compiler
from codegen_samples import compiled, worked_example
from frontend_kernels import of
from tawa.codegen.generate import generate
from tawa.frontend.signature import DescriptorArg
from tawa.plan.pins import Pins

pytestmark = needs_compiler

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}
DATA = np.random.default_rng(11)


def small(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers: every order of sums is exact."""
    return DATA.integers(-3, 4, shape).astype(np.float32).astype(DTYPES[dtype])


def product(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(DTYPES[dtype])


def test_worked_example() -> None:
    a, b = small((128, 192), "bf16"), small((192, 256), "bf16")
    c = np.full((128, 256), np.nan, ml_dtypes.bfloat16)
    emulate(worked_example(), {"a_desc": a, "b_desc": b, "c_desc": c, "K": 192}, (1, 1, 1))
    assert np.array_equal(c.astype(np.float32), product(a, b, "bf16").astype(np.float32))


def test_a_kernel_that_waits_for_ever_is_reported() -> None:
    source = generate(worked_example())
    text = source.text.replace("barrier_expect(shared + A_B_14_FILLED + slot * 8, 49152);", "")
    assert text != source.text
    broken = type(source)(
        text, source.entry_name, source.parameters, source.threads, source.shared_bytes,
        source.cluster, source.persistent, source.arch,
    )  # fmt: skip
    a, b = small((128, 64), "bf16"), small((64, 256), "bf16")
    c = small((128, 256), "bf16")
    with pytest.raises(AssertionError, match="no thread can go on"):
        emulate(broken, {"a_desc": a, "b_desc": b, "c_desc": c, "K": 64}, (1, 1, 1))


@dataclass(frozen=True)
class Matmul:
    """A product: types, block, extents (of one or a few blocks) and pins."""

    dtype: str
    block: tuple[int, int, int]
    extents: tuple[int, int, int]
    out: str
    kind: str = "nt"
    pins: Pins = field(default_factory=Pins)


MATMULS = {
    "tails": Matmul("bf16", (128, 256, 64), (200, 304, 136), "bf16"),
    "rows of B": Matmul("bf16", (128, 256, 64), (128, 256, 192), "bf16", "nn"),
    "columns of both": Matmul("f16", (128, 128, 64), (128, 128, 192), "f32", "tt"),
    "176 columns": Matmul("f16", (128, 176, 64), (128, 176, 128), "f16"),
    "two blocks of rows": Matmul("bf16", (256, 128, 64), (256, 128, 128), "bf16"),
    "e4m3": Matmul("f8e4m3", (128, 128, 128), (128, 128, 256), "bf16"),
    "tf32": Matmul("f32", (128, 64, 32), (128, 64, 96), "f32"),
    "narrow K": Matmul("bf16", (64, 64, 16), (64, 64, 48), "bf16"),
    "cluster": Matmul("bf16", (128, 128, 64), (256, 256, 192), "bf16", "nt", Pins(cluster=2)),
    "cluster of four, one row of tiles too few": Matmul(
        "bf16", (128, 64, 64), (384, 128, 128), "bf16", "nt", Pins(cluster=4)
    ),
    "tiles of their own, in pairs of blocks": Matmul(
        "bf16",
        (64, 168, 64),
        (256, 336, 128),
        "bf16",
        "nt",
        Pins(arrangement="pingpong", cluster=2, parts=3),
    ),
    "in parts": Matmul("bf16", (128, 256, 64), (128, 256, 64), "bf16", "nt", Pins(parts=2)),
    "from registers": Matmul(
        "bf16", (128, 64, 64), (128, 64, 64), "bf16", "nt", Pins(store="registers")
    ),
    "ordinary": Matmul(
        "bf16", (128, 128, 64), (128, 128, 128), "bf16", "nt", Pins(specialize=False)
    ),
    "small": Matmul("f16", (16, 32, 64), (32, 64, 128), "f16"),
    "small e5m2": Matmul("f8e5m2", (16, 8, 64), (16, 8, 128), "f32"),
    "small columns": Matmul("f16", (32, 32, 32), (32, 32, 96), "f32", "tt"),
}


LONG = ("rows of B", "two blocks of rows", "in parts", "narrow K", "small e5m2", "ordinary")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in MATMULS],
)
def test_matmul(name: str) -> None:
    case = MATMULS[name]
    (bm, bn, bk), (m, n, k) = case.block, case.extents
    turned_a, turned_b = case.kind == "tt", case.kind != "nn"
    signature = of(
        a_desc=DescriptorArg(case.dtype, (bk, bm) if turned_a else (bm, bk)),
        b_desc=DescriptorArg(case.dtype, (bn, bk) if turned_b else (bk, bn)),
        c_desc=DescriptorArg(case.out, (bm, bn)),
        K="i32/16",
        BM=bm,
        BN=bn,
        BK=bk,
    )
    function = {"nt": kernels.matmul_nt, "nn": kernels.matmul_nn, "tt": kernels.matmul_tt}
    kernel = compiled(function[case.kind], signature, case.pins)
    a = small((k, m) if turned_a else (m, k), case.dtype)
    b = small((n, k) if turned_b else (k, n), case.dtype)
    c = np.full((m, n), 7, DTYPES[case.out])
    arguments = {"a_desc": a, "b_desc": b, "c_desc": c, "K": k}
    blocks = max(2, case.pins.cluster or 1)
    emulate(kernel, arguments, (-(-m // bm), -(-n // bn), 1), blocks=blocks, seed=len(name))
    want = product(a.T if turned_a else a, b.T if turned_b else b, case.out)
    assert np.array_equal(c.astype(np.float32), want.astype(np.float32))


def test_attention() -> None:
    q, k, v = (DATA.standard_normal((1, 256, 128)).astype(np.float16) for _ in range(3))
    o = np.full((1, 256, 128), np.nan, np.float16)
    scale = float(np.float32(np.log2(np.e) / np.sqrt(128)))
    kernel = compiled(kernels.attention, kernels.ATTENTION)
    arguments = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o, "S": 256, "scale": scale}
    emulate(kernel, arguments, (2, 1, 1), blocks=2)
    scores = q[0].astype(np.float64) @ k[0].astype(np.float64).T * scale
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    want = weights / weights.sum(1, keepdims=True) @ v[0].astype(np.float64)
    assert np.linalg.norm(o[0] - want) < 1e-3 * np.linalg.norm(want)


def ordinary(name: str, arguments: dict[str, object], blocks: int = 1) -> None:
    function, signature = kernels.ORDINARY[name]
    emulate(compiled(function, signature, Pins(specialize=False)), arguments, (blocks, 1, 1))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("add", np.float16), pytest.param("add i8", np.int8, marks=pytest.mark.long)],
)
def test_add(name: str, dtype: type) -> None:
    x, y = (DATA.integers(-9, 9, 700).astype(dtype) for _ in range(2))
    o = np.zeros(700, dtype)
    block = 1024 if name == "add" else 256
    ordinary(name, {"x_ptr": x, "y_ptr": y, "o_ptr": o, "n": 700}, -(-700 // block))
    assert np.array_equal(o, x + y)


def test_softmax() -> None:
    x = DATA.standard_normal((2, 1024)).astype(np.float32)
    o = np.zeros_like(x)
    ordinary("softmax", {"x_ptr": x, "o_ptr": o, "stride": 1024, "n": 1000}, 2)
    powers = np.exp(x[:, :1000].astype(np.float64))
    assert np.allclose(o[:, :1000], powers / powers.sum(1, keepdims=True), atol=1e-7)
    assert not o[:, 1000:].any()


def test_argmax() -> None:
    x = DATA.standard_normal((32, 64)).astype(np.float32)
    o = np.zeros(32, np.int32)
    ordinary("argmax", {"x_ptr": x, "o_ptr": o})
    assert np.array_equal(o, x.argmax(1))


def test_transpose() -> None:
    x = DATA.standard_normal((64, 64)).astype(np.float16)
    o = np.zeros_like(x)
    ordinary("transpose", {"x_ptr": x, "o_ptr": o})
    assert np.array_equal(o, x.T)


def test_quantize_saturates() -> None:
    x = (DATA.standard_normal(1024) * 200).astype(np.float16)
    o = np.zeros(1024, ml_dtypes.float8_e4m3fn)
    ordinary("quantize", {"x_ptr": x, "o_ptr": o, "scale": 2.5})
    want = np.clip(x.astype(np.float32) * np.float32(2.5), -448, 448).astype(o.dtype)
    assert np.array_equal(o.view(np.uint8), want.view(np.uint8))


def test_histogram() -> None:
    x = DATA.integers(0, 16, 1024).astype(np.int32)
    o = np.zeros(16, np.int32)
    ordinary("histogram", {"x_ptr": x, "o_ptr": o})
    assert np.array_equal(o, np.bincount(x, minlength=16))


@pytest.mark.parametrize(
    ("size", "back"), [pytest.param(64, False, marks=pytest.mark.long), (1024, True)]
)
def test_prefix_sums(size: int, back: bool) -> None:
    x = DATA.integers(-5, 6, size).astype(np.int32)
    o = np.zeros_like(x)
    signature = of(x_ptr="i32*/16", o_ptr="i32*/16", B=size, BACK=back)
    kernel = compiled(kernels.prefix_sums, signature, Pins(specialize=False))
    emulate(kernel, {"x_ptr": x, "o_ptr": o}, (1, 1, 1))
    want = np.cumsum(x[::-1])[::-1] if back else np.cumsum(x)
    assert np.array_equal(o, want)
