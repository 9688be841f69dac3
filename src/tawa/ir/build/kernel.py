"""`KernelBuilder`: a kernel of tile IR, made by calls instead of Python source.

The operations are those of the language, by its names, with its rules of types and broadcasting:
`tawa.ir.build.operations`, which the frontend calls too. What is added here is what source text
has by its form: where values can be used, names of statements, places for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr, TensorType
from xdsl.ir import Attribute, SSAValue

from tawa.errors import DefinitionError, DescriptorError
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.finish import facts_of, finish
from tawa.ir.build.flow import ControlFlow
from tawa.ir.build.handles import Desc, Operand, Value
from tawa.ir.build.place import caller
from tawa.ir.build.statements import is_name
from tawa.ir.build.values import Const, name_value
from tawa.ir.types import SCALARS, DescType, PtrType, is_float
from tawa.language.dtypes import dtype
from tawa.layouts.windows import Window


class KernelBuilder(ControlFlow):
    """Builds one kernel: arguments first, then its statements in order, then `finish`.

    `options` are those of a launch that change what is compiled (``debug``, ``num_warps``, ...).
    Every error of the builder is the caller's and points at its line: `DefinitionError` for the
    form, `TypeMismatch`, `ShapeUnsupported`, `DescriptorError` as for kernels written in Python.

    >>> k = KernelBuilder("double")
    >>> x, out = k.pointer("x", "f32"), k.pointer("out", "f32")
    >>> where = k.arange(0, 64)
    >>> k.store(out + where, k.load(x + where, name="x") * 2)
    >>> k.finish().argument_names
    ['x', 'out']
    """

    # --- arguments --------------------------------------------------------------------------

    def pointer(self, name: str, element: dtype | str, *, aligned: bool = True) -> Value:
        """Add an argument: the address of an array, `aligned` to 16 bytes; a launch checks it."""
        kind = PtrType(SCALARS[self._short(element)])
        return Value(self._argument(name, kind, facts_of(name, 16 if aligned else 1)), self)

    def scalar(self, name: str, element: dtype | str, *, divisible: int = 1) -> Value:
        """Add an argument: a number. `divisible` by 16 or 8 is promised; a launch checks it."""
        kind = SCALARS[self._short(element)]
        if divisible not in (1, 8, 16) or (divisible > 1 and is_float(kind)):
            raise DefinitionError(
                f"{name} is said to be divisible by {divisible}",
                place=caller(),
                why="what the compiler makes use of is divisibility of integers by 8 and by 16",
                remedy="say 16 or 8 where it holds, else leave it out",
            )
        return Value(self._argument(name, kind, facts_of(name, divisible)), self)

    def descriptor(
        self,
        name: str,
        element: dtype | str,
        block_shape: Sequence[int],
        padding: str = "zero",
        *,
        ragged: bool = False,
        window: Window | None = None,
    ) -> Desc:
        """Add an argument: a tensor in global memory, accessed in tiles of `block_shape`; with
        `window` images, of which a tile [windows, channels] is what windows see through a tap.

        `padding`: what a load reads outside of the tensor, "zero" or "nan". `ragged`: its rows may
        end inside 16 bytes; TMA writes these whole, so threads store to it. A launch refuses such
        a tensor for a descriptor that is not ragged.
        """
        if padding not in ("zero", "nan") or not 1 <= len(block_shape) <= 5:
            raise DescriptorError(
                f"the descriptor {name} has block_shape={list(block_shape)}, padding={padding!r}",
                place=caller(),
                why='a descriptor has 1 to 5 dimensions, and the padding "zero" or "nan"',
            )
        if window is not None and (window.objection or len(block_shape) != 2):
            raise DescriptorError(
                f"TMA counts no windows of {window} in blocks of {list(block_shape)}",
                place=caller(),
                why=window.objection or "a block is [windows, channels]",
            )
        kind = DescType(TensorType(SCALARS[self._short(element)], list(block_shape)), window)
        made = self._argument(name, kind, facts_of(name, padding=padding, ragged=ragged))
        return Desc(made, padding=padding, maker=self)

    def _argument(self, name: str, kind: Attribute, facts: DictionaryAttr) -> SSAValue:
        place, block = self._begin(), self._builder.block
        known = [str(each.data["name"]) for each in self._state.facts]
        if not is_name(name) or str(facts.data["name"]) in known:
            raise DefinitionError(
                f"{name!r} cannot name an argument of {self._name}",
                place=place,
                why="names of arguments are identifiers, each of one argument",
            )
        if block is not self._builder.around[0]:
            raise DefinitionError(
                f"the argument {name} is added inside a loop or branch",
                place=place,
                why="arguments belong to the whole kernel",
                remedy="add it before the first statement",
            )
        made = block.insert_arg(kind, len(block.args))
        name_value(made, name)
        self._state.facts.append(facts)
        return made

    # --- statements -------------------------------------------------------------------------

    def constant(self, number: bool | int | float, element: dtype | str) -> Value:
        """Return a scalar constant of a type."""
        self._begin()
        kind = self._dtype(self._short(element))
        assert kind is not None, "a type that is spelled in IR is one of the language"
        return self._value(arithmetic.to_type(self._builder, Const(number), kind))

    def program_id(self, axis: int) -> Value:
        """Return the index of this program along an axis of the grid (int32)."""
        return self.call("program_id", axis)

    def num_programs(self, axis: int) -> Value:
        """Return the number of programs along an axis of the grid (int32)."""
        return self.call("num_programs", axis)

    def arange(self, start: int, end: int) -> Value:
        """Return the tensor start, start + 1 .. end - 1 (int32)."""
        return self.call("arange", start, end)

    def full(self, shape: Sequence[int], value: Operand, element: dtype | str) -> Value:
        """Return a tensor filled with a number or a scalar."""
        return self.call("full", tuple(shape), value, element)

    def zeros(self, shape: Sequence[int], element: dtype | str) -> Value:
        """Return a tensor of zeros."""
        return self.call("zeros", tuple(shape), element)

    def where(self, condition: Operand, one: Operand, other: Operand) -> Value:
        """Choose element by element."""
        return self.call("where", condition, one, other)

    def minimum(self, one: Operand, other: Operand) -> Value:
        """Return the lesser, element by element."""
        return self.call("minimum", one, other)

    def maximum(self, one: Operand, other: Operand) -> Value:
        """Return the greater, element by element."""
        return self.call("maximum", one, other)

    def cdiv(self, value: Operand, divisor: Operand) -> Value:
        """Divide integers and round up."""
        return self.call("cdiv", value, divisor)

    def load(
        self,
        pointer: Value,
        mask: Operand | None = None,
        other: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> Value:
        """Load from an address or a tensor of them; `other` stands where `mask` is false.

        `how` are the further parameters of `tl.load`: eviction_policy, cache_modifier, volatile.
        """
        return self.call("load", pointer, mask, other, name=name, **how)

    def store(
        self,
        pointer: Value,
        value: Operand,
        mask: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> None:
        """Store to an address or a tensor of them where `mask` is true."""
        self.call("store", pointer, value, mask, name=name, **how)

    def atomic(
        self,
        function: str,
        pointer: Value,
        value: Operand,
        mask: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> Value:
        """Combine into memory by add, max, min, and, or, xor, xchg; returns what was there."""
        return self.call(f"atomic_{function}", pointer, value, mask, name=name, **how)

    def make_descriptor(
        self,
        base: Value,
        shape: Sequence[Operand],
        strides: Sequence[Operand],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> Desc:
        """Describe a tensor in global memory, to access it in tiles; the last stride is 1."""
        parts = (tuple(shape), tuple(strides), tuple(block_shape))
        return self.call("make_tensor_descriptor", base, *parts, padding)

    def dot(
        self,
        a: Value,
        b: Value,
        acc: Operand | None = None,
        *,
        precision: str | None = None,
        out_dtype: dtype | str | None = None,
        name: str = "",
    ) -> Value:
        """Return a @ b + acc of shapes [.., M, K] and [.., K, N], as `tl.dot`."""
        how: dict[str, Any] = {} if out_dtype is None else {"out_dtype": out_dtype}
        return self.call("dot", a, b, acc, input_precision=precision, name=name, **how)

    def reduce(
        self,
        value: Value | Sequence[Value],
        axis: int | None,
        combine: str | Callable[..., Any],
        *,
        keep_dims: bool = False,
        name: str = "",
    ) -> Any:
        """Combine along an axis (None: all). `combine` is "add", "mul", "maximum", "minimum", or a
        function of two elements; of a tuple of tensors it takes the left elements, then the right
        ones, and gives a tuple.
        """
        several = tuple(value) if not isinstance(value, Value) else value
        return self.call("reduce", several, axis, combine, keep_dims, name=name)

    def scan(
        self,
        value: Value | Sequence[Value],
        axis: int,
        combine: str | Callable[..., Any],
        *,
        reverse: bool = False,
        name: str = "",
    ) -> Any:
        """Give inclusive prefix combinations along an axis; `combine` as in `reduce`."""
        several = tuple(value) if not isinstance(value, Value) else value
        return self.call("associative_scan", several, axis, combine, reverse, name=name)

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> tile.Kernel:
        """Return the kernel, verified; the builder takes no statements after it."""
        place = self._begin()
        if len(self._builder.around) > 1:
            raise DefinitionError(
                f"{self._name} is finished inside a loop or branch",
                place=place,
                remedy="finish it after the `with`",
            )
        if self._state.lone:
            first = self._state.lone[0].yields.place
            raise DefinitionError(
                "a branch of one side yields values",
                place=first,
                why="where the other side runs there are none",
                remedy="yield values from `with branch.otherwise():` as well",
            )
        block = self._builder.block
        self._state.kernel = finish(self._name, block, self._state.facts, self._options)
        return self._state.kernel
