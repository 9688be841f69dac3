"""The arrays of a convolution, in NHWC, checked against one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tawa.errors import ArgumentError
from tawa.kernels.arrays import PRODUCTS, View, empty_beside, look
from tawa.kernels.conv_geometry import Geometry
from tawa.kernels.conv_variants import Problem
from tawa.kernels.conv_windows import Epilogue
from tawa.kernels.prepare import ACTIVATIONS, FLOATS, OUTPUTS
from tawa.runtime.arrays import row_major

TYPES = (*PRODUCTS, "i8")


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one convolution, in NHWC, checked against one another.

    `prepacked` tells that `w` holds filters in window order already.
    """

    problem: Problem
    x: Any
    w: Any
    y: Any
    bias: Any = None
    residual: Any = None
    scale: Any = None
    prepacked: bool = False


def bind(
    x: Any,
    w: Any,
    geometry: Geometry,
    out: Any = None,
    *,
    bias: Any = None,
    residual: Any = None,
    scale: Any = None,
    activation: Any = "",
    out_dtype: str = "",
    prepacked: bool = False,
) -> Operands:
    """Check NHWC arrays against one another and describe the convolution.

    Raises `ArgumentError` where types, shapes or strides do not fit together.
    """
    g, image, filters = geometry, look(x), look(w)
    _check_types(image.dtype, filters.dtype)
    name, limits = _activation(activation)
    finished = bool(name) or any(each is not None for each in (bias, residual, scale))
    outputs = OUTPUTS if image.dtype != "i8" or finished else (*OUTPUTS, "i32")
    if out is None:
        kind = out_dtype or _result(image.dtype, finished)
        if kind not in outputs:
            raise ArgumentError(f"out_dtype={kind!r}", why=f"one of {', '.join(outputs)}")
        out = empty_beside(x, g.results, kind)
    elif out_dtype and look(out).dtype != out_dtype:
        raise ArgumentError(f"out holds {look(out).dtype}, and out_dtype is {out_dtype}")
    result = look(out)
    _check_pixels("out", result, g)
    if result.dtype not in outputs:
        raise ArgumentError(f"out holds {result.dtype}", why=f"one of {', '.join(outputs)}")
    step = _step(result)
    if residual is not None:
        added = look(residual)
        _check_pixels("residual", added, g)
        if added.dtype not in FLOATS:
            raise ArgumentError(f"residual holds {added.dtype}", why=f"one of {', '.join(FLOATS)}")
        step = max(step, _step(added)) if step and _step(added) else 0
    if bias is not None:
        _check_vector("bias", look(bias), (g.co,), FLOATS)
    how = ""
    if scale is not None:
        view = look(scale)
        count = view.shape[0] if view.shape else 1
        _check_vector("scale", view, (1, g.co), ("f32",))
        how = "tensor" if count == 1 else "channel"
    problem = Problem(
        g,
        image.dtype,
        result.dtype,
        strides_of(image),
        image.address & 15,
        dense(filters),
        filters.address % 16 == 0,
        step,
        Epilogue(how, bias is not None, residual is not None, name, *limits),
    )
    return Operands(problem, x, w, out, bias, residual, scale, prepacked)


def _result(dtype: str, finished: bool) -> str:
    """Return the type of a result that nobody names: int8's sums as they are, or float32."""
    if dtype == "i8":
        return "f32" if finished else "i32"
    return "bf16" if dtype.startswith("f8") else dtype


def _check_types(x: str, w: str) -> None:
    if x not in TYPES or (x != w and not (x.startswith("f8") and w.startswith("f8"))):
        raise ArgumentError(
            f"no convolution of {x} with {w}",
            why=f"tensor cores take {', '.join(TYPES)}, both of one type (e4m3 and e5m2 mix)",
            remedy="convert the images or the filters",
        )


def _activation(activation: Any) -> tuple[str, tuple[float, float]]:
    """Return an activation's name, and the limits of a clamp."""
    if isinstance(activation, tuple):
        values = cast("tuple[Any, ...]", activation)
        if len(values) == 3 and values[0] == "clamp":
            return "clamp", (float(values[1]), float(values[2]))
    if activation in (*ACTIVATIONS, "relu6"):
        return activation, (0.0, 0.0)
    raise ArgumentError(
        f"no activation {activation!r}",
        why=f'there are {", ".join((*ACTIVATIONS[1:], "relu6"))} and ("clamp", low, high)',
    )


def strides_of(view: View) -> tuple[int, ...]:
    """Return strides; of axes of one element, where libraries give any, those of dense rows."""
    found: list[int] = []
    step = 1
    for extent, stride in zip(reversed(view.shape), reversed(view.strides)):
        found.append(step if extent <= 1 else stride)
        step = max(1, extent) * found[-1]
    return tuple(reversed(found))


def dense(view: View) -> bool:
    """Tell whether an array lies by rows, without gaps."""
    return 0 in view.shape or strides_of(view) == row_major(view.shape)


def _step(view: View) -> int:
    """Return of how many elements TMA steps over are multiples; 0 where it takes no address."""
    return 0 if view.address % 16 else 16 // view.itemsize


def _check_pixels(name: str, view: View, g: Geometry) -> None:
    if view.shape != g.results or not dense(view):
        raise ArgumentError(
            f"{name} has, channels last, shape {view.shape} and strides {view.strides}",
            why=f"the convolution has shape {g.results}, channels side by side, without gaps",
            remedy="torch: .contiguous(memory_format=torch.channels_last), or channels_last_3d",
        )


def _check_vector(name: str, view: View, counts: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    size = view.shape[0] if len(view.shape) == 1 else 1 if not view.shape else -1
    if size not in counts or (size > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{name} has shape {view.shape} and strides {view.strides}",
            why=f"it holds {' or '.join(map(str, counts))} numbers side by side",
        )
    if view.dtype not in kinds:
        raise ArgumentError(f"{name} holds {view.dtype}", why=f"one of {', '.join(kinds)}")


def check_gradient(dy: View, g: Geometry, name: str, other: View) -> None:
    """Raise `ArgumentError` where dy is not the result's gradient, or of another type, or it or
    filters are not dense.
    """
    if dy.shape != g.results:
        raise ArgumentError(
            f"dy has, with channels last, shape {dy.shape}", why=f"the result has {g.results}"
        )
    if dy.dtype != other.dtype or dy.dtype not in FLOATS:
        raise ArgumentError(
            f"dy holds {dy.dtype}, {name} {other.dtype}", why=f"one type of {', '.join(FLOATS)}"
        )
    for each, array in {"dy": dy, **({name: other} if name == "w" else {})}.items():
        if not dense(array):
            raise ArgumentError(
                f"{each} has, with channels last, strides {array.strides}",
                why="channels lie side by side, without gaps",
                remedy="torch: .contiguous(memory_format=torch.channels_last), or channels_last_3d",
            )
