"""Programs, tensors made from nothing, and what a kernel may say about itself."""

from __future__ import annotations

from typing import Any, TypeVar

from tawa.language.dtypes import dtype as dtype_type
from tawa.language.stub import builtin, refuse
from tawa.language.values import tensor

T = TypeVar("T")  # what comes in comes out


@builtin
def program_id(axis: int) -> tensor:
    """Give the index of this program along `axis` (0, 1 or 2) of the grid, an int32."""
    ...


@builtin
def num_programs(axis: int) -> tensor:
    """Give the number of programs along `axis` (0, 1 or 2) of the grid, an int32."""
    ...


@builtin
def arange(start: Any, end: Any) -> tensor:
    """Give the int32 tensor ``[start, ..., end - 1]``; both are compile-time constants."""
    ...


@builtin
def full(shape: Any, value: Any, dtype: dtype_type) -> tensor:
    """Give a tensor of `shape` filled with a number or a scalar."""
    ...


@builtin
def zeros(shape: Any, dtype: dtype_type) -> tensor:
    """Give a tensor of `shape` filled with 0."""
    ...


@builtin
def zeros_like(input: tensor) -> tensor:
    """Give zeros of the shape and type of `input`."""
    ...


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """Apply inline PTX to the elements of tensors that are broadcast to one shape.

    In `asm` ``$0``, ``$1`` ... are the registers that `constraints` lists: one of each result, as
    "=r", then one of each input, as "r"; "h", "r", "l" are registers of 16, 32 and 64 bits, "f" and
    "d" floats, a number is the register of that result. `pack` elements are taken at a time, those
    of less than 32 bits side by side in a register. `dtype` is the type of the result, or a tuple
    of them. With `is_pure` the text may be dropped or repeated.

    The simulator runs the common instructions, and says which one it does not know. What the text
    does to memory nobody checks: neither the proof nor the simulator sees it.
    """
    ...


@builtin
def to_tensor(x: Any) -> tensor:
    """Turn a Python number into a scalar of the kernel: int32, or float32."""
    ...


class range:  # noqa: N801
    """The iterations of a ``for`` loop, with hints about how it is scheduled.

    `num_stages`, `loop_unroll_factor`, `disallow_acc_multi_buffer`, `flatten`, `warp_specialize`
    and `disable_licm` are recorded on the loop for the planner; none changes what it computes.
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ) -> None:
        """Count from 0 to `arg1`, or from `arg1` to `arg2`, by `step`."""
        refuse("range")

    def __iter__(self) -> Any:
        refuse("range")


class static_range:  # noqa: N801
    """The iterations of a ``for`` loop that is unrolled; bounds and step are constants."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        """Count from 0 to `arg1`, or from `arg1` to `arg2`, by `step`."""
        refuse("static_range")

    def __iter__(self) -> Any:
        refuse("static_range")


class condition:  # noqa: N801
    """The condition of a ``while`` loop with hints about how the loop is compiled."""

    def __init__(self, arg1: Any, disable_licm: bool = False) -> None:
        """Go on while `arg1` holds."""
        refuse("condition")


@builtin
def static_assert(cond: Any, msg: str = "") -> None:
    """Stop the compilation with `msg` unless the constant `cond` is true."""
    ...


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print constants while the kernel is compiled."""
    ...


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print `prefix` and values while the kernel runs; with `hex` the bits of each number."""
    ...


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the kernel with `msg` where `cond` is false and `mask` true; compiled with ``debug``.

    ``tawa.jit(debug=True)``, or the option ``debug=True`` of a launch, compiles these checks, and
    one for every ``+``, ``-`` and ``*`` of 8, 16 and 32-bit integers: that its result does not
    overflow (``sanitize_overflow=False`` leaves those out). Products run serially then: ptxas keeps
    none in flight across the call that prints.
    """
    ...


@builtin
def assume(cond: Any) -> None:
    """Promise that a scalar condition holds; the analyses may use it."""
    ...


@builtin
def multiple_of(input: T, values: Any) -> T:
    """Promise that the first of each run is a multiple of `values` (one a dimension)."""
    ...


@builtin
def max_contiguous(input: T, values: Any) -> T:
    """Promise that runs of `values` elements (one a dimension) count up by one."""
    ...


@builtin
def max_constancy(input: T, values: Any) -> T:
    """Promise that runs of `values` elements (one a dimension) are equal."""
    ...


@builtin
def debug_barrier() -> None:
    """Do nothing: memory operations already take effect in the order of the program."""
    ...
