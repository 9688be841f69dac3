"""Programs compute with tensors of torch what they compute with arrays of NumPy."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from axon_networks import NETWORKS  # noqa: E402
from axon_programs import random_program  # noqa: E402
from tawa import axon  # noqa: E402
from tawa.axon.library import composed, signatures  # noqa: E402
from tawa.errors import AxonError, AxonGuard  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def tensors(value):
    if isinstance(value, tuple):
        return tuple(map(tensors, value))
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def same(function, *arguments, tolerance=2e-5):
    wanted, found = function(*arguments), function(*map(tensors, arguments))
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, other in pairs:
        if not isinstance(other, np.ndarray):
            assert one == other
            continue
        assert isinstance(one, torch.Tensor)
        assert tuple(one.shape) == other.shape
        assert one.dtype.is_floating_point == (other.dtype.kind == "f")
        np.testing.assert_allclose(one.numpy(), other, rtol=tolerance, atol=tolerance)


X, Y, P = floats(2, 3, 8, 4), floats(3, 8, 1), np.abs(floats(2, 3, 8, 4)) + 0.1
I, B = RNG.integers(-9, 9, (2, 3, 8, 4)), floats(2, 3, 8, 4) > 0
C, W, M = floats(3), floats(6, 3, 3, 3), floats(4, 5)
CASES = """
atan X; asin (tanh X); acos (tanh X)
cast_like P I; selu X; log_sigmoid X; erfc X; isinf X; fmod X P; logaddexp X Y
merge {axis = 1, count = 2} X; unmerge {axis = 2} X [2, -1]; take_along {axis = 2} X I
tril {diagonal = 1} X; triu {diagonal = -1} X; pad {axis = 2, after = 1, value = 0.5} X
add X Y; sub X Y; mul X Y; div X P; floordiv X P; mod I (I * I + 1); pow P Y; maximum X Y
minimum X Y; atan2 X Y; less X Y; less_equal X Y; greater X Y; greater_equal X Y; equal I I
not_equal I (I + 1); logical_and B B; logical_or B B; logical_xor B B; logical_not B; where B X Y
clip ~0.5 0.5 X; lerp 0.3 X Y; neg X; abs I; sign X; square X; isnan X; exp X; exp2 X; expm1 X
log P; log2 P; log1p P; sqrt P; rsqrt P; reciprocal P; sin X; cos X; tan X; sinh X; cosh X; tanh X
erf X; floor X; ceil X; round (X * 4.0); trunc X; relu I; relu6 X; leaky_relu X; elu X; gelu X
silu X; gelu_tanh X; sigmoid X; mish X; hardsigmoid X; hardswish X; softplus X; softsign X; cast I
identity X; dropout X; linear X M; dense X (transpose M) (last M * ones [5]); dot C C
matmul X (transpose X)
outer C C; bilinear C (ones [2, 3, 3]) C; conv {pad = 1, stride = 2} W X
conv {pad = [1, 2], dilation = [1, 2], groups = 1} W X
conv_transpose {stride = 2, extra = 1} (swap {first = 0, second = 1} W) X
max_pool {size = 2, stride = [2, 1]} X; avg_pool {size = [3, 2], stride = 2, pad = 1} X
global_avg_pool X; upsample {scale = [2, 3]} X; unfold {size = 3, stride = 1} X
pixel_shuffle {scale = 2} (concat [X, slice {axis = 1} 1 X] 1); pixel_unshuffle {scale = 2} X
wide X; sum {axes = [1, -1]} X; mean {axes = [0]} X; prod {axes = [1, 2]} X; any {axes = [0, 1]} B
all {axes = [3]} B; var {axes = [1]} X; logsumexp {axes = [2, 3]} X; l2 {axes = [2]} X
sum_keep {axes = [1, -1]} X; mean_keep {axes = [1]} X; var_keep {axes = [-1]} X; sum_all X
mean_all X; max {axis = 1} X; min {axis = -1} X; max_keep {axis = 2} X; argmax {axis = 2} X
argmin {axis = 1} X; cumsum X; cumprod {axis = 1} X; sort {axis = 2} X; argsort X
topk {count = 2} X; softmax {axis = 1} X; softmax (slice {axis = 3} 0 X); log_softmax X
layer_norm (last X * ones [4]) (zeros [4]) X; rms_norm (ones [4]) X; batch_norm C (C * C) C C X
group_norm {groups = 3} C C X; instance_norm X; cross_entropy X (argmax {axis = 3} X)
cross_entropy (slice {axis = 3} 0 X) (argmax {axis = 3} X); mse X X; embedding M I
embedding (slice {axis = 0} 0 M) I; gather {axis = 1} X I; one_hot {classes = 3} I
attention X X X; loop 3 (fn v => v * v) X; map (fn v => sum {axes = [0]} v) X
fold (fn a => fn v => a + v) (zeros [3, 8, 4]) X; scan (fn a => fn b => maximum a b) X
reduce (fn a => fn b => a * b) X; reshape X [6, -1]; reshape X (append [8] [2, 12])
flatten X; ravel X; transpose X; append (shape X) [2]
permute X [3, 0, 2, 1]; swap {first = 0, second = 2} X; expand Y [5, 3, 8, 2]
squeeze {axis = 2} Y; unsqueeze {axis = -1} X; insert {axes = [0, 2]} X; concat [X, X] 2
stack [X, X] ~1; split {axis = 2} X; split3 {axis = 1} X; split4 {axis = 3} X
slice {axis = 2, start = 1, step = 3} 7 X; drop_last {axis = 1} X
drop_first {axis = 2, count = 3} X; select {axis = 2, index = -2} X
pad {axis = 1, before = 2, after = 1} X; tile {axis = 1, count = 2} X
repeat {axis = -1, count = 2} X; flip {axis = 2} X; roll {axis = 1, by = 2} X; diagonal X; tril X
triu X; window {size = 2} (permute X [0, 2, 3, 1]); heads {count = 2} X; unheads X; last X
dim 1 X; size X; rank X; zeros [2, 3] + 1.0; ones [2]; full 0.5 [2]; iota 3; eye 3; zeros_like X
ones_like I; nonzero B; shape X; masked B X; masked (any {axes = [2, 3]} B) X; gather {axis = 1} X 2
nms {iou = 0.1} (reshape X [48, 4]) (slice {axis = 0} 48 (ravel P))
batched_nms {most = 3} (any {axes = [3]} B) X (max {axis = 3} X)
"""


def test_every_operator_is_that_of_numpy():
    names = {"X": X, "Y": Y, "P": P, "I": I, "B": B, "C": C, "W": W, "M": M}
    items = [text.strip() for text in CASES.replace("\n", ";").split(";") if text.strip()]
    assert {*signatures(), *composed()} <= {item.split()[0] for item in items}
    wrong = []
    for item in items:
        used = [name for name in names if re.search(rf"\b{name}\b", item)]
        function = axon.load(f"fun f {' '.join(used) or '_'} = {item}").f
        try:
            same(function, *([names[name] for name in used] or [X]))
        except Exception as error:
            wrong.append(f"{item}: {type(error).__name__} {str(error)[:200]}")
    assert not wrong, "\n".join(wrong)


def test_random_programs_and_networks():
    for seed in range(40):
        made = random_program(seed)
        try:
            function = axon.load(made.text()).f
            function(*made.inputs)
        except (AxonError, AxonGuard):
            continue
        same(function, *made.inputs, tolerance=1e-3)
    make, dims, draw, _ = NETWORKS["unet"]
    module = make().eval()
    graph, x = axon.load_fx(module, dims=dims), draw(random.Random(0))
    with torch.no_grad():
        torch.testing.assert_close(graph(x), module(x), rtol=1e-4, atol=1e-5)
    (weights,) = graph._moved.values()
    graph(x)
    assert graph._moved[x.device] is weights


def test_values_of_a_program_and_functions_as_arguments():
    made = axon.load("val s = full 0.5 [3]\nfun g x = x * s\nfun f h x = h (h x)")
    x = torch.rand(2, 3)
    torch.testing.assert_close(made.f(made.g, x), x * 0.25)
    double = torch.rand(2, 3, dtype=torch.float64)
    assert axon.load("fun f x = relu x * 0.1 + 1.0").f(double).dtype == torch.float64
    torch.testing.assert_close(axon.load("fun f x = x * 0.1").f(double), double * 0.1)
    half = torch.rand(2, 3, dtype=torch.bfloat16)
    assert axon.load("fun f x = maximum x 0.5").f(half).dtype == torch.bfloat16


def test_windows_of_many_axes_and_of_nothing():
    conv = axon.load("fun f w x = conv {pad = 1} w x").f
    same(conv, floats(2, 3, *[2] * 4), floats(1, 3, *[2] * 4))
    same(conv, floats(2, 3, 2, 2), floats(1, 3, 0, 2))
    same(axon.load("fun f x = max_pool {size = 2, stride = 1, pad = 1} x").f, floats(1, 2, 0))


def test_what_is_not_one_library_on_one_device_is_refused():
    f = axon.load("fun f x y = x + y").f
    with pytest.raises(AxonGuard, match="cpu and meta"):
        f(torch.zeros(2), torch.zeros(2, device="meta"))
    assert f(torch.zeros(2, device="meta"), np.zeros(2, np.float32)).device.type == "meta"

    class Other:
        shape, dtype = (2,), "float32"

    with pytest.raises(AxonGuard, match=r"\[2\], of a library"):
        f(Other(), torch.zeros(2))
    with pytest.raises(AxonGuard, match="cannot take"):
        f(torch.zeros(2), torch.zeros(3))
