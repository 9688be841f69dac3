"""The forms of attention that authors write: accepted as they are, specialized, proved, right."""

import numpy as np
import pytest

import attention_kernels as forms
import tawa
from attention_kernels import call_two_stages, normal, reference


def error(found, want):
    return np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)


def arrays(batch=1, heads=1, length=128, width=64, dtype="f16"):
    return tuple(normal(batch, heads, length, width, dtype=dtype, seed=seed) for seed in (0, 1, 2))


def run_two_stages(q, k, v, rows, columns, causal, inside=False, built=True, **pins):
    """Return the output, the log-sum-exp in base two, and the compiled kernel, which NVRTC takes
    where it is to be `built`: before the launch, which then has no other to compile.
    """
    out = np.zeros_like(q)
    lines = np.full(q.shape[:3], np.nan, np.float32)
    values = v if q.dtype.itemsize > 1 else np.ascontiguousarray(v.swapaxes(2, 3))
    grid, arguments, constants = call_two_stages(
        q, k, values, out, lines, rows, columns, causal, inside
    )
    if built:
        forms.two_stages.compile(*arguments, grid=grid, **constants, **pins)
    return out, lines, forms.two_stages[grid](*arguments, **constants, **pins)


def by_tma(kernel):
    """Return the tiles that TMA brings; a ring may also tell which program is next."""
    names = {name for ring in kernel.plan.arefs if ring.via == "tma" for name in ring.payload}
    return {name for name in names if "@" in name}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "iterations", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3)), 4]
)
def test_two_stages_for_every_trip_count(iterations, causal):
    """Rings of two slots: iterations from one to D + 2; the first stage of block 0 has none."""
    q, k, v = arrays(heads=2, length=64 * iterations)
    depth = {"keys": 2, "values": 2}
    out, lines, kernel = run_two_stages(q, k, v, 64, 64, causal, built=False, depth=depth)
    want, sums = reference(q, k, v, causal, 0.5)
    assert error(out, want) < 1e-3
    assert np.abs(lines * np.log(2) - sums).max() < 2e-3
    assert kernel.proof.ok
    assert {loop.schedule for loop in kernel.plan.loops} == {"coarse"}


@pytest.mark.parametrize(
    ("columns", "inside"),
    [(32, True), pytest.param(32, False, marks=pytest.mark.long), (64, False)],
)
@pytest.mark.short("32-True")
def test_two_stages_with_wide_blocks(columns, inside):
    """Several masked steps a block, two heads in each of two sequences."""
    q, k, v = arrays(2, 2, 256)
    out, lines, kernel = run_two_stages(q, k, v, 128, columns, True, inside)
    want, sums = reference(q, k, v, True, 0.5)
    assert error(out, want) < 1e-3
    assert np.abs(lines * np.log(2) - sums).max() < 2e-3
    assert len(by_tma(kernel)) == 3
    assert [store.via for store in kernel.plan.stores] == ["registers", "tma"]
    rings = {ring.label.split("@")[0]: ring for ring in kernel.plan.arefs}
    assert all(len(rings[name].also) == 1 for name in ("keys", "values")), "loops share slots"


@pytest.mark.parametrize("hopper", [pytest.param(True, marks=pytest.mark.long), False])
def test_two_stages_at_full_width(hopper):
    """The widths of the tutorial; without HOPPER its accumulator is rescaled in halves."""
    q, k, v = arrays(length=256, width=128)
    out = np.zeros_like(q)
    lines = np.full(q.shape[:3], np.nan, np.float32)
    grid, arguments, constants = call_two_stages(q, k, v, out, lines, 128, 128, False)
    forms.two_stages[grid](*arguments, **(constants | {"HOPPER": hopper}))
    assert error(out, reference(q, k, v, False, 0.5)[0]) < 1e-3


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_two_stages_with_8_bit_floats(causal):
    q, k, v = arrays(length=256, dtype="f8e5m2")
    out, lines, kernel = run_two_stages(q, k, v, 128, 64, causal)
    want, sums = reference(q, k, v, causal, 0.5)
    assert error(out, want) < 8e-2  # two bits of mantissa
    assert np.abs(lines * np.log(2) - sums).max() < 2e-3
    assert len(by_tma(kernel)) == 3


def test_descriptors_of_another_block_are_set_by_a_hook():
    """Host descriptors get their blocks from the configuration that is tried."""
    q, k, v = arrays(length=128)
    out, lines = np.zeros_like(q), np.full(q.shape[:3], np.nan, np.float32)

    def set_blocks(named):
        for name in ("q_desc", "o_desc"):
            named[name].block_shape = [named["ROWS"], named["WIDTH"]]
        for name in ("k_desc", "v_desc"):
            named[name].block_shape = [named["COLUMNS"], named["WIDTH"]]

    configs = [
        tawa.Config({"ROWS": 64, "COLUMNS": n}, num_stages=2, num_warps=4, pre_hook=set_blocks)
        for n in (32, 64)
    ]

    def fits(configs, named, **kwargs):
        return [each for each in configs if each.kwargs["COLUMNS"] <= 32]

    tuned = tawa.autotune(
        configs=configs, key=["LENGTH", "WIDTH"], prune_configs_by={"early_config_prune": fits}
    )(forms.two_stages)
    _, arguments, constants = call_two_stages(q, k, v, out, lines, 1, 1, True)
    del constants["ROWS"], constants["COLUMNS"]
    tuned[lambda meta: (128 // meta["ROWS"], 1, 1)](*arguments, **constants)
    assert error(out, reference(q, k, v, True, 0.5)[0]) < 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "iterations", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3)), 4]
)
def test_one_loop_for_every_trip_count(iterations, causal):
    q, k, v = arrays(heads=2, length=64 * iterations)
    out = np.zeros_like(q)
    wide = [
        tawa.TensorDescriptor.from_tensor(each.reshape(-1, 64), [64, 64]) for each in (q, k, v, out)
    ]
    how = {"ROWS": 64, "COLUMNS": 64, "CAUSAL": causal, "depth": {"k": 2, "v": 2}}
    forms.one_loop[iterations, 2](*wide, 2, 64 * iterations, 0.125, **how)
    assert error(out, reference(q, k, v, causal, 0.125)[0]) < 1e-3


def pointer_call(q, k, v, out, lines, rows, columns, causal):
    size = q.dtype.itemsize
    steps = [step // size for each in (q, k, v, out) for step in each.strides]
    batch, heads, queries, width = q.shape
    constants = {"ROWS": rows, "COLUMNS": columns, "WIDTH": width, "CAUSAL": causal}
    arguments = (q, k, v, out, lines, 0.125, *steps, heads, queries, k.shape[2])
    return (-(-queries // rows), batch * heads), arguments, constants


@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [
        (100, 168, True),
        (64, 40, False),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in ((100, 168, False), (128, 64, True))
        ),
    ],
)
@pytest.mark.short("100-168-True")
def test_pointers_with_masks(queries, keys, causal):
    q = normal(1, 2, queries, 64)
    k, v = (normal(1, 2, keys, 64, seed=seed) for seed in (1, 2))
    out, lines = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    grid, arguments, constants = pointer_call(q, k, v, out, lines, 64, 64, causal)
    kernel = forms.by_pointers.compile(*arguments, grid=grid, **constants)
    forms.by_pointers[grid](*arguments, **constants)
    want, sums = reference(q, k, v, causal, 0.125)
    assert error(out, want) < 1e-3
    assert np.abs(lines - sums).max() < 2e-3
    assert kernel.plan.specialized
    assert len(by_tma(kernel)) == 3, "the loads became descriptor loads"


def test_pointers_into_arrays_that_do_not_fit_tma():
    """Rows of odd stride are gathered by the producer's threads."""
    q, k, v = (normal(1, 1, 128, 68, seed=seed)[..., :64] for seed in range(3))
    out, lines = np.full((1, 1, 128, 64), np.nan, np.float16), np.zeros((1, 1, 128), np.float32)
    grid, arguments, constants = pointer_call(q, k, v, out, lines, 64, 64, False)
    kernel = forms.by_pointers.compile(*arguments, grid=grid, **constants)
    forms.by_pointers[grid](*arguments, **constants)
    assert error(out, reference(q, k, v, False, 0.125)[0]) < 1e-3
    assert {ring.via for ring in kernel.plan.arefs} <= {"copy_async"}


@pytest.mark.parametrize("iterations", [1, 3])
def test_block_pointers(iterations):
    q, k, v = arrays(2, 1, 64 * iterations)
    out = np.zeros_like(q)
    how = {"ROWS": 64, "COLUMNS": 64, "WIDTH": 64}
    arguments = (q, k, v, out, 0.125, 64 * iterations * 64, 64, 64 * iterations)
    kernel = forms.by_block_pointers.compile(*arguments, grid=(iterations, 2), **how)
    forms.by_block_pointers[iterations, 2](*arguments, **how)
    assert error(out, reference(q, k, v, False, 0.125)[0]) < 1e-3
    assert len(by_tma(kernel)) == 3
