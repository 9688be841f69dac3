"""Tuning: choice, pruning, hooks, what is skipped and why, results on disk, Triton's objects."""

from __future__ import annotations

from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest

import tawa
from runtime_fakes import FakeCompiler, FakeDriver, GpuArray, install, parameters_of, sample_kernel
from tawa.codegen.parameters import GridParameter
from tawa.errors import ArgumentError, OverBudget, TuningError
from tawa.runtime.autotune import Autotuner
from tawa.runtime.compiled import LaunchShape
from tawa.runtime.config import Heuristics
from tawa.runtime.decorators import wrap
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore

SLOW = {16: 3.0, 32: 1.0, 64: 2.0}


def body(x, n, BLOCK: tl.constexpr, STAGES: tl.constexpr = 1):  # noqa: F821
    pass


class Space:
    """A kernel whose blocks take known times, and one of which (128) takes too much memory."""

    def __init__(self, monkeypatch, path):
        self.driver = FakeDriver(3)
        install(monkeypatch, self.driver)
        self.path = path
        self.timed = []
        self.compiler = FakeCompiler(make=self.compile)
        self.running = None
        monkeypatch.setenv("TAWA_CACHE_DIR", str(path))

    def compile(self, request):
        block = request.signature["BLOCK"].value
        if block >= 128:
            raise OverBudget(f"a block of {block} takes {block} KiB of shared memory")
        parameters = (*parameters_of(request.signature), GridParameter(0))
        shape = LaunchShape(128, block)
        return sample_kernel(parameters, launch=shape, signature=request.signature)

    def do_bench(self, run, quantiles):
        before = len(self.driver.launches)
        run()
        assert len(self.driver.launches) == before + 1
        block = self.driver.launches[-1].shared
        self.timed.append(block)
        return [SLOW[block]] * len(quantiles)

    def tuner(self, blocks=(16, 32, 64, 128), **options):
        self.kernel = JitFunction(
            body, compiler=self.compiler, store=DiskStore(self.path / "kernels")
        )
        configs = [tawa.Config({"BLOCK": block}) for block in blocks]
        return tawa.autotune(configs, key=["n"], do_bench=self.do_bench, **options)(self.kernel)


@pytest.fixture
def space(monkeypatch, tmp_path):
    return Space(monkeypatch, tmp_path)


def test_the_fastest_is_kept_for_each_key(space):
    tuner = space.tuner()
    for _ in range(3):
        compiled = tuner[(1,)](GpuArray((64,)), 256)
    assert tuner.best_config.kwargs == {"BLOCK": 32}
    assert space.timed == [16, 32, 64]
    assert "a block of 128 takes 128 KiB" in str(compiled)
    tuner[(1,)](GpuArray((64,)), 512)
    assert len(space.timed) == 6
    tuner[(1,)](GpuArray((64,), "float16"), 256)
    assert len(space.timed) == 9


def test_results_are_kept_on_disk(space):
    space.tuner()[(1,)](GpuArray((64,)), 256)
    again = space.tuner()
    again[(1,)](GpuArray((64,)), 256)
    assert len(space.timed) == 3
    assert again.best_config.kwargs == {"BLOCK": 32}
    other = space.tuner((16, 64))
    other[(1,)](GpuArray((64,)), 256)
    assert other.best_config.kwargs == {"BLOCK": 64}
    unkept = space.tuner(cache_results=False)
    unkept[(1,)](GpuArray((64,)), 256)
    assert len(space.timed) == 8


def test_none_feasible_lists_all_reasons(space):
    tuner = space.tuner((128, 256))
    with pytest.raises(TuningError, match="none of the 2 configurations of body") as caught:
        tuner[(1,)](GpuArray((64,)), 256)
    assert "BLOCK=128: a block of 128 takes 128 KiB" in str(caught.value)
    assert "BLOCK=256: a block of 256 takes 256 KiB" in str(caught.value)


def test_without_a_gpu_the_first_feasible_is_compiled(space):
    compiled = space.tuner((128, 64, 32)).compile(tawa.array((64,), "f32"), 256)
    assert compiled.signature["BLOCK"].value == 64
    assert "configuration BLOCK=128: a block of 128 takes 128 KiB" in str(compiled)
    assert "autotune: compiled without a launch" in str(compiled)
    assert space.timed == []


def test_configurations_are_built_at_once_and_then_timed(space):
    """All builds wait for one another: one after the other none would end."""
    meet, make = Barrier(4), space.compiler.make
    space.compiler.make = lambda request: (meet.wait(20), make(request))[1]
    tuner = space.tuner()
    tuner[(1,)](GpuArray((64,)), 256)
    assert space.timed == [16, 32, 64]
    assert len(space.compiler.requests) == 4  # what failed is not built again
    assert tuner.best_config.kwargs == {"BLOCK": 32}


def test_arrays_of_the_cpu_are_not_timed(space, monkeypatch):
    ran = []
    monkeypatch.setattr("tawa.runtime.compiled.Assembly.program", lambda *_: None)
    monkeypatch.setattr(
        "tawa.runtime.dispatch.simulate_stage", lambda *args, **_: ran.append(args[1:])
    )
    compiled = space.tuner()[(2,)](np.zeros(64, np.float32), 256)
    assert "there is no GPU to time on" in str(compiled)
    assert [(grid, level) for _, grid, level in ran] == [((2,), "hopper")]
    assert space.timed == []


def test_a_wrong_argument_is_no_reason_to_skip(space):
    with pytest.raises(ArgumentError, match="body needs 'n'"):
        space.tuner()[(1,)](GpuArray((64,)))


def test_one_configuration_is_not_timed(space):
    space.tuner((64,))[(1,)](GpuArray((64,)), 256)
    assert space.timed == []


def test_pruning(space):
    seen = {}

    def early(configs, named, **keywords):
        seen.update(named)
        return configs[1:]

    prune = {
        "early_config_prune": early,
        "perf_model": lambda BLOCK, **_: -BLOCK,
        "top_k": 2,
    }
    tuner = space.tuner((16, 32, 64), prune_configs_by=prune)
    tuner[(1,)](GpuArray((64,)), 256)
    assert seen["n"] == 256
    assert space.timed == [64, 32]
    with pytest.raises(ArgumentError, match="does not know 'topk'"):
        space.tuner(prune_configs_by={"topk": 2})
    nothing = space.tuner((16, 32), prune_configs_by={"early_config_prune": lambda *_, **__: []})
    with pytest.raises(TuningError, match="early_config_prune left no configuration of body"):
        nothing[(1,)](GpuArray((64,)), 256)


def test_an_unknown_key_is_refused():
    with pytest.raises(ArgumentError, match="the tuning key of body names 'm'"):
        tawa.autotune([tawa.Config({})], key=["m"])(JitFunction(body))


class Tensor(GpuArray):
    """A GPU array that records what tuning does with it."""

    log: list = []  # noqa: RUF012

    def zero_(self):
        self.log.append("zero")

    def clone(self):
        self.log.append("clone")
        return "copy"

    def copy_(self, value):
        self.log.append(f"copy_ {value}")


def test_tensors_are_reset_and_restored(space):
    x = Tensor((64,))
    x.log = []
    tuner = space.tuner((16, 32), reset_to_zero=["x"], restore_value=["x"])
    tuner[(1,)](x, 256)
    assert x.log == ["zero", "clone", "copy_ copy"] * 2 + ["zero"]


def test_hooks_of_the_user(space):
    seen = []
    tuner = space.tuner(
        (16, 32),
        pre_hook=lambda args, reset_only=False: seen.append(("before", args["BLOCK"], reset_only)),
        post_hook=lambda args, exception=None: seen.append(("after", args["BLOCK"], exception)),
    )
    tuner[(1,)](GpuArray((64,)), 256)
    assert seen == [
        ("before", 16, False),
        ("after", 16, None),
        ("before", 32, False),
        ("after", 32, None),
        ("before", 32, True),
    ]


def test_a_configuration_may_set_block_shapes(space):
    def gemm(a, n, BLOCK: tl.constexpr):  # noqa: F821
        pass

    def set_block(args):
        args["a"].block_shape = [args["BLOCK"], 64]

    kernel = JitFunction(gemm, compiler=space.compiler, store=DiskStore(space.path / "k"))
    config = tawa.Config({"BLOCK": 32}, pre_hook=set_block)
    tuner = tawa.autotune([config], key=[])(kernel)
    a = tawa.TensorDescriptor.from_tensor(GpuArray((128, 64), "bfloat16"), [1, 1])
    tuner[(1,)](a, 16)
    assert space.compiler.requests[-1].signature["a"].block_shape == (32, 64)
    assert tuner.compile(a, 16).signature["a"].block_shape == (32, 64)


def test_pins_in_a_configuration(space):
    kernel = JitFunction(body, compiler=space.compiler, store=DiskStore(space.path / "k"))
    configs = [tawa.Config({"BLOCK": 32}, num_warps=8, depth={"a": 4}, consumers=2)]
    tawa.autotune(configs, key=[])(kernel).compile(tawa.array((64,), "f32"), 16)
    request = space.compiler.requests[-1]
    assert request.options == {"num_warps": 8}
    assert (request.pins.consumers, request.pins.depth) == (2, (("a", 4),))


def test_heuristics(space):
    kernel = JitFunction(body, compiler=space.compiler, store=DiskStore(space.path / "k"))
    smart = tawa.heuristics({"BLOCK": lambda args: tawa.next_power_of_2(args["n"])})(kernel)
    smart[(1,)](GpuArray((64,)), 50)
    assert space.compiler.requests[-1].signature["BLOCK"].value == 64
    assert smart.compile(GpuArray((64,)), 20).signature["BLOCK"].value == 32


# --- Triton's objects, by their attributes ------------------------------------------------------


def triton_kernel():
    jit = type("JITFunction", (), {})()
    jit.fn = body
    jit.do_not_specialize = ["n"]
    jit.do_not_specialize_on_alignment = []
    jit.pre_run_hooks = []
    return jit


def triton_config(block, **options):
    facts = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "pre_hook": None}
    return SimpleNamespace(kwargs={"BLOCK": block}, **{**facts, "ir_override": None, **options})


def triton_tuner(fn, configs, **options):
    tuner = type("Autotuner", (), {"prune_configs": None})()
    facts = {
        "fn": fn,
        "configs": configs,
        "keys": ["n"],
        "reset_to_zero": ["x"],
        "restore_value": [],
        "user_defined_pre_hook": False,
        "user_defined_post_hook": False,
        "pre_hook": None,
        "post_hook": None,
        "early_config_prune": None,
        "perf_model": None,
        "configs_top_k": 1.0,
        "_do_bench": None,
    }
    vars(tuner).update({**facts, **options})
    return tuner


def test_a_triton_kernel_keeps_its_decorators():
    heuristics = type("Heuristics", (), {})()
    heuristics.fn, heuristics.values = triton_kernel(), {"STAGES": lambda args: 3}
    model = lambda **_: 0  # noqa: E731
    configs = [triton_config(32, num_warps=8), triton_config(64)]
    tuner = tawa.jit(triton_tuner(heuristics, configs, perf_model=model, configs_top_k=1))
    assert isinstance(tuner, Autotuner)
    assert isinstance(tuner.fn, Heuristics)
    assert tuner.kernel.fn is body
    assert not tuner.kernel.kernel.by_name["n"].specialize
    assert tuner.keys == ["n"]
    assert tuner.configs[0].all_kwargs() == {
        "BLOCK": 32,
        "num_warps": 8,
        "num_stages": 3,
        "num_ctas": 1,
    }
    assert tuner._hooks.reset_to_zero == ("x",)
    assert tuner._pruning.model is model


def test_what_cannot_be_a_kernel():
    with pytest.raises(ArgumentError, match=r"tawa\.jit got an object of type int"):
        tawa.jit(3)
    with pytest.raises(ArgumentError, match=r"tawa\.jit got a lambda"):
        tawa.jit(lambda x: x)
    assert wrap(wrap(body)).fn is body
