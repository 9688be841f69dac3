"""What a kernel and a call of the library do with tensors of torch that are more than memory."""

import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError
from tawa.kernels.attention import attention
from tawa.kernels.matmul import matmul
from tawa.runtime import arrays

torch = pytest.importorskip("torch")


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


def added(x, y):
    out = torch.empty_like(x)
    add[(4,)](x, y, out, 1000, BLOCK=256)
    return out


def half(*shape):
    return torch.randn(*shape).half()


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


@pytest.fixture(params=["first call", "later call"])
def matrices(request):
    a, b = half(64, 64), half(64, 64)
    if request.param == "later call":
        for _ in range(3):
            matmul(a, b)
    return a, b


def test_a_gradient_that_would_be_lost_is_refused(matrices):
    a, b = matrices
    asking = a.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="a requires a gradient"):
        matmul(asking, b)
    with pytest.raises(ArgumentError, match="bias requires a gradient"):
        matmul(a, b, bias=torch.zeros(64, requires_grad=True))
    with torch.no_grad():
        assert not matmul(asking, b).requires_grad
    q = half(1, 1, 16, 64)
    with pytest.raises(ArgumentError, match="k, v require a gradient"):
        attention(q, q.clone().requires_grad_(), q.clone().requires_grad_())


def test_out_makes_autograd_refuse_what_it_saved(matrices):
    a, b = matrices
    weight = torch.ones(64, 64, requires_grad=True)
    out = torch.ones(64, 64).half()
    loss = (out * weight).sum()
    matmul(a, b, out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


KINDS = {
    "sparse_coo": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "sign is turned": torch._neg_view,
    "knows to be zeros": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "functionalize": torch._to_functional_tensor,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_without_plain_memory_are_refused_by_name(kind, matrices):
    a, b = matrices
    with pytest.raises(ArgumentError, match=kind):
        matmul(KINDS[kind](a), b)
    x = torch.randn(1000)
    with pytest.raises(ArgumentError, match=kind):
        added(x, KINDS[kind](x))


def test_fake_tensors_are_refused_by_name(matrices):
    a, b = matrices
    from torch._subclasses import FakeTensorMode

    x = torch.randn(1000)
    added(x, x)
    with FakeTensorMode() as mode:
        fake, line = mode.from_tensor(a), mode.from_tensor(x)
        with pytest.raises(ArgumentError, match="FakeTensor"):
            matmul(fake, fake)
        with pytest.raises(ArgumentError, match="FakeTensor"):
            add[(4,)](line, line, line, 1000, BLOCK=256)
    with pytest.raises(ArgumentError, match="FakeTensor"):
        matmul(fake, b)


def test_transforms_and_recorders_are_refused(matrices):
    from torch.fx.experimental.proxy_tensor import make_fx

    a, b = matrices
    x = torch.randn(1000)
    added(x, x)
    transforms = (
        lambda f: lambda t: torch.vmap(f)(torch.stack([t, t])),
        lambda f: torch.func.grad(lambda t: f(t).float().sum()),
        torch.func.functionalize,
    )
    for transform in transforms:
        with pytest.raises(ArgumentError, match="inside a transform"):
            transform(lambda t: matmul(t, b))(a)
        with pytest.raises(ArgumentError, match="inside a transform"):
            transform(lambda t: added(t, x))(x)
    with pytest.raises(ArgumentError, match="ProxyTorchDispatchMode"):
        make_fx(lambda t: matmul(t, b))(a)
    with pytest.raises(ArgumentError, match="ProxyTorchDispatchMode"):
        make_fx(lambda t: added(t, x))(x)
    with pytest.raises(ArgumentError, match="FakeTensorMode"):
        make_fx(lambda t: matmul(t, b), tracing_mode="symbolic")(a)


def test_descriptors_of_such_tensors_are_refused_too():
    from torch.fx.experimental.proxy_tensor import make_fx

    @tawa.jit
    def copy(x, out):
        out.store([0, 0], x.load([0, 0]))

    def copied(x):
        out = torch.empty(16, 64)
        copy[(1,)](*(tawa.TensorDescriptor.from_tensor(each, [16, 64]) for each in (x, out)))
        return out

    x = torch.randn(16, 64)
    assert torch.equal(copied(x), x)
    with pytest.raises(ArgumentError, match="functionalize"):
        copied(torch._to_functional_tensor(x))
    with pytest.raises(ArgumentError, match="inside a transform"):
        torch.vmap(copied)(torch.stack([x, x]))
    with pytest.raises(ArgumentError, match="ProxyTorchDispatchMode"):
        make_fx(copied)(x)


def test_one_array_of_another_library_hides_no_gradient():
    with pytest.raises(ArgumentError, match="a requires a gradient"):
        matmul(half(8, 8).requires_grad_(), half(8, 8).numpy())


def compiled(function):
    """Return a function under Dynamo, and the graphs it was cut into."""
    graphs = []
    torch._dynamo.reset()

    def keep(graph, _):
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    return torch.compile(function, backend=keep), graphs


@pytest.mark.parametrize("warm", [False, True])
def test_dynamo_breaks_the_graph_at_a_library_call(warm):
    a, b = half(64, 64), half(64, 64)

    def model(x):
        return torch.relu(matmul(torch.relu(x), b)) + 1

    expected = model(a)
    for _ in range(3 if warm else 0):
        matmul(a, b)
    cut, graphs = compiled(model)
    for _ in range(2):
        assert torch.equal(cut(a), expected)
    assert graphs == [[torch.relu], [torch.relu, graphs[1][1]]]


def test_dynamo_breaks_the_graph_at_a_launch():
    x, y = torch.randn(1000), torch.randn(1000)
    tuned = tawa.autotune([tawa.Config({"BLOCK": 256}), tawa.Config({"BLOCK": 512})], ["n"])(add)

    def model(x, launched):
        out = torch.empty_like(x)
        launched[lambda meta: (tawa.cdiv(1000, meta["BLOCK"]),)](x * 2, y, out, 1000)
        return out + 1

    for launched in (tuned, tawa.heuristics({"BLOCK": lambda _: 256})(add)):
        cut, graphs = compiled(model)
        for _ in range(2):
            torch.testing.assert_close(cut(x, launched), x * 2 + y + 1)
        assert 2 <= len(graphs) <= 3
    with pytest.raises(Exception, match=r"tawa\.torch\.op"):
        torch.compile(added, backend="eager", fullgraph=True)(x, y)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 32, 64), (64, 128)),
        ((2, 3, 32, 64), (2, 3, 64, 16)),
        ((1, 32, 64), (4, 64, 32)),
        ((4, 32, 64), (1, 64, 32)),
        ((2, 1, 32, 64), (1, 3, 64, 32)),
        ((32, 64), (3, 64, 32)),
        ((64,), (2, 64, 32)),
        ((3, 32, 64), (64,)),
        ((64,), (64,)),
        ((0, 32, 64), (64, 8)),
        ((3, 5, 7), (7, 9)),
        ((1, 5, 7), (3, 7, 9)),
    ],
)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_products_have_torchs_shapes(left, right, library):
    a, b = half(*left), half(*right)
    expected = torch.matmul(a.double(), b.double())
    given = (a, b) if library == "torch" else (a.numpy(), b.numpy())
    found = torch.as_tensor(matmul(*given))
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)


def test_products_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"no product of shapes \(2, 8, 8\) and \(3, 8, 8\)"):
        matmul(half(2, 8, 8), half(3, 8, 8))
    with pytest.raises(ArgumentError, match="no product of shapes"):
        matmul(half(2, 2, 8, 8), half(3, 8, 8))
    with pytest.raises(ArgumentError, match="number is no matrix"):
        matmul(torch.tensor(1.0).half(), half(8, 8))
    with pytest.raises(ArgumentError, match="only a copy"):
        matmul(half(2, 2, 8, 8), half(8, 8), half(2, 4, 8, 8)[:, ::2])
    out = half(2, 2, 8, 8)
    assert matmul(half(2, 2, 8, 8), half(8, 8), out) is out


def test_float32_follows_torchs_precision():
    a, b = torch.randn(64, 256), torch.randn(256, 64)
    exact = a.double() @ b.double()

    def error(found):
        return float((torch.as_tensor(found).double() - exact).abs().max() / exact.abs().max())

    own = error(a @ b)
    assert error(matmul(a, b)) < 4 * own
    assert error(matmul(a.numpy(), b.numpy())) < 4 * own
    assert error(matmul(a, b, input_precision="tf32")) > 100 * own
    try:
        torch.set_float32_matmul_precision("high")
        assert error(matmul(a, b)) > 100 * own
        assert error(matmul(a, b, input_precision="ieee")) < 4 * own
        assert error(matmul(a.numpy(), b.numpy())) < 4 * own
    finally:
        torch.set_float32_matmul_precision("highest")
    with pytest.raises(ArgumentError, match="ieee, tf32"):
        matmul(a, b, input_precision="half")


def test_autocast_casts_as_torchs_own():
    a, b, bias = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = matmul(a, b, bias=bias)
        assert found.dtype == (a @ b).dtype == torch.bfloat16
        q = torch.randn(1, 1, 16, 64)
        assert attention(q, q, q).dtype == torch.bfloat16
        out = torch.empty(64, 64)
        assert matmul(a, b, out) is out
    expected = (a.bfloat16().double() @ b.bfloat16().double()) + bias.bfloat16().double()
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-1)
    torch.testing.assert_close(out, a @ b, rtol=1e-5, atol=1e-5)


def test_an_array_of_another_library_says_what_to_pass():
    from runtime_fakes import GpuArray
    from tawa.runtime.arrays import maker_beside

    with pytest.raises(ArgumentError, match="can be made beside a GpuArray"):
        maker_beside(GpuArray((64, 64)), (64, 64), "f16")


@tawa.jit
def copied(x, more, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def test_an_empty_tensor_costs_a_launch_no_look_at_its_tensors(monkeypatch):
    x, out, looked = torch.randn(64), torch.empty(64), []
    plain = arrays.check_storage
    monkeypatch.setattr(arrays, "check_storage", lambda t: (looked.append(t), plain(t)))

    def looks(more):
        copied[(1,)](x, more, out, BLOCK=64)
        looked.clear()
        copied[(1,)](x, more, out, BLOCK=64)
        return len(looked)

    assert looks(torch.empty(0)) == looks(torch.empty(1))
    assert torch.equal(out, x)


def test_a_tensor_that_gave_its_storage_back_is_refused():
    """As FSDP's parameters do between their uses: a kernel would read address 0."""
    x, out = torch.randn(64), torch.empty(64)
    copied[(1,)](x, x, out, BLOCK=64)
    x.untyped_storage().resize_(0)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="gave its storage back"):
            copied[(1,)](x, out, out, BLOCK=64)
