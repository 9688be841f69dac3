"""Library calls on torch's tensors run as straight-line code: with the arrays of each call, and
only where the facts are those it was made for.
"""

import sys
import types
from math import prod
from typing import ClassVar

import pytest

import tawa
import tawa.kernels.straight as straight
from in_threads import together
from runtime_fakes import FakeCompiler, FakeDriver, install
from tawa.errors import ArgumentError
from tawa.kernels import gemm
from tawa.kernels.matmul import Tuner, matmul
from tawa.kernels.variants import Problem, Variant
from tawa.runtime import dispatch
from tawa.runtime.fingerprint import Binding
from tawa.runtime.forms import changed
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore

BASE, PAGE = 0x7F0000000000, 1 << 20


class Tensor:
    """A CUDA tensor of torch without memory."""

    is_cuda = True
    made: ClassVar[list[int]] = []
    next_made = BASE + (1 << 36)

    def __init__(self, *shape, dtype="float16", address=BASE, device=0, strides=None):
        self.shape, self.dtype, self.address, self.ordinal = shape, dtype, address, device
        self.strides = strides or tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        self.device = types.SimpleNamespace(type="cuda", index=device)

    requires_grad = False

    def is_neg(self):
        return False

    def data_ptr(self):
        return self.address

    def get_device(self):
        return self.ordinal

    def stride(self):
        return self.strides


def empty_strided(shape, strides, dtype, device):
    address = Tensor.next_made + PAGE * len(Tensor.made)
    Tensor.made.append(address)
    return Tensor(*shape, dtype=dtype, address=address, device=device.index, strides=strides)


def at(place, *shape, **how):
    return Tensor(*(shape or (256, 256)), address=BASE + PAGE * place, **how)


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A driver that records, tuned products, and a count of the launches that were not entered."""
    driver = FakeDriver(parameters=4)
    install(monkeypatch, driver)
    torch = types.ModuleType("torch")
    torch.Tensor, torch.empty_strided = Tensor, empty_strided
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, init=lambda: None
    )
    torch._C = types.SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: 5,
        _cuda_getDevice=lambda: driver.current,
        _is_any_autocast_enabled=lambda: False,
    )
    driver.written = []
    graph = types.SimpleNamespace(increment_version=driver.written.append)
    torch.autograd = types.SimpleNamespace(graph=graph)
    torch.float16, torch.bfloat16, torch.float32 = "float16", "bfloat16", "float32"
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(Tensor, "made", [])
    driver.ordinary = 0

    class Counted(JitFunction):
        def __getitem__(self, grid):
            driver.ordinary += 1
            return super().__getitem__(grid)

    fake = Counted(gemm.matmul_descriptors.fn, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    monkeypatch.setattr(gemm, "matmul_descriptors", fake)
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    variant = Variant("descriptors", tawa.Config(sizes))

    class Chosen(Tuner):
        def choose(self, operands):
            return self.best.setdefault(operands.problem, variant)

    driver.tuner = Chosen()
    return driver


def maps(driver):
    """The addresses whose maps the last launch has, by the order in which they were made."""
    kept = {bytes([n + 1]) * 128: address for n, address in enumerate(driver.placed)}
    return [kept[each] for each in driver.launches[-1].maps if each in kept]


def test_each_call_gets_its_own_arrays(gpu):
    places = [(0, 1), (2, 3), (0, 3), (4, 4), (0, 1)]
    for call, (first, second) in enumerate(places):
        a, b = at(first), at(second)
        c = matmul(a, b, tuner=gpu.tuner)
        assert maps(gpu) == [a.address, b.address, c.address]
        assert c.address == Tensor.made[-1]
        assert gpu.launches[-1].stream == 5
        assert gpu.launches[-1].grid == (2, 2, 1)
        assert len(gpu.launches) == call + 1
    assert gpu.ordinary == 2  # the first, and the second, which is made straight


def test_products_of_any_ranks_have_one_recipe(gpu):
    """No step of torch's stands between: these tensors cannot be reshaped."""
    a, b = at(0, 2, 3, 64, 256), at(1)
    matmul(at(0, 384, 256), b, tuner=gpu.tuner)  # for which a variant is chosen
    for _ in range(4):
        c = matmul(a, b, tuner=gpu.tuner)
        assert maps(gpu) == [a.address, b.address, c.address]
        assert (c.shape, c.strides) == ((2, 3, 64, 256), (49152, 16384, 256, 1))
        assert gpu.launches[-1].grid == (3, 2, 1)
    assert gpu.ordinary == 3


def test_other_facts_are_another_call(gpu):
    variants = [
        lambda: (at(0), at(1)),
        lambda: (at(0, 512, 256), at(1)),
        lambda: (at(0, dtype="bfloat16"), at(1, dtype="bfloat16")),
        lambda: (at(0), at(1, strides=(1, 256))),
        lambda: (at(0, device=1), at(1, device=1)),
    ]
    for _ in range(4):
        for number, make in enumerate(variants):
            a, b = make()
            gpu.current = a.ordinal
            c = matmul(a, b, tuner=gpu.tuner)
            assert c.dtype == a.dtype
            assert c.shape == (a.shape[0], 256)
            assert c.ordinal == a.ordinal
            assert gpu.launches[-1].grid == (a.shape[0] // 128, 2, 1), number
            assert maps(gpu) == [a.address, b.address, c.address]
    assert gpu.ordinary == 2 * len(variants)


def test_an_output_that_is_aligned_otherwise_goes_the_ordinary_way(gpu, monkeypatch):
    for _ in range(3):
        matmul(at(0), at(1), tuner=gpu.tuner)
    assert gpu.ordinary == 2
    monkeypatch.setattr(Tensor, "next_made", Tensor.next_made + 2)
    with pytest.raises(tawa.errors.DescriptorError, match="16"):
        matmul(at(0), at(1), tuner=gpu.tuner)
    assert gpu.ordinary == 3


def test_memory_that_is_shared_is_refused_each_time(gpu):
    out = at(2)
    for _ in range(3):
        assert matmul(at(0), at(1), out, tuner=gpu.tuner) is out
    before = len(gpu.launches)
    with pytest.raises(ArgumentError, match="out shares memory with a"):
        matmul(out, at(1), out, tuner=gpu.tuner)
    inside = Tensor(256, 256, address=out.address + 256 * 256 * 2 - 512)
    with pytest.raises(ArgumentError, match="out shares memory with b"):
        matmul(at(0), inside, out, tuner=gpu.tuner)
    beside = Tensor(256, 256, address=out.address + 256 * 256 * 2)
    matmul(at(0), beside, out, tuner=gpu.tuner)
    assert len(gpu.launches) == before + 1
    assert gpu.ordinary == 2


def test_nothing_is_made_straight_in_a_capture(gpu):
    matmul(at(0), at(1), tuner=gpu.tuner)
    gpu.capturing = True
    for _ in range(3):
        matmul(at(0), at(1), tuner=gpu.tuner)
    assert gpu.ordinary == 4
    gpu.capturing = False
    matmul(at(0), at(1), tuner=gpu.tuner)
    gpu.capturing = True
    matmul(at(2), at(3), tuner=gpu.tuner)
    assert gpu.ordinary == 5


def test_another_current_device_is_entered_and_left(gpu):
    for _ in range(4):
        matmul(at(0, device=1), at(1, device=1), tuner=gpu.tuner)
        assert gpu.current == 0
    assert gpu.ordinary == 2


def test_hooks_and_rebound_variables_are_met(gpu, monkeypatch):
    seen, kernel = [], gemm.matmul_descriptors
    for _ in range(3):
        matmul(at(0), at(1), tuner=gpu.tuner)
    assert gpu.ordinary == 2
    kernel.pre_run_hooks.append(lambda *args, **keywords: seen.append(args[0].base.address))
    matmul(at(7), at(1), tuner=gpu.tuner)
    assert seen == [at(7).address]
    kernel.pre_run_hooks.clear()
    matmul(at(8), at(1), tuner=gpu.tuner)
    assert gpu.ordinary == 3
    name = {"x": 1}
    test = changed([Binding("x", 1, name, None)], made := {}, "0_")
    assert not eval(test, made)
    name["x"] = 2
    assert eval(test, made)


def test_options_of_other_types_are_other_calls(gpu):
    recipes = straight.Recipes(("a",))
    made = []

    def write():
        made.append(1)
        return straight.Recipe((), (), (0,))

    for option in (1, True, 1.0, (1,), (True,), 1):
        for _ in range(3):
            recipes.run((at(0),), (option,), write)
    assert len(made) == 4  # what a tuple holds is told apart by its value alone


def test_threads_make_the_same_call(gpu):
    wrong = []

    def work(seed):
        for turn in range(20):
            a = at(seed * 32 + turn)
            if matmul(a, a, tuner=gpu.tuner).shape != (256, 256):
                wrong.append(seed)

    together(4, work)
    assert not wrong
    assert len(gpu.launches) == 80
    assert gpu.ordinary < 20


def test_problems_are_what_recipes_are_tuned_by(gpu):
    matmul(at(0), at(1), tuner=gpu.tuner)
    (problem,) = gpu.tuner.best
    assert isinstance(problem, Problem)
    assert dispatch.connect() is gpu
