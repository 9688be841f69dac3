"""`tawa.Program`: several kernels, and the buffers between them, launched in stream order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from tawa.errors import ArgumentError
from tawa.frontend.signature import DescriptorArg
from tawa.runtime.arrays import CPU, empty_beside, host_array, is_array
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import TensorDescriptor, WindowDescriptor, is_descriptor
from tawa.runtime.dispatch import common_device
from tawa.runtime.dtypes import dtype_name
from tawa.runtime.grid import resolve_grid
from tawa.runtime.jit import Launchable
from tawa.runtime.tile_function import CompiledIr

Values: TypeAlias = Mapping[str, Any]
"""The arguments and buffers of one call of a program, by name."""
Expression: TypeAlias = Callable[[Values], Any]
Given: TypeAlias = str | bool | int | float | Expression


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory between kernels: made at each call of a program, dense rows of `dtype`.

    Extents are numbers or functions of the program's arguments; `shape` may be one function of
    them that gives all. Nothing is in it before a kernel writes it.

    >>> tawa.Buffer("half", "f16", (128, 64)).extents({})
    (128, 64)
    """

    name: str
    dtype: str
    shape: Sequence[int | Expression] | Expression

    def extents(self, values: Values) -> tuple[int, ...]:
        """Return the shape for the arguments of a call."""
        given: Any = self.shape(values) if callable(self.shape) else self.shape
        extents: list[Any] = [extent(values) if callable(extent) else extent for extent in given]
        plain: list[Any] = [
            extent.item() if hasattr(extent, "item") else extent for extent in extents
        ]
        if not all(type(extent) is int and extent >= 0 for extent in plain):
            raise ArgumentError(
                f"the buffer {self.name} has the shape {tuple(plain)}",
                why="extents are integers, 0 or more",
                remedy="divide with // or tawa.cdiv",
            )
        return tuple(plain)


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: a kernel, its grid, and what its arguments are.

    `kernel` is of `tawa.compile_ir` or `tawa.jit`. `grid` is a tuple, or a function of the
    program's values. `arguments`, by the kernel's names: the name of an argument or buffer of the
    program, a number, or a function of the program's values; what is left out is the program's
    value of the same name. An array given to a descriptor of a kernel of tile IR is described
    whole, in blocks as the kernel declares them.

    >>> @tawa.jit
    ... def clear(x, B: tl.constexpr):
    ...     tl.store(x + tl.arange(0, B), 0.0)
    >>> tawa.Step(clear, (1,), {"x": "out", "B": 64}).name
    'clear'
    """

    kernel: CompiledIr | Launchable
    grid: Sequence[int] | Expression
    arguments: Mapping[str, Given] = field(default_factory=dict[str, Given])

    @property
    def name(self) -> str:
        """The kernel's name."""
        kernel = self.kernel
        return kernel.name if isinstance(kernel, CompiledIr) else str(getattr(kernel, "__name__"))  # noqa: B009

    @property
    def parameters(self) -> Sequence[str]:
        """The names of the kernel's arguments."""
        kernel = self.kernel
        return list(kernel.signature) if isinstance(kernel, CompiledIr) else kernel.arg_names

    def launch(self, values: Values) -> CompiledKernel:
        """Launch on the current stream, or run in the simulator."""
        known = (name for name in self.parameters if name in self.arguments or name in values)
        given = {name: self._value(name, values) for name in known}
        return self.kernel[resolve_grid(self.name, self._grid(values), values)](**given)

    def _grid(self, values: Values) -> Any:
        return self.grid(values) if callable(self.grid) else tuple(self.grid)

    def _value(self, parameter: str, values: Values) -> Any:
        given = self.arguments.get(parameter, parameter)
        match given:
            case str():
                value = values[given]
            case _ if callable(given):
                value = given(values)
            case _:
                value = given
        declared = self.kernel.signature[parameter] if isinstance(self.kernel, CompiledIr) else None
        if isinstance(declared, DescriptorArg) and declared.window and is_array(value):
            block, window = declared.block_shape, declared.window
            return WindowDescriptor.over(value, window, block, declared.padding)
        if isinstance(declared, DescriptorArg) and is_array(value):
            return TensorDescriptor.from_tensor(value, declared.block_shape, declared.padding)
        return value


@dataclass(frozen=True, slots=True)
class Program:
    """Kernels that run one after the other on one stream, with buffers between them.

    A call takes the program's arguments, by position or by name, makes the buffers on the device
    of the arrays, launches the steps in order, and returns the buffers by name. Arrays of the CPU
    run in the simulator. Raises ArgumentError, when it is made, for names that do not fit.

    >>> from tawa.ir.build import KernelBuilder
    >>> k = KernelBuilder("add_one")
    >>> x, out = k.pointer("x", "f32"), k.pointer("out", "f32")
    >>> k.store(out + k.arange(0, 16), k.load(x + k.arange(0, 16)) + 1)
    >>> add_one = tawa.compile_ir(k.finish())
    >>> first = tawa.Step(add_one, (1,), {"out": "between"})
    >>> second = tawa.Step(add_one, (1,), {"x": "between"})
    >>> between = tawa.Buffer("between", "f32", (16,))
    >>> twice = tawa.Program("twice", ("x", "out"), (between,), (first, second))
    """

    name: str
    arguments: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        names = [*self.arguments, *(buffer.name for buffer in self.buffers)]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ArgumentError(
                f"the program {self.name} has two values named {', '.join(twice)}",
                why="its arguments and buffers are told apart by name",
            )
        for buffer in self.buffers:
            dtype_name(buffer.dtype)
        used: set[str] = set()
        for step in self.steps:
            used |= self._check(step, names)
        computed = any(callable(given) for step in self.steps for given in step.arguments.values())
        unused = [buffer.name for buffer in self.buffers if buffer.name not in used]
        if unused and not computed:
            raise ArgumentError(
                f"no kernel of {self.name} is given the buffer {', '.join(unused)}",
                remedy="drop it, or name it among the arguments of a step",
            )

    def _check(self, step: Step, names: Sequence[str]) -> set[str]:
        """Return the values that a step uses by name; raises ArgumentError."""
        parameters = step.parameters
        for parameter, given in step.arguments.items():
            if parameter not in parameters:
                raise ArgumentError(
                    f"{step.name} has no parameter '{parameter}'",
                    why=f"its parameters are {', '.join(parameters)}",
                )
            if isinstance(given, str) and given not in names:
                raise ArgumentError(
                    f"the program {self.name} has no value '{given}', which {step.name} takes as"
                    f" '{parameter}'",
                    why=f"its arguments and buffers are {', '.join(names)}",
                )
        missing = [p for p in parameters if p not in step.arguments and p not in names]
        if missing and isinstance(step.kernel, CompiledIr):
            raise ArgumentError(
                f"the program {self.name} gives {step.name} no {', '.join(missing)}",
                why="an argument is named in the step, or is the program's value of its name",
            )
        given = {step.arguments.get(parameter, parameter) for parameter in parameters}
        return {value for value in given if isinstance(value, str)}

    def __call__(self, *args: Any, **named: Any) -> Values:
        """Run the program; returns the buffers, by name."""
        values = self._bind(args, named)
        made: dict[str, Any] = {}
        for buffer in self.buffers:
            made[buffer.name] = self._make(buffer, values)
        values |= made
        for step in self.steps:
            step.launch(values)
        return MappingProxyType(made)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(zip(self.arguments, args))
        wrong = [name for name in named if name in values or name not in self.arguments]
        missing = [name for name in self.arguments if name not in values and name not in named]
        if wrong or missing or len(args) > len(self.arguments):
            by_name = f" and by name {', '.join(named)}" if named else ""
            raise ArgumentError(
                f"the program {self.name} got {len(args)} arguments by position{by_name}",
                why=f"its arguments are {', '.join(self.arguments)}, each once",
            )
        return values | dict(named)

    def _make(self, buffer: Buffer, values: Mapping[str, Any]) -> Any:
        arrays = [value.base if is_descriptor(value) else value for value in values.values()]
        beside = next((value for value in arrays if is_array(value)), None)
        if beside is None:
            raise ArgumentError(
                f"the program {self.name} has no array among its arguments",
                why=f"the buffer {buffer.name} is made on the device of one",
            )
        made = empty_beside(beside, buffer.extents(values), dtype_name(buffer.dtype))
        if common_device(self.name, values) == CPU:
            # What is read before it was written shows: NaN, -1, true.
            host_array(made).reshape(-1).view("u1").fill(0xFF)
        return made

    def explain(self) -> str:
        """Return the buffers, and each kernel's report where it is compiled, in stream order."""
        lines = [f"program {self.name}({', '.join(self.arguments)})"]
        for buffer in self.buffers:
            shape = (
                "computed"
                if callable(buffer.shape)
                else ["computed" if callable(extent) else extent for extent in buffer.shape]
            )
            lines.append(f"  buffer {buffer.name}: {dtype_name(buffer.dtype)} {shape}")
        for step in self.steps:
            text = str(step.kernel) if isinstance(step.kernel, CompiledIr) else step.name
            lines += [f"  {line}" for line in text.splitlines()]
        return "\n".join(lines)
