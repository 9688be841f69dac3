"""Programs other than plain GEMM on the GPU: attention, gathers by cp.async, softmax, clusters."""

import pytest

import tawa
import tawa.language as tl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


def error(found, wanted) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (8, 2)])
@pytest.mark.parametrize("length", [64, 512, 1000])
def test_attention(length, heads, shared, head_dim, causal) -> None:
    from tawa.kernels.attention import attention

    q = torch.randn(2, heads, length, head_dim, device="cuda", dtype=torch.float16)
    k, v = (
        torch.randn(2, shared, length, head_dim, device="cuda", dtype=torch.float16)
        for _ in range(2)
    )
    out = torch.full_like(q, float("nan"))
    attention(q, k, v, causal=causal, out=out)
    full = (x.double().repeat_interleave(heads // shared, 1) for x in (k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), *full, is_causal=causal)
    assert error(out, wanted) < 1e-3


@tawa.jit
def gather(
    a_ptr, rows_ptr, b_desc, c_ptr, K, am, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    rows = tl.load(rows_ptr + om)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inside = (k + ok)[None, :] < K
        a = tl.load(a_ptr + rows[:, None] * am + (k + ok)[None, :], mask=inside, other=0.0)
        acc = tl.dot(a, b_desc.load([k, n]), acc)
    on = n + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16))


@pytest.mark.parametrize("k", [64, 200, 1024])
def test_rows_gathered_by_cp_async(k) -> None:
    a = torch.randn(4096, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, 256, device="cuda", dtype=torch.float16)
    rows = torch.randint(0, 4096, (512,), device="cuda", dtype=torch.int32)
    c = torch.full((512, 256), float("nan"), device="cuda", dtype=torch.float16)
    described = tawa.TensorDescriptor.from_tensor(b, [64, 128])
    arguments = (a, rows, described, c, k, a.stride(0), c.stride(0))
    gather[4, 2](*arguments, BM=128, BN=128, BK=64)
    assert error(c, a[rows.long()].double() @ b.double()) < 2e-3


@tawa.jit
def softmax(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    y = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * stride + offsets, y / tl.sum(y, 0), mask=offsets < columns)


@pytest.mark.parametrize("columns", [7, 1000, 4096])
def test_softmax(columns) -> None:
    x = torch.randn(300, columns, device="cuda")
    out = torch.full_like(x, float("nan"))
    softmax[(300,)](x, out, columns, x.stride(0), BLOCK=4096)
    assert error(out, torch.softmax(x.double(), 1)) < 1e-5


@tawa.jit
def integer_matmul(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    B_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        b = b_desc.load([column, k]).T if B_K else b_desc.load([k, column])
        acc = tl.dot(a_desc.load([row, k]), b, acc)
    c_desc.store([row, column], acc)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("k_contiguous", [True, False])
@pytest.mark.parametrize("tile", [(128, 256, 128), (64, 80, 64), (16, 32, 64)])
def test_products_of_integers(tile, k_contiguous, kind) -> None:
    bm, bn, bk = tile
    dtype = getattr(torch, kind)
    limits = torch.iinfo(dtype)
    m, n, k = 300, 3 * bn, 720
    a = torch.randint(limits.min, limits.max + 1, (m, k), device="cuda").to(dtype)
    b = torch.randint(limits.min, limits.max + 1, (k, n), device="cuda").to(dtype)
    c = torch.full((m, n), -1, device="cuda", dtype=torch.int32)
    describe = tawa.TensorDescriptor.from_tensor
    b_desc = describe(b.T.contiguous(), [bn, bk]) if k_contiguous else describe(b, [bk, bn])
    arguments = (describe(a, [bm, bk]), b_desc, describe(c, [bm, bn]), k)
    integer_matmul[(-(-m // bm), 3)](*arguments, BM=bm, BN=bn, BK=bk, B_K=k_contiguous)
    assert torch.equal(c.double(), a.double() @ b.double())


@tawa.jit
def precise_matmul(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a, b = a_desc.load([row, k]), b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c_desc.store([row, column], acc)


@pytest.mark.parametrize("tile", [(128, 128, 32), (16, 32, 32)])
@pytest.mark.parametrize(
    ("precision", "most"),
    [("tf32", 2e-3), ("bf16x3", 5e-5), ("tf32x3", 1e-5), ("bf16x6", 1e-5), ("ieee", 2e-6)],
)
def test_products_of_fp32(precision, most, tile) -> None:
    bm, bn, bk = tile
    a, b = torch.randn(300, 520, device="cuda"), torch.randn(520, 3 * bn, device="cuda")
    c = torch.full((300, 3 * bn), float("nan"), device="cuda")
    describe = tawa.TensorDescriptor.from_tensor
    arguments = (describe(a, [bm, bk]), describe(b, [bk, bn]), describe(c, [bm, bn]), 520)
    precise_matmul[(-(-300 // bm), 3)](*arguments, BM=bm, BN=bn, BK=bk, PRECISION=precision)
    assert error(c, a.double() @ b.double()) < most
