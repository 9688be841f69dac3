"""The state of generation: the file being written, and the function of one role within it.

What generated text knows of each SSA value: an expression, an array, or a place in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Block, Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.module import Module, RoleShape, Writer
from tawa.codegen.names import Names
from tawa.codegen.storage import Storage
from tawa.codegen.wrappers import arithmetic
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import element_type, layout_of
from tawa.layouts.indexing import Formula, fit, is_identity

# Longest expression that is repeated at its only use instead of getting a name.
_INLINE = 48


V = TypeVar("V", bound="Value")
Handler: TypeAlias = Callable[["Emitter", Any], None]
"""Writes the operations of the class it stands under in its topic's `RULES`."""


class Emitter(Writer):
    """Writes the body of one role's function, operation by operation."""

    def __init__(
        self,
        module: Module,
        role: RoleShape,
        values: dict[SSAValue, Value],
        handlers: dict[type[Operation], Handler],
        storage: Storage,
        names: Names,
    ) -> None:
        super().__init__(module)
        self.role = role
        self.values = dict(values)
        self.storage = storage
        self.names = names
        self.one_thread = False
        self.answers: dict[SSAValue, str] = {}
        """Variables that tell whether a warp has a factor other than one, by the factors."""
        self.windows: dict[tuple[str, ...], list[str]] = {}
        """Coordinates of windows that are known here, by the texts that they are computed from."""
        self.uses_thread: set[str] = set()
        self._handlers = handlers
        self._arrays: dict[SSAValue, Array] = {}

    @property
    def thread(self) -> str:
        """The number of this thread in the role."""
        self.uses_thread.add("thread")
        return "thread"

    @property
    def lane(self) -> str:
        """The number of this thread in its warp."""
        self.uses_thread |= {"thread", "lane"}
        return "lane"

    @property
    def warp(self) -> str:
        """The number of this warp in the role."""
        self.uses_thread |= {"thread", "warp"}
        return "0" if self.role.warps == 1 else "warp"

    @property
    def warpgroup(self) -> str:
        """The number of this warpgroup in the role."""
        if self.role.warpgroups == 1:
            return "0"
        self.uses_thread |= {"thread", "warpgroup"}
        return "warpgroup"

    def elected(self, by: str) -> str:
        """Return the condition that chooses the threads of `by`, empty for all."""
        match by:
            case "all":
                return ""
            case "thread":
                if not self.one_thread:
                    raise InternalError("an operation of one thread outside hopper.one_thread")
                return ""
            case _ if self.one_thread:
                raise InternalError(f"an operation by {by} inside hopper.one_thread")
            case "warp":
                return f"{self.lane} == 0"
            case "warpgroup" if self.role.warpgroups > 1:
                return f"{self.thread} % 128 == 0"
            case "warpgroup" | "role":
                return f"{self.thread} == 0"
            case _:
                raise InternalError(f"unknown choice of threads: {by}")

    # --- values -------------------------------------------------------------------------------

    def bind(self, value: SSAValue, meaning: Value) -> None:
        """Say what generated text stands for an SSA value."""
        self.values[value] = meaning

    def _get(self, value: SSAValue, kind: type[V], what: str) -> V:
        """Return what stands for a value; InternalError where that is not `what` is asked for."""
        if (found := self.values.get(value)) is None:
            raise InternalError(f"codegen met a value before its definition: {value}")
        if not isinstance(found, kind):
            raise InternalError(f"{value.type} is no {what} but {found}")
        return found

    def scalar(self, value: SSAValue) -> Scalar:
        """Return a scalar's expression."""
        return self._get(value, Scalar, "scalar")

    def tensor(self, value: SSAValue) -> Tensor:
        """Return a tensor's registers."""
        match self.values.get(value):
            case Array() | Uniform() | Affine() | Mapped() as found:
                return found
            case _:
                return self._get(value, Array, "tensor")

    def view(self, value: SSAValue) -> str:
        """Return the shared address of a view's first byte."""
        return self._get(value, View, "view").address

    def barrier(self, barriers: SSAValue, slot: SSAValue) -> str:
        """Return the shared address of one mbarrier of an array."""
        found = self._get(barriers, BarrierArray, "array of barriers")
        return slot_address(found.at, self.scalar(slot).text, "8")

    def buffer(self, value: SSAValue) -> Buffer:
        """Return a shared buffer."""
        return self._get(value, Buffer, "buffer")

    def map(self, value: SSAValue) -> str:
        """Return the name of a pointer to a tensor map."""
        return self._get(value, Map, "tensor map").name

    def fresh(self, value: SSAValue, otherwise: str = "v") -> str:
        """Return a new name for a value, the user's where there is one."""
        return self.names.fresh(value.name_hint or "", otherwise)

    def define(
        self,
        value: SSAValue,
        text: str,
        reads: frozenset[str] = frozenset(),
        *,
        name: bool = False,
        nested: str = "",
    ) -> None:
        """Bind a scalar to an expression, under a name unless it is short and used once, nearby.

        `name` forces the name: for expressions whose place in the order matters. `nested` is the
        expression with the conversion that a variable's type would make. What a selection may
        leave out has a name too: a call within it would become a branch.
        """
        element = element_of(value.type)
        use = value.get_user_of_unique_use()
        near = use is not None and use.parent is not None and use.parent is _block_of(value)
        name = name or ("(" in text and _chosen_by(use, value))
        if near and not name and value.name_hint is None and len(text) <= _INLINE:
            self.bind(value, Scalar(nested or text, element, reads))
            return
        fresh = self.fresh(value)
        self.line(f"const {variable_type(element)} {fresh} = {bare(text)};")
        self.bind(value, Scalar(fresh, element))

    def array(self, value: SSAValue) -> Array:
        """Return the array that a tensor result is to be written to, and bind the result to it."""
        leader = self.storage.array_of.get(value)
        if leader is None or leader not in self._arrays:
            raise InternalError(f"no array for a tensor of type {value.type}")
        self.bind(value, self._arrays[leader])
        return self._arrays[leader]

    def declare(self, leader: SSAValue) -> None:
        """Declare one of the role's arrays."""
        members = self.storage.members[leader]
        hints = [value.name_hint for value in members if value.name_hint]
        name = self.names.fresh(min(hints, key=len) if hints else "", "x")
        element = element_of(element_type(leader.type))
        array = Array(name, element, layout_of(leader.type).register_count)
        self._arrays[leader] = array
        self.line(f"{element.word} {name}[{array.words}];")

    def temporary(self, like: Tensor, hint: str = "copy") -> Array:
        """Declare an array for a value that has none of its own."""
        array = Array(self.names.fresh(hint), like.element, like.count)
        self.line(f"{array.element.word} {array.name}[{array.words}];")
        return array

    def materialized(self, value: SSAValue) -> Array:
        """Return a tensor as an array, written out where it is a view or a constant."""
        found = self.tensor(value)
        if isinstance(found, Array):
            return found
        array = self.temporary(found, value.name_hint or "copy")
        self.copy(array, found)
        return array

    # --- registers ----------------------------------------------------------------------------

    def pack_expression(self, element: Element, items: Sequence[str], *, bits: bool = False) -> str:
        """Return one word made of elements given in the compute type, or of their `bits`."""
        if element.packed == 1:
            return items[0]
        if bits:
            return self.call(arithmetic.packer(element.bits), *items)
        if element.is_small_float and element.bits == 16:
            return self.call(arithmetic.pack(element.name), *items)
        if element.is_small_float:
            halves = [self.call(arithmetic.pack(element.name), *items[i : i + 2]) for i in (0, 2)]
            return self.call(arithmetic.PACK_HALVES, *halves)
        return self.call(arithmetic.packer(element.bits), *items)

    def fill(self, array: Array, at: Callable[[str], str], *, bits: bool = False) -> None:
        """Write every element of an array in an unrolled loop; `at` gives the element, or its
        `bits`.
        """
        packed = array.element.packed
        self.use_accessors(array.element)
        rest = array.count % packed
        if whole := array.count - rest:
            with self.unrolled("r", whole, packed) as r:
                places = [
                    r if i == 0 else (f"({r} + {i})" if r != "0" else str(i)) for i in range(packed)
                ]
                index = r if packed == 1 or r == "0" else f"{r} / {packed}"
                word = self.pack_expression(array.element, [at(p) for p in places], bits=bits)
                self.line(f"{array.name}[{index}] = {word};")
        if rest:  # elements past the end of the last word are never read
            items = [at(str(whole + i)) if i < rest else "0" for i in range(packed)]
            word = self.pack_expression(array.element, items, bits=bits)
            self.line(f"{array.name}[{whole // packed}] = {word};")

    def copy(self, target: Array, source: Tensor) -> None:
        """Copy a tensor to an array, word by word where both are arrays."""
        if isinstance(source, Array) and source.name == target.name:
            return
        if isinstance(source, Array) and source.element == target.element:
            with self.unrolled("r", target.words) as r:
                self.line(f"{target.name}[{r}] = {source.name}[{r}];")
            return
        self.use_accessors(source.element)
        if isinstance(source, Mapped) and target.element.packed > 1 and source.bits_at("0"):
            # Elements that only change places are never widened.
            self.fill(target, lambda r: source.bits_at(r) or "", bits=True)
            return
        self.fill(target, source.at)

    def pin(self, array: Array) -> None:
        """Make every register of an array exist at this place in the program."""
        with self.unrolled("r", array.words) as r:
            self.do(arithmetic.pin(array.element.word), f"{array.name}[{r}]")

    def use_accessors(self, element: Element) -> None:
        """Include what reading elements of a packed array calls."""
        if element.packed > 1:
            self.module.call(arithmetic.HALF if element.bits == 16 else arithmetic.BYTE)
        if element.is_small_float:
            self.module.call(arithmetic.widen(element.name))

    def renamed(self, inner: Tensor, table: Sequence[int]) -> RegisterValue:
        """Return a view of a tensor under other register numbers."""
        lookup = "" if fit(table) is not None else f"{self.module.table(table)}::at"
        found = mapped(inner, table, lookup)
        if isinstance(found, Mapped) and fit(found.table) is None:
            found = replace(found, lookup=f"{self.module.table(found.table)}::at")
        if not isinstance(found, (Array, Uniform, Affine, Mapped)):
            raise InternalError(f"no view of {found}")
        return found

    def in_place(self, operand: SSAValue, result: SSAValue) -> Array:
        """Return the array of an in-place result, holding the operand's value."""
        if layout_of(operand.type) != layout_of(result.type):
            raise InternalError(f"{result.owner} would leave {operand.type} in other places")
        target = self.array(result)
        self.copy(target, self.tensor(operand))
        return target

    # --- operations ---------------------------------------------------------------------------

    def run(self, block: Block) -> None:
        """Write the operations of a block, except its terminator."""
        for op in block.ops:
            for leader in self.storage.declared_before.get(op, ()):
                self.declare(leader)
            self.operation(op)

    def operation(self, op: Operation) -> None:
        """Write one operation."""
        handler = self._handlers.get(type(op))
        if handler is None:
            raise InternalError(f"codegen has no rule for {op.name}")
        if self.module.lines:
            self._place(op)
        handler(self, op)

    def _place(self, op: Operation) -> None:
        """Point the compiler's messages and profilers at the user's Python line."""
        match op.location:
            case FileLineColLoc() as place if place.line.data:
                file = place.filename.data.replace("\\", "/").replace('"', "")
                self.text.append(f'#line {place.line.data} "{file}"')
            case _:
                pass


def sum_of(*terms: str) -> str:
    """Return the sum of some expressions, of which those that are 0 are left out."""
    return " + ".join(term for term in terms if term != "0") or "0"


def slot_address(base: str, index: str, pitch: str) -> str:
    """Return the address of one of several equal pieces of shared memory."""
    if index == "0" or not pitch:
        return f"shared + {base}"
    return f"shared + {base} + {_factor(index)} * {pitch}"


def _factor(text: str) -> str:
    return text if text.replace("_", "a").isalnum() else f"({text})"


def variable_type(element: Element) -> str:
    """Return the C type of a variable holding a scalar: narrow floats are held as float."""
    return "float" if element.is_small_float else element.storage


def _chosen_by(user: Operation | None, value: SSAValue) -> bool:
    """Tell whether `user` selects `value` or another by a condition."""
    if not isinstance(user, tile.Elementwise) or user.function.data != "select":
        return False
    return value in user.operands[1:]


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner.parent if isinstance(owner, Operation) else owner


# --- values ---------------------------------------------------------------------------------------


_HEAD = re.compile(r"[\w.:]+(<[\w, ]*>)?")
_CLOSING = {"(": ")", "[": "]"}


def _closed(text: str, start: int) -> int:
    """Return the place after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([") - (text[place] in ")]")
        if depth == 0:
            return place + 1
    return len(text) + 1


def is_primary(text: str) -> bool:
    """Tell whether an expression binds tighter than any operator: a name, number, call, element."""
    head = _HEAD.match(text)
    place = head.end() if head is not None else 0
    while place < len(text) and text[place] in _CLOSING:
        place = _closed(text, place)
    return place == len(text) and place > 0


def atom(text: str) -> str:
    """Return an expression in parentheses unless it binds tighter than any operator."""
    return text if is_primary(text) else f"({text})"


def bare(text: str) -> str:
    """Return an expression without parentheses around the whole of it."""
    while text.startswith("(") and _closed(text, 0) == len(text):
        text = text[1:-1]
    return text


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar: a C++ expression in the element's compute type.

    `reads` names the variables the expression mentions that later statements may change.
    """

    text: str
    element: Element
    reads: frozenset[str] = frozenset()


class Tensor(Protocol):
    """A tensor in registers: `count` elements a thread, the r-th given by `at`."""

    @property
    def element(self) -> Element:
        """Element type."""
        ...

    @property
    def count(self) -> int:
        """Elements a thread holds."""
        ...

    def at(self, r: str) -> str:
        """Return the element of register `r` (an atom) in the element's compute type."""
        ...


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor with an array of its own; packed words where the element is narrow."""

    name: str
    element: Element
    count: int

    @property
    def words(self) -> int:
        """Entries of the array."""
        return self.element.words(self.count)

    def at(self, r: str) -> str:
        """Return element `r`; unpacked and widened where the array is packed."""
        bits = self.bits_at(r)
        if self.element.packed == 1:
            return bits
        if self.element.is_small_float:
            return f"{self.element.name}_to_float({bits})"
        return f"({self.element.storage}){bits}" if self.element.is_signed else bits

    def bits_at(self, r: str) -> str:
        """Return the bits of element `r`, not widened."""
        if self.element.packed == 1:
            return f"{self.name}[{bare(r)}]"
        return f"{'half' if self.element.bits == 16 else 'byte'}_at({self.name}, {bare(r)})"


@dataclass(frozen=True, slots=True)
class Uniform:
    """A tensor of one value."""

    text: str
    element: Element
    count: int

    def at(self, r: str) -> str:
        """Return the value."""
        return self.text


@dataclass(frozen=True, slots=True)
class Affine:
    """A tensor of integers: a scalar expression plus a formula of the register."""

    base: str
    offset: Formula
    element: Element
    count: int

    def at(self, r: str) -> str:
        """Return the sum for register `r`."""
        offset = self.offset.render(r)
        return self.base if offset == "0" else f"{self.base} + {offset}"


@dataclass(frozen=True, slots=True)
class Mapped:
    """Another tensor's registers under other numbers: register r is the inner one's `table[r]`."""

    inner: Tensor
    table: tuple[int, ...]
    lookup: str = ""

    @property
    def element(self) -> Element:
        """Element type, of the inner tensor."""
        return self.inner.element

    @property
    def count(self) -> int:
        """Registers of the view."""
        return len(self.table)

    def at(self, r: str) -> str:
        """Return the inner tensor's element for register `r`."""
        return self.inner.at(atom(self.index(r)))

    def bits_at(self, r: str) -> str | None:
        """Return the bits of the element for register `r`; None where no array holds them."""
        return self.inner.bits_at(atom(self.index(r))) if isinstance(self.inner, Array) else None

    def index(self, r: str) -> str:
        """Return the inner register as an expression of `r`."""
        if r.isdigit():
            return str(self.table[int(r)])
        formula = fit(self.table)
        return formula.render(r) if formula is not None else f"{self.lookup}[{bare(r)}]"


def mapped(inner: Tensor, table: Sequence[int], lookup: str = "") -> Tensor:
    """Return `inner` under other register numbers, as simply as possible."""
    while isinstance(inner, Mapped):
        table = [inner.table[register] for register in table]
        inner = inner.inner
    if isinstance(inner, Uniform):
        return Uniform(inner.text, inner.element, len(table))
    if isinstance(inner, Affine):
        values = [inner.offset(register) for register in table]
        formula = fit(values)
        if formula is not None:
            return Affine(inner.base, formula, inner.element, len(table))
    if len(table) == inner.count and is_identity(table):
        return inner
    return Mapped(inner, tuple(table), lookup)


@dataclass(frozen=True, slots=True)
class View:
    """A tile in shared memory: an expression for its first byte's shared address."""

    address: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A ring of tiles: the names of its first byte's offset and of the bytes from slot to slot.

    A ring of one slot has no `slot_bytes`: its index can only be 0.
    """

    at: str
    slot_bytes: str


@dataclass(frozen=True, slots=True)
class BarrierArray:
    """An array of mbarriers: the name of its byte offset."""

    at: str
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map: the name of a pointer to it."""

    name: str


RegisterValue = Array | Uniform | Affine | Mapped
Value = Scalar | RegisterValue | View | Buffer | BarrierArray | Map
