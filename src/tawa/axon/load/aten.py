"""The operators of ATen in the language: one method each, its arguments in torch's order.

Functions of torch, of `torch.nn.functional`, methods of tensors and overloads of `torch.ops.aten`
have the same names and nearly the same arguments; what differs has a method of its own.

Length: one method an operator.
"""
# ruff: noqa: D102 - torch's manual says what each computes
# pyright: basic, reportArgumentType=false

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from tawa.axon.load import operators as shared
from tawa.axon.load.graph import Builder
from tawa.axon.run.evaluate import arity
from tawa.axon.syntax.tree import Tree


class Parts:
    """A tuple of values by number, each computed where it is taken: a shape, what `chunk` gives."""

    def __init__(self, item: Callable[[int], Any], of: Any = None) -> None:
        self.item = item
        self.of = of  # whose shape it is


class Aten:
    """Calls of operators, which `_build` collects; `apply` is the one that is no operator."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._signatures: dict[str, inspect.Signature] = {}

    def apply(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """Return what an operator gives; refuses by name what is not supported."""
        name = name.strip("_")
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

    def _need(self, condition: Any, what: str) -> None:
        if not condition:
            raise self._build.refuse(f"{what} is not supported")

    # Arithmetic, which sizes have too.

    def _binary(self, sign: str, a: Any, b: Any, alpha: float = 1) -> Any:
        self._need(alpha == 1, "a factor of the second operand")
        if isinstance(a, int | float) and isinstance(b, int | float):
            return _PYTHON[sign](a, b)
        return self._build.binary(sign, a, b)

    add = iadd = partialmethod(_binary, "+")
    sub = isub = partialmethod(_binary, "-")
    mul = imul = multiply = partialmethod(_binary, "*")
    floordiv = floor_divide = partialmethod(_binary, "//")
    mod = remainder = partialmethod(_binary, "%")
    truediv = partialmethod(_binary, "/")

    def rsub(self, a: Any, b: Any) -> Any:
        return self._binary("-", b, a)

    def div(self, a: Any, b: Any, rounding_mode: str | None = None) -> Any:
        self._need(rounding_mode in (None, "floor"), f"rounding by {rounding_mode}")
        return self._binary("//" if rounding_mode else "/", a, b)

    # Element by element.

    def dropout(self, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and p:
            raise self._build.refuse("dropout in training", "call module.eval() first")
        return self._build.call("identity", x)

    dropout1d = dropout2d = dropout3d = feature_dropout = alpha_dropout = dropout

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return shared.gelu(self._build, x, approximate)

    def softplus(self, x: Any, beta: float = 1, threshold: float = 20) -> Any:
        self._need(beta == 1 and threshold == 20, "softplus of another slope")
        return self._build.call("softplus", x)

    def leaky_relu(self, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
        return self._build.call("leaky_relu", x, slope=float(negative_slope))

    def elu(self, x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
        return self._build.call("elu", x, alpha=float(alpha))

    def aten_elu(self, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
        self._need(scale == input_scale == 1, "a scaled elu")
        return self.elu(x, alpha)

    def glu(self, x: Any, dim: int = -1) -> Any:
        value, gate = map(self.chunk(x, 2, dim).item, range(2))
        return self._build.binary("*", value, self._build.call("sigmoid", gate))

    def clamp(self, x: Any, min: Any = None, max: Any = None) -> Any:
        if min is not None and max is not None:
            return self._build.call("clip", min, max, x)
        name, bound = ("minimum", max) if min is None else ("maximum", min)
        return self._build.call(name, x, bound)

    clip = clamp

    def hardtanh(
        self, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
    ) -> Any:
        return self.clamp(x, float(min_val), float(max_val))

    def masked_fill(self, x: Any, mask: Any, value: Any) -> Any:
        return self._build.call("where", mask, float(value) if isinstance(value, int) else value, x)

    def to(self, x: Any, *to: Any, **options: Any) -> Any:
        wanted = [each for each in (*to, options.get("dtype")) if _is_dtype(each)]
        self._need([str(each) for each in wanted] in ([], ["torch.float32"]), f"a cast to {wanted}")
        self._need(not any(isinstance(each, Tree) for each in to), "a cast to another's type")
        return self._build.call("cast" if wanted else "identity", x)

    to_copy = to

    # Products, convolutions, pools.

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        return shared.linear(self._build, x, weight, bias)

    def addmm(self, bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1) -> Any:
        self._need(alpha == beta == 1, "a factor of a product")
        return self._build.binary("+", shared.product(self._build, x, y), bias)

    baddbmm = addmm

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

    def max_pool2d(
        self, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        self._need(shared.each(dilation) in (1, [1, 1], [1, 1, 1]), "a pool with dilation")
        self._need(not ceil_mode and not return_indices, "a pool with ceil_mode or indices")
        return shared.pool(self._build, "max_pool", x, kernel_size, stride, padding)

    max_pool1d = max_pool3d = max_pool2d

    def max_pool2d_with_indices(self, x: Any, *numbers: Any, **options: Any) -> Any:
        return [self.max_pool2d(x, *numbers, **options)]

    max_pool3d_with_indices = max_pool2d_with_indices

    def avg_pool2d(
        self, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        pads = padding if isinstance(padding, Sequence) else [padding]
        plain = not ceil_mode and divisor_override is None
        self._need(plain and (count_include_pad or not any(pads)), "this mean of windows")
        return shared.pool(self._build, "avg_pool", x, kernel_size, stride, padding)

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
        self._need(scale_factor is not None, "resizing without factors")
        return shared.upsampled(self._build, x, scale_factor, mode)

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
        return shared.batch_norm(self._build, x, running_mean, running_var, weight, bias, eps)

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
        return shared.layer_norm(self._build, x, sizes, weight, bias, eps)

    def native_layer_norm(self, *arguments: Any) -> Any:
        return [self.layer_norm(*arguments)]

    def rms_norm(self, x: Any, sizes: Any, weight: Any = None, eps: float | None = None) -> Any:
        self._need(len(sizes) == 1, "an RMS norm over several axes")
        weight = np.ones(tuple(sizes), np.float32) if weight is None else weight
        eps = float(np.finfo(np.float32).eps) if eps is None else eps
        return self._build.call("rms_norm", weight, x, eps=eps)

    def group_norm(
        self, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
        fast: bool = True,
    ) -> Any:  # fmt: skip
        self._need(weight is not None and bias is not None, "a group norm without weights")
        return self._build.call("group_norm", weight, bias, x, groups=groups, eps=float(eps))

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
        self._need(not half_to_float and dtype is None, f"{name} in another type")
        return self._build.call(name, x, axis=dim)

    softmax = partialmethod(_along, "softmax")
    log_softmax = partialmethod(_along, "log_softmax")
    cumsum = partialmethod(_along, "cumsum")

    def _reduce(
        self, name: str, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        self._need(dtype is None, f"{name} in another type")
        dim = None if dim in ([], ()) else dim  # no axes are all of them
        self._need(dim is not None or not keepdim, f"{name} of all that keeps axes")
        return shared.reduction(self._build, name, x, dim, keepdim)

    sum = partialmethod(_reduce, "sum")
    mean = partialmethod(_reduce, "mean")
    amax = partialmethod(_reduce, "max")
    amin = partialmethod(_reduce, "min")
    logsumexp = partialmethod(_reduce, "logsumexp")
    any = partialmethod(_reduce, "any")
    all = partialmethod(_reduce, "all")

    def var(
        self, x: Any, dim: Any, unbiased: Any = True, keepdim: bool = False, correction: Any = None
    ) -> Any:
        self._need(correction == 0 or not unbiased, "a variance that is corrected")
        return shared.reduction(self._build, "var", x, dim, keepdim)

    def _extremum(self, name: str, x: Any, dim: Any, keepdim: bool = False) -> Any:
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

    # Shapes.

    def size(self, x: Any, dim: int | None = None) -> Any:
        if dim is not None:
            return self._build.call("dim", dim, x)
        return Parts(lambda axis: self._build.call("dim", axis, x), of=x)

    sym_size = size

    def numel(self, x: Any) -> Any:
        return self._build.call("size", x)

    def getattr(self, x: Any, name: str) -> Any:
        match name:
            case "shape":
                return self.size(x)
            case "T":
                return self._build.call("transpose", self._build.sized(x, ["_", "_"]))
            case "mT":
                return self._build.call("transpose", x)
            case "device" | "dtype":
                return None
            case _:
                raise self._build.refuse(f"the attribute {name} is not supported")

    def view(self, x: Any, *sizes: Any) -> Any:
        return self._build.call("reshape", x, _list(sizes))

    reshape = unsafe_view = view

    def flatten(self, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
        self._need(end_dim == -1 and start_dim >= 0, f"flatten from {start_dim} to {end_dim}")
        return self._build.call("flatten", x, axis=start_dim)

    def permute(self, x: Any, *order: Any) -> Any:
        return self._build.call("permute", x, _list(order))

    def transpose(self, x: Any, a: int, b: int) -> Any:
        first, second = sorted((a, b), key=lambda axis: (axis < 0, axis))
        return self._build.call("swap", x, first=first, second=second)

    swapaxes = swapdims = transpose

    def unsqueeze(self, x: Any, dim: int) -> Any:
        return self._build.call("unsqueeze", x, axis=dim)

    def squeeze(self, x: Any, dim: Any) -> Any:
        # Each is taken out where it moves none that is left: from the last, below 0 from the first.
        for axis in sorted(_list([dim]), key=lambda axis: (axis < 0, axis if axis < 0 else -axis)):
            x = self._build.call("squeeze", x, axis=axis)
        return x

    def expand(self, x: Any, *sizes: Any) -> Any:
        wanted = _list(sizes)
        if len(wanted) == 1 and isinstance(wanted[0], Parts):
            return self.expand_as(x, wanted[0].of)
        return shared.expanded(self._build, x, wanted)

    def expand_as(self, x: Any, other: Any) -> Any:
        return self._build.call("expand", x, self._build.call("shape", other))

    def cat(self, items: Any, dim: int = 0) -> Any:
        return self._build.call("concat", list(items), dim)

    concat = cat

    def stack(self, items: Any, dim: int = 0) -> Any:
        return self._build.call("stack", list(items), dim)

    def select(self, x: Any, dim: int, index: int) -> Any:
        return self._build.call("select", x, axis=dim, index=index)

    def unbind(self, x: Any, dim: int = 0) -> Any:
        return Parts(lambda i: self.select(x, dim, i))

    def narrow(self, x: Any, dim: int, start: Any, length: Any) -> Any:
        end = self._binary("+", start, length)
        return self.slice(x, dim, start, None if isinstance(end, int) and end == 0 > start else end)

    def slice(self, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
        return shared.sliced(self._build, x, dim, start, end, 1 if step is None else step)

    def chunk(self, x: Any, chunks: int, dim: int = 0) -> Any:
        more = self._binary("+", self._build.call("dim", dim, x), chunks - 1)
        return self.split(x, self._binary("//", more, chunks), dim)

    def split(self, x: Any, size: Any, dim: int = 0) -> Any:
        if isinstance(size, Sequence):
            return Parts(lambda i: shared.parted(self._build, x, dim, size, i))
        starts = lambda i: self._binary("*", size, i)  # noqa: E731
        return Parts(lambda i: self.slice(x, dim, starts(i), starts(i + 1)))

    split_with_sizes = split

    def getitem(self, x: Any, index: Any) -> Any:
        """Return an item of a tuple, or of an array by integers, slices, None and `...`."""
        if isinstance(x, Parts):
            self._need(isinstance(index, int), "a part of a shape or a tuple")
            return x.item(index)
        if isinstance(x, list):
            self._need(isinstance(index, int) and index < len(x), f"result {index}")
            return x[index]
        axis, items = 0, index if isinstance(index, tuple) else (index,)
        for place, item in enumerate(items):
            match item:
                case None:
                    x, axis = self.unsqueeze(x, axis), axis + 1
                case slice(start=start, stop=stop, step=step):
                    x, axis = self.slice(x, axis, start, stop, step), axis + 1
                case int() if not isinstance(item, bool):
                    x = self.select(x, axis, item)
                    axis = axis + 1 if axis < 0 else axis
                case _ if item is Ellipsis:
                    later = items[place + 1 :]
                    self._need(None not in later, "`None` after `...`")
                    axis = -len(later)
                case _:
                    raise self._build.refuse("an index that is computed is not supported")
        return x

    def index_select(self, x: Any, dim: int, index: Any) -> Any:
        return self._build.call("gather", x, index, axis=dim)

    def embedding(self, ids: Any, weight: Any, *rest: Any, **options: Any) -> Any:
        self._need(options.get("max_norm") is None, "an embedding that changes its table")
        return self._build.call("embedding", weight, ids)

    def aten_embedding(self, weight: Any, ids: Any, *rest: Any) -> Any:
        return self._build.call("embedding", weight, ids)

    def flip(self, x: Any, *dims: Any) -> Any:
        for axis in _list(dims):
            x = self._build.call("flip", x, axis=axis)
        return x

    def roll(self, x: Any, shifts: Any, dims: Any) -> Any:
        for by, axis in zip(_list([shifts]), _list([dims]), strict=True):
            x = self._build.call("roll", x, axis=axis, by=by)
        return x

    def pad(self, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        self._need(mode == "constant" and not value, "padding by other than zeros")
        axes = [(-1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
        return shared.padded(self._build, x, axes)

    def constant_pad_nd(self, x: Any, pad: Any, value: Any = 0) -> Any:
        return self.pad(x, pad, value=value)

    def arange(self, *ends: Any, dtype: Any = None, **options: Any) -> Any:
        self._need(str(dtype) in ("None", "torch.int64"), f"a range of {dtype}")
        self._need(
            len(ends) == 1 or (ends[0] == 0 and len(ends) == 2), "a range from another start"
        )
        return self._build.call("iota", ends[-1])

    def _made(self, name: str, *sizes: Any, dtype: Any = None, **options: Any) -> Any:
        self._need(str(dtype) in ("None", "torch.float32"), f"an array of {dtype}")
        return self._build.call(name, _list(sizes))

    zeros = partialmethod(_made, "zeros")
    ones = partialmethod(_made, "ones")

    def full(self, sizes: Any, value: Any, dtype: Any = None, **options: Any) -> Any:
        self._need(str(dtype) in ("None", "torch.float32"), f"an array of {dtype}")
        self._need(isinstance(value, float) or dtype is not None, "an array of whole numbers")
        return self._build.call("full", float(value), list(sizes))


_PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def _is_dtype(given: Any) -> bool:
    return type(given).__name__ == "dtype"


def _list(given: Sequence[Any]) -> list[Any]:
    """Return numbers that were given one by one, or as one list."""
    first = given[0] if len(given) == 1 else None
    return list(first) if isinstance(first, list | tuple) else list(given)
