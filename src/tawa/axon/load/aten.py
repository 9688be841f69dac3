"""The operators of ATen in the language: one method each, its arguments in torch's order.

Those that make and move arrays are in `aten_shapes.py`.

Functions of torch, of `torch.nn.functional`, methods of tensors and overloads of `torch.ops.aten`
have the same names and nearly the same arguments; what differs has a method of its own.

Length: one method an operator.
"""
# ruff: noqa: D102 - torch's manual says what each computes
# pyright: basic, reportArgumentType=false

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from tawa.axon.load import operators as shared
from tawa.axon.load.aten_shapes import Parts, Shapes, is_dtype, listed
from tawa.axon.load.graph import Builder
from tawa.axon.run.evaluate import arity


class Aten(Shapes):
    """Calls of operators, which `_build` collects; `apply` is the one that is no operator."""

    def __init__(self, build: Builder) -> None:
        super().__init__(build)
        self._signatures: dict[str, inspect.Signature] = {}

    def apply(
        self,
        name: str,
        arguments: Sequence[Any],
        options: dict[str, Any],
        element: str | None = None,
    ) -> Any:
        """Return what an operator gives; refuses by name what is not supported.

        `element` is the element type of the result, where the graph says it.
        """
        name, self._made = name.strip("_"), element
        if element is not None and name in _PROMOTES:
            arguments = [self._promoted(each, name, arguments) for each in arguments]
        method = getattr(self, name, None)
        if method is None and name in shared.ATEN:
            own = shared.ATEN[name]
            options = {k: v for k, v in options.items() if k not in ("inplace", "memory_format")}
            if len(arguments) == arity(own) and not options:
                return self._build.call(own, *arguments)
        elif method is not None:
            if name not in self._signatures:
                self._signatures[name] = inspect.signature(method)
            try:
                self._signatures[name].bind(*arguments, **options)
            except TypeError as error:
                raise self._build.refuse(f"{name} is not supported: {error}") from error
            return method(*arguments, **options)
        raise self._build.refuse(f"{name} is not supported, with {len(arguments)} arguments")

    def _promoted(self, value: Any, name: str, arguments: Sequence[Any]) -> Any:
        """Return an operand in the element type in which torch computes."""
        own, wanted = self._element(value), self._made
        if name in _COMPARES:
            every = [each for each in map(self._element, arguments) if each]
            wanted = functools.reduce(_joined, every) if every else None
        if own is None or own == wanted or wanted is None or (name == "where" and own == "bool"):
            return value
        return self._build.cast(value, wanted)

    def rsub(self, a: Any, b: Any) -> Any:
        return self._binary("-", b, a)

    def div(self, a: Any, b: Any, rounding_mode: str | None = None) -> Any:
        if rounding_mode == "trunc":
            if str(self._element(a)).startswith(("i", "u")):  # away from the floor below 0
                sign, whole = (
                    functools.reduce(join, [self._build.call(name, each) for each in (a, b)])
                    for name, join in (("sign", self.mul), ("abs", self.floordiv))
                )
                return self.mul(sign, whole)
            return self._build.call("trunc", self._binary("/", a, b))
        return self._binary("//" if rounding_mode else "/", a, b)

    # Element by element.

    def dropout(self, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and p:
            raise self._build.refuse("dropout in training", "call module.eval() first")
        return self._build.call("identity", x)

    dropout1d = dropout2d = dropout3d = feature_dropout = alpha_dropout = dropout

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return self._build.call("gelu_tanh" if approximate == "tanh" else "gelu", x)

    def softplus(self, x: Any, beta: float = 1, threshold: float = 20) -> Any:
        self._need(beta == 1 and threshold == 20, "softplus of another slope")
        return self._build.call("softplus", x)

    def leaky_relu(self, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
        return self._build.call("leaky_relu", x, slope=float(negative_slope))

    def elu(self, x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
        return self._build.call("elu", x, alpha=float(alpha))

    def aten_elu(self, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
        self._need(input_scale == 1, "a scaled elu")
        return self._binary("*", self.elu(x, alpha), float(scale))

    def celu(self, x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
        return self._binary("*", self.elu(self._binary("/", x, float(alpha))), float(alpha))

    def prelu(self, x: Any, weight: Any) -> Any:
        one = isinstance(weight, np.ndarray) and weight.size == 1
        rank = 2 if one else self.rank_for("prelu", x)
        slope = weight.reshape(()) if one else shared.spread(self._build, weight, rank - 2)
        where = self._build.call("greater", x, 0.0)
        return self._build.call("where", where, x, self._binary("*", x, slope))

    def addcmul(self, x: Any, a: Any, b: Any, value: float = 1) -> Any:
        return self._binary("+", x, self._binary("*", a, b), value)

    def addcdiv(self, x: Any, a: Any, b: Any, value: float = 1) -> Any:
        return self._binary("+", x, self._binary("/", a, b), value)

    def lerp(self, x: Any, end: Any, weight: Any) -> Any:
        return self._build.call("lerp", weight, x, end)

    def glu(self, x: Any, dim: int = -1) -> Any:
        value, gate = map(self.chunk(x, 2, dim).item, range(2))
        return self._build.binary("*", value, self._build.call("sigmoid", gate))

    def clamp(self, x: Any, min: Any = None, max: Any = None) -> Any:
        if min is not None and max is not None:
            return self._build.call("clip", min, max, x)
        name, bound = ("minimum", max) if min is None else ("maximum", min)
        return self._build.call(name, x, bound)

    clip = clamp_min = clamp

    def clamp_max(self, x: Any, bound: Any) -> Any:
        return self.clamp(x, max=bound)

    def hardtanh(
        self, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
    ) -> Any:
        return self.clamp(x, float(min_val), float(max_val))

    def masked_fill(self, x: Any, mask: Any, value: Any) -> Any:
        return self._build.call("where", mask, float(value) if isinstance(value, int) else value, x)

    # Products, convolutions, pools.

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        known = isinstance(weight, np.ndarray)
        turned = weight.T if known else self._build.call("transpose", weight)
        made = self._build.call("linear", x, turned)
        return made if bias is None else self._binary("+", made, bias)

    def matmul(self, x: Any, y: Any) -> Any:
        if self._rank(x) == 1:
            made = self.matmul(self.unsqueeze(x, 0), y)
            return self._build.call("squeeze", made, axis=-1 if self._rank(y) == 1 else -2)
        rank = self._rank(y)
        return shared.product(self._build, x, y, rank if rank == 1 else None)

    mv = dot_general = matmul

    def addmm(self, bias: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        made = shared.product(self._build, x, y)
        made = made if alpha == 1 else self._binary("*", made, alpha)
        return self._binary("+", made, bias, beta)

    baddbmm = addmm

    def einsum(self, equation: Any, *operands: Any, path: Any = None) -> Any:
        items = operands[0] if len(operands) == 1 and isinstance(operands[0], list) else operands
        return self._build.call("einsum", equation, *items)

    def scaled_dot_product_attention(
        self, q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        build = self._build
        self._need(not dropout_p and not enable_gqa, "dropout or grouped heads of attention")
        if scale is None and attn_mask is None and not is_causal:
            return build.call("attention", q, k, v)
        factor = build.call("rsqrt", build.call("cast", build.call("last", q)))
        scores = build.call("matmul", q, build.call("transpose", k))
        scores = build.binary("*", scores, factor if scale is None else float(scale))
        if is_causal:
            sizes = [build.call("dim", -2, each) for each in (q, k)]
            seen = build.binary(">", build.call("tril", build.call("ones", sizes)), 0.0)
            scores = build.call("where", seen, scores, -math.inf)
        elif attn_mask is not None:
            if self._element(attn_mask) == "bool":
                scores = build.call("where", attn_mask, scores, -math.inf)
                weights = build.call("softmax", scores)
                # A row that sees nothing has no sum: it is 0 in torch.
                return build.call("matmul", build.call("where", attn_mask, weights, 0.0), v)
            scores = build.binary("+", scores, attn_mask)
        return build.call("matmul", build.call("softmax", scores), v)

    def conv2d(
        self, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        if padding == "same":
            self._need(isinstance(weight, np.ndarray), "`same` padding by a computed weight")
            rank = weight.ndim - 2
            steps = [dilation] * rank if isinstance(dilation, int) else list(dilation) * rank
            beyond = [d * (k - 1) for d, k in zip(steps, weight.shape[2:])]
            pads = [(axis - rank, n // 2, n - n // 2) for axis, n in enumerate(beyond)]
            x, padding = shared.padded(self._build, x, pads), 0
        padding = 0 if padding == "valid" else padding
        return self.convolution(x, weight, bias, stride, padding, dilation, False, 0, groups)

    conv1d = conv3d = conv2d

    def conv_transpose2d(
        self, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        return self.convolution(
            x, weight, bias, stride, padding, dilation, True, output_padding, groups
        )

    conv_transpose1d = conv_transpose3d = conv_transpose2d

    def convolution(
        self, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, output_padding: Any, groups: int,
    ) -> Any:  # fmt: skip
        extra = output_padding if transposed else None
        return shared.convolution(
            self._build, x, weight, bias, stride=stride, pad=padding, dilation=dilation,
            groups=groups, extra=extra,
        )  # fmt: skip

    def _max_pool(
        self, axes: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
        dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        self._need(shared.each(dilation) in (1, [1, 1], [1, 1, 1]), "a pool with dilation")
        self._need(not return_indices, "a pool with indices")
        size = kernel_size if isinstance(kernel_size, Sequence) else [kernel_size] * axes
        return shared.pool(self._build, "max_pool", x, size, stride, padding, ceil_mode)

    max_pool1d = partialmethod(_max_pool, 1)
    max_pool2d = partialmethod(_max_pool, 2)
    max_pool3d = partialmethod(_max_pool, 3)

    def _first(self, axes: int, x: Any, *numbers: Any, **options: Any) -> Any:
        return [self._max_pool(axes, x, *numbers, **options)]

    max_pool2d_with_indices = partialmethod(_first, 2)
    max_pool3d_with_indices = partialmethod(_first, 3)

    def avg_pool2d(
        self, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        pads = padding if isinstance(padding, Sequence) else [padding]
        self._need(not ceil_mode and divisor_override is None, "this mean of windows")
        counted = count_include_pad or not any(pads)
        return shared.pool(
            self._build, "avg_pool", x, kernel_size, stride, padding, counted=counted
        )

    avg_pool1d = avg_pool3d = avg_pool2d

    def _adaptive(self, name: str, axes: int, x: Any, size: Any) -> Any:
        wanted = size if isinstance(size, Sequence) else [size]
        self._need(all(each == 1 for each in wanted), f"a pool to {size}, which is not 1,")
        return shared.reduction(self._build, name, x, [*range(-axes, 0)], keep=True)

    adaptive_avg_pool1d = partialmethod(_adaptive, "mean", 1)
    adaptive_avg_pool2d = partialmethod(_adaptive, "mean", 2)
    adaptive_avg_pool3d = partialmethod(_adaptive, "mean", 3)
    adaptive_max_pool1d = partialmethod(_adaptive, "max", 1)
    adaptive_max_pool2d = partialmethod(_adaptive, "max", 2)

    def interpolate(
        self, x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
        align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False,
    ) -> Any:  # fmt: skip
        self._need(not antialias, "resizing that is smoothed")
        number = size if size is not None else scale_factor
        axes = len(number) if isinstance(number, Sequence) else 0
        if not axes and mode in shared.LINEAR:
            axes = shared.LINEAR[mode]
        elif not axes and size is not None:
            axes = self.rank_for("interpolate to one size", x) - 2
        if size is None:
            corners = bool(align_corners)
            return shared.upsampled(self._build, x, scale_factor, mode, axes or 1, corners)
        size = size if isinstance(size, Sequence) else [size] * axes
        if mode in shared.LINEAR:
            return shared.interpolated(self._build, x, size, bool(align_corners))
        self._need(mode == "nearest", f"resizing by {mode}")
        return shared.resized(self._build, x, size)

    def upsample_bilinear2d(self, x: Any, size: Any, corners: bool, *scales: Any) -> Any:
        factors = scales[0] if scales and isinstance(scales[0], Sequence) else None
        return self.interpolate(x, size, factors, "bilinear", corners)

    upsample_linear1d = upsample_trilinear3d = upsample_bilinear2d

    def upsample_nearest2d(self, x: Any, size: Any, scales: Any = None) -> Any:
        return self.interpolate(x, size, scales)

    upsample_nearest1d = upsample_nearest3d = upsample_nearest2d

    def pixel_shuffle(self, x: Any, factor: int) -> Any:
        return self._build.call("pixel_shuffle", x, scale=factor)

    def pixel_unshuffle(self, x: Any, factor: int) -> Any:
        return self._build.call("pixel_unshuffle", x, scale=factor)

    # Norms, softmax, reductions.

    def batch_norm(
        self, x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Any:  # fmt: skip
        if training:
            raise self._build.refuse("batch norm in training", "call module.eval() first")
        if running_mean is None or running_var is None:
            raise self._build.refuse("batch norm without statistics", "track them, or leave it out")
        weight, bias = self._affine(x, running_var.shape, weight, bias)
        given = running_mean, running_var, weight, bias, x
        return self._build.call("batch_norm", *given, eps=float(eps))

    def _affine(self, x: Any, sizes: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
        """Return what a norm is multiplied by, and what is added."""
        given = ((weight, 1.0), (bias, 0.0))
        one, other = (
            self.new_full(x, sizes, value) if each is None else each for each, value in given
        )
        return one, other

    def aten_batch_norm(
        self, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
        momentum: float, eps: float, fast: bool = True,
    ) -> Any:  # fmt: skip
        return self.batch_norm(x, mean, var, weight, bias, training, momentum, eps)

    def native_batch_norm_legit_no_training(
        self, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
    ) -> Any:
        return [self.batch_norm(x, mean, var, weight, bias, False, momentum, eps)]

    def layer_norm(
        self, x: Any, sizes: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
        fast: bool = True,
    ) -> Any:  # fmt: skip
        build = self._build
        weight, bias = self._affine(x, sizes, weight, bias)
        if len(sizes) == 1:
            return build.call("layer_norm", weight, bias, x, eps=float(eps))
        axes = [*range(-len(sizes), 0)]
        x = build.sized(x, ["..", *map(str, sizes)])
        centred = build.binary("-", x, build.call("mean_keep", x, axes=axes))
        spread = build.binary("+", build.call("var_keep", x, axes=axes), float(eps))
        made = build.binary("*", centred, build.call("rsqrt", spread))
        return build.binary("+", build.binary("*", made, weight), bias)

    def native_layer_norm(self, *arguments: Any) -> Any:
        return [self.layer_norm(*arguments)]

    def rms_norm(self, x: Any, sizes: Any, weight: Any = None, eps: float | None = None) -> Any:
        self._need(len(sizes) == 1, "an RMS norm over several axes")
        weight = self.new_full(x, sizes, 1.0) if weight is None else weight
        self._need(eps or self._element(x) in (None, "f32"), "an RMS norm of this type without eps")
        eps = float(np.finfo(np.float32).eps) if eps is None else eps
        return self._build.call("rms_norm", weight, x, eps=eps)

    def group_norm(
        self, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
        fast: bool = True,
    ) -> Any:  # fmt: skip
        channels = [self._build.call("dim", 1, x)]
        weight, bias = self._affine(x, channels, weight, bias)
        return self._build.call("group_norm", weight, bias, x, groups=groups, eps=float(eps))

    def native_group_norm(
        self, x: Any, weight: Any, bias: Any, n: Any, c: Any, inner: Any, groups: Any, eps: Any
    ) -> Any:
        return [self.group_norm(x, groups, weight, bias, eps)]

    def instance_norm(
        self, x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
        bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
        fast: bool = True,
    ) -> Any:  # fmt: skip
        self._need(use_input_stats, "an instance norm with statistics of its own")
        if weight is None:
            return self._build.call("instance_norm", x, eps=float(eps))
        return self.group_norm(x, len(weight), weight, bias, eps)  # each channel is a group

    def _along(
        self, name: str, x: Any, dim: int | None = -1, half_to_float: Any = False,
        dtype: Any = None, _stacklevel: int = 3,
    ) -> Any:  # fmt: skip
        self._need(dim is not None, f"{name} without an axis")
        if is_dtype(half_to_float):
            dtype, half_to_float = half_to_float, False
        self._need(not half_to_float, f"{name} in another type")
        x = self._wide(name, x) if dtype is None else self.to(x, dtype)
        return self._build.call(name, x, axis=dim)

    def _wide(self, name: str, x: Any) -> Any:
        """Return x; where no element type is known, only what a sum leaves in its own."""
        known = self._made is not None or name not in ("sum", "cumsum", "prod")
        return x if known else self._build.call("wide", x)

    def softmin(self, x: Any, dim: Any = -1, **options: Any) -> Any:
        return self.softmax(self._build.call("neg", x), dim, **options)

    softmax = partialmethod(_along, "softmax")
    log_softmax = partialmethod(_along, "log_softmax")
    cumsum = partialmethod(_along, "cumsum")

    def _reduce(
        self, name: str, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        x = self._wide(name, x) if dtype is None else self.to(x, dtype)
        dim = None if dim in ([], ()) else dim  # no axes are all of them
        return shared.reduction(self._build, name, x, dim, keepdim)

    sum = partialmethod(_reduce, "sum")
    mean = partialmethod(_reduce, "mean")
    amax = partialmethod(_reduce, "max")
    amin = partialmethod(_reduce, "min")
    prod = partialmethod(_reduce, "prod")
    logsumexp = partialmethod(_reduce, "logsumexp")
    any = partialmethod(_reduce, "any")
    all = partialmethod(_reduce, "all")

    def var(
        self, x: Any, dim: Any = None, unbiased: Any = True, keepdim: Any = False,
        correction: Any = None,
    ) -> Any:  # fmt: skip
        if isinstance(dim, bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        correction = int(unbiased) if correction is None else correction
        found = shared.reduction(self._build, "var", x, dim, keepdim)
        if not correction:
            return found
        count = self._build.call("size", x)
        if dim is not None:
            sizes = [self._build.call("dim", axis, x) for axis in listed([dim])]
            count = functools.reduce(lambda a, b: self._binary("*", a, b), sizes)
        left = self._build.cast(self._binary("-", count, correction), "f32")
        scale = self._binary("/", self._build.cast(count, "f32"), left)
        return self._binary("*", found, self._build.call("cast_like", found, scale))

    def std(self, *arguments: Any, **options: Any) -> Any:
        return self._build.call("sqrt", self.var(*arguments, **options))

    def linalg_vector_norm(
        self, x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None
    ) -> Any:
        self._need(ord in (2, "fro", None) and dtype is None, f"a norm of order {ord}")
        squares = shared.reduction(self._build, "sum", self._build.call("square", x), dim, keepdim)
        return self._build.call("sqrt", squares)

    norm = vector_norm = linalg_vector_norm

    def normalize(
        self, x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12, out: Any = None
    ) -> Any:
        length = self.linalg_vector_norm(x, p, [dim], True)
        return self._binary("/", x, self._build.call("maximum", length, eps))

    def _extremum(self, name: str, x: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if dim is None:
            return shared.reduction(self._build, name, x, None, False)
        if not isinstance(dim, int):
            return self._build.call(f"{name}imum", x, dim)  # of two arrays
        found = shared.reduction(self._build, name, x, dim, keepdim)
        return Parts(lambda i: self._indices(f"arg{name}", x, dim, keepdim) if i else found)

    max = partialmethod(_extremum, "max")
    min = partialmethod(_extremum, "min")

    def _indices(self, name: str, x: Any, dim: int, keepdim: bool = False) -> Any:
        found = self._build.call(name, x, axis=dim)
        return self._build.call("unsqueeze", found, axis=dim) if keepdim else found

    argmax = partialmethod(_indices, "argmax")
    argmin = partialmethod(_indices, "argmin")


_COMPARES = {"eq", "ne", "lt", "le", "gt", "ge"}
_PROMOTES = _COMPARES | {
    *("add", "sub", "rsub", "mul", "div", "truediv", "true_divide", "floor_divide", "remainder"),
    *("iadd", "isub", "imul", "multiply", "floordiv", "mod", "fmod", "pow", "maximum", "minimum"),
    *("where", "addcmul", "addcdiv", "lerp", "atan2", "logaddexp", "exp", "sqrt", "rsqrt", "log"),
    *("sin", "cos", "tanh", "sigmoid", "sum", "cumsum", "prod"),
}
_ORDER = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]


def _joined(a: str, b: str) -> str:
    """Return the element type in which torch computes with two."""
    neither = {"u8": "i16", "f16": "f32"}  # holds the other's numbers
    low, high = sorted((a, b), key=_ORDER.index)
    return neither[low] if (low, high) in (("u8", "i8"), ("f16", "bf16")) else high
