"""The types of values inside a kernel: annotations, and what checkers and editors know of them.

No object of them exists: a kernel is compiled from its source. A test holds the operators and
methods declared here against those that the frontend takes.
"""

# ruff: noqa: D102  (operators are Python's; methods are documented where the functions are)

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tawa.language.stub import builtin, refuse

if TYPE_CHECKING:
    from tawa.language import atomics, math, reduction, tensors
    from tawa.language.dtypes import dtype as dtype_type


class tensor:  # noqa: N801
    """A scalar or a tensor of elements inside a kernel; in host code only an annotation.

    It has `dtype`, `shape` (constants), `type`, `numel` and `T`, the operators of Python, indexing
    with ``None``, ``:`` and ``...``, and as methods every function of the language that takes a
    tensor first: ``x.to(tl.float16)``, ``x.sum(0)``, ``x.reshape(4, 8)`` ...
    """

    def __init__(self, *args: Any) -> None:
        """Refuse: tensors come from the functions of the language."""
        refuse("tensor")

    if TYPE_CHECKING:
        dtype: dtype_type
        shape: Any
        type: Any
        numel: Any
        T: tensor

        def __add__(self, other: Any) -> tensor: ...
        def __radd__(self, other: Any) -> tensor: ...
        def __sub__(self, other: Any) -> tensor: ...
        def __rsub__(self, other: Any) -> tensor: ...
        def __mul__(self, other: Any) -> tensor: ...
        def __rmul__(self, other: Any) -> tensor: ...
        def __truediv__(self, other: Any) -> tensor: ...
        def __rtruediv__(self, other: Any) -> tensor: ...
        def __floordiv__(self, other: Any) -> tensor: ...
        def __rfloordiv__(self, other: Any) -> tensor: ...
        def __mod__(self, other: Any) -> tensor: ...
        def __rmod__(self, other: Any) -> tensor: ...
        def __and__(self, other: Any) -> tensor: ...
        def __rand__(self, other: Any) -> tensor: ...
        def __or__(self, other: Any) -> tensor: ...
        def __ror__(self, other: Any) -> tensor: ...
        def __xor__(self, other: Any) -> tensor: ...
        def __rxor__(self, other: Any) -> tensor: ...
        def __lshift__(self, other: Any) -> tensor: ...
        def __rlshift__(self, other: Any) -> tensor: ...
        def __rshift__(self, other: Any) -> tensor: ...
        def __rrshift__(self, other: Any) -> tensor: ...
        def __lt__(self, other: Any) -> tensor: ...
        def __le__(self, other: Any) -> tensor: ...
        def __gt__(self, other: Any) -> tensor: ...
        def __ge__(self, other: Any) -> tensor: ...
        def __neg__(self) -> tensor: ...
        def __pos__(self) -> tensor: ...
        def __invert__(self) -> tensor: ...
        def __bool__(self) -> bool: ...
        def __index__(self) -> int: ...
        def __float__(self) -> float: ...
        def __eq__(self, other: object) -> tensor: ...  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        def __ne__(self, other: object) -> tensor: ...  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        def __getitem__(self, index: Any) -> tensor: ...
        def to(
            self, dtype: dtype_type, fp_downcast_rounding: str | None = None, bitcast: bool = False
        ) -> tensor: ...
        def store(self, value: Any, mask: Any = None) -> None: ...
        def logical_and(self, other: Any) -> tensor: ...
        def logical_or(self, other: Any) -> tensor: ...
        def advance(self, offsets: Any) -> tensor: ...
        def sort(self, dim: Any = None, descending: Any = False) -> tensor: ...
        def flip(self, dim: Any = None) -> tensor: ...
        def atomic_load(self, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor: ...
        def atomic_store(
            self, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
        ) -> None: ...

        cast = tensors.cast
        broadcast_to = tensors.broadcast_to
        expand_dims = tensors.expand_dims
        reshape = tensors.reshape
        view = tensors.view
        ravel = tensors.ravel
        item = tensors.item
        gather = tensors.gather
        squeeze = tensors.squeeze
        unsqueeze = tensors.unsqueeze
        trans = tensors.trans
        permute = tensors.permute
        split = tensors.split
        histogram = reduction.histogram
        reduce = reduction.reduce
        associative_scan = reduction.associative_scan
        sum = reduction.sum
        max = reduction.max
        min = reduction.min
        argmax = reduction.argmax
        argmin = reduction.argmin
        xor_sum = reduction.xor_sum
        reduce_or = reduction.reduce_or
        cumsum = reduction.cumsum
        cumprod = reduction.cumprod
        abs = math.abs
        exp = math.exp
        exp2 = math.exp2
        log = math.log
        log2 = math.log2
        sin = math.sin
        cos = math.cos
        erf = math.erf
        sqrt = math.sqrt
        sqrt_rn = math.sqrt_rn
        rsqrt = math.rsqrt
        floor = math.floor
        ceil = math.ceil
        sigmoid = math.sigmoid
        softmax = math.softmax
        cdiv = math.cdiv
        atomic_cas = atomics.atomic_cas
        atomic_xchg = atomics.atomic_xchg
        atomic_add = atomics.atomic_add
        atomic_max = atomics.atomic_max
        atomic_min = atomics.atomic_min
        atomic_and = atomics.atomic_and
        atomic_or = atomics.atomic_or
        atomic_xor = atomics.atomic_xor
    else:

        def __getattr__(self, name: str) -> NoReturn:
            refuse(f"tensor.{name}")


class pointer(tensor):  # noqa: N801
    """An annotation: a kernel gets the address of an array in global memory."""


class tensor_descriptor:  # noqa: N801
    """A tensor in global memory that is read and written in tiles.

    It has `shape` (int32), `strides` (int64), `block_shape` and `dtype` (constants) and the methods
    below; that of windows also `counts` (int32), the windows of an image by axis. A kernel gets one
    as an argument or makes it with `make_tensor_descriptor`.
    """

    if TYPE_CHECKING:
        dtype: dtype_type
        shape: Any
        strides: Any
        block_shape: Any
        counts: Any
        type: Any

    def __init__(self, *args: Any) -> None:
        """Refuse: descriptors come from `make_tensor_descriptor` or from the host."""
        refuse("tensor_descriptor")

    @builtin
    def load(self, offsets: Any, tap: Any = None) -> tensor:
        """Load the tile at `offsets` (int32, elements); what lies outside reads as padding.

        Of a `tawa.WindowDescriptor`, the offsets are [window, channel], and `tap` is the place in
        the window, a number for each axis: the tile is what consecutive windows see there.
        """
        ...

    @builtin
    def store(self, offsets: Any, value: tensor) -> None:
        """Store a tensor, converted to the element type; what lies outside is dropped."""
        ...

    @builtin
    def gather(self, x_offsets: tensor, y_offset: Any) -> tensor:
        """Load the rows `x_offsets`, from column `y_offset` on; `block_shape` is one row."""
        ...

    @builtin
    def scatter(self, value: tensor, x_offsets: tensor, y_offset: Any) -> None:
        """Store the rows `x_offsets`, from column `y_offset` on; `block_shape` is one row."""
        ...

    @builtin
    def atomic_add(self, offsets: Any, value: tensor) -> None:
        """Add the tensor to memory, element by element, each as one step."""
        ...

    @builtin
    def atomic_max(self, offsets: Any, value: tensor) -> None:
        """Replace memory by the larger values, element by element, each as one step."""
        ...

    @builtin
    def atomic_min(self, offsets: Any, value: tensor) -> None:
        """Replace memory by the smaller values, element by element, each as one step."""
        ...

    @builtin
    def atomic_and(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise and, element by element, each as one step."""
        ...

    @builtin
    def atomic_or(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise or, element by element, each as one step."""
        ...

    @builtin
    def atomic_xor(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise exclusive or, element by element, each as one step."""
        ...

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse(f"tensor_descriptor.{name}")


tensor_descriptor_base = tensor_descriptor


@builtin
def aggregate_replace(instance: Any, **changes: Any) -> Any:
    """Make an object of the class of an aggregate with the fields of `instance`, and `changes`."""
    ...


class const:  # noqa: N801
    """An annotation of a pointer that is only read; the compiler sees that by itself."""


class tuple:  # noqa: N801
    """The values of `args` as one, as Python's own tuple is; in host code only an annotation."""

    def __init__(self, args: Any) -> None:
        """Refuse: outside of a kernel it is Python's own that is meant."""
        refuse("tuple")
