"""`tawa.compile_ir`: a kernel of tile IR that no Python function made, compiled and launched.

Its arguments have the types and facts that the IR declares, for all launches: a launch is checked
against them, and never compiles another kernel than the one asked for (but for the target of the
GPU that holds the arrays, and for the ordinary kernel where a guard does not hold).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from xdsl.utils.exceptions import ParseError, VerifyException

from tawa import ir
from tawa.errors import ArgumentError
from tawa.frontend.signature import Argument, DescriptorArg, PointerArg, ScalarArg, Signature
from tawa.ir import tile
from tawa.ir.build.finish import option_attributes, options_of
from tawa.ir.build.statements import is_name
from tawa.ir.text import places_of, text_of
from tawa.ir.types import DescType, PtrType, spell
from tawa.ir.walk import walk
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.runtime.build import Compiler
from tawa.runtime.compiled import CompiledKernel, spell_argument
from tawa.runtime.dispatch import target_for
from tawa.runtime.fingerprint import Fingerprint
from tawa.runtime.jit import JitFunction
from tawa.runtime.kernel import KernelFunction, Parameter
from tawa.runtime.request import Request
from tawa.runtime.specialize import HINTS, PINS, Call, derive_signature, number
from tawa.runtime.store import DiskStore
from tawa.target import H200, Target


@dataclass(frozen=True, slots=True, eq=False)
class CompiledIr(CompiledKernel):
    """A kernel compiled from tile IR, which is launched as others are: `kernel[grid]` is called.

    Arguments are arrays, descriptors and numbers, by position or by name. Where they are decides
    where it runs: on a GPU, or in the simulator for arrays of the CPU.
    """

    function: TileFunction | None = None

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        """Return the kernel on a grid: a tuple, or a function of the arguments."""
        assert self.function is not None, "compile_ir sets it"
        return self.function[grid]

    def explain(self) -> str:
        """Return the report: roles, arefs, memory, proof, what was declined, times."""
        return str(self)


def compile_ir(
    kernel: tile.Kernel | str,
    launch: Mapping[str, Any] | None = None,
    plan: Plan | Pins | str | None = None,
    *,
    target: Target | None = None,
    strict: bool = False,
    compiler: Compiler | None = None,
    store: DiskStore | None = None,
    **pins: Any,
) -> CompiledIr:
    """Compile a kernel of tile IR, of `tawa.ir.build` or as text; it is copied, not changed.

    `launch` are Triton's options of a launch (``num_warps``, ``launch_pdl``, ``debug`` ...), added
    to those the kernel has. `plan` is a whole plan (or its text) that speaks of statements by their
    names, or `Pins`; else pins by name, as at a launch (``depth={"a": 4}``). `target` is what to
    compile for before a launch says it, by default an H200; `strict` forbids re-association.

    Kept in memory and on disk by the text of the IR with its places, options, plan, target and the
    version of the compiler. Raises ArgumentError for what is no tile IR, PlanError for a plan that
    cannot be honoured, and what compiling raises.

    >>> from tawa.ir.build import KernelBuilder
    >>> k = KernelBuilder("double")
    >>> x = k.pointer("x", "f32")
    >>> where = k.arange(0, 64)
    >>> k.store(x + where, k.load(x + where) * 2)
    >>> double = compile_ir(k.finish())  # doctest: +SKIP
    >>> double[1,](array)  # doctest: +SKIP
    """
    pinned = _pins(plan, pins)
    function = function_of_ir(kernel, launch, pinned, strict, compiler, store)
    return function.compile_for(target or H200)


def function_of_ir(
    kernel: tile.Kernel | str,
    launch: Mapping[str, Any] | None = None,
    plan: Plan | Pins | str | None = None,
    strict: bool = False,
    compiler: Compiler | None = None,
    store: DiskStore | None = None,
) -> TileFunction:
    """Return what launches a kernel of tile IR, as of `compile_ir`, compiled by the first launch:
    for the GPU that holds its arrays, and for those of the CPU without a cubin.
    """
    program = _program(kernel)
    options = _options(program, launch or {})
    return TileFunction(program, options, _pins(plan, {}), strict, compiler, store)


def _program(kernel: Any) -> tile.Kernel:
    """Return a copy of a kernel, or the one that a text is of."""
    if isinstance(kernel, tile.Kernel):
        return kernel.clone()
    if not isinstance(kernel, str):
        raise ArgumentError(
            f"compile_ir got a {type(kernel).__qualname__}",
            why="it compiles a kernel of tile IR, or its text",
            remedy="build one with tawa.ir.build; tawa.jit compiles Python functions",
        )
    try:
        return ir.parse(kernel)
    except (ParseError, VerifyException, TypeError) as error:
        raise ArgumentError(
            "the text is no kernel of tile IR",
            why=str(error).strip(),
            remedy="print a kernel to see the form: str(kernel.asm['tile'])",
        ) from error


def _options(program: tile.Kernel, launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options a kernel has and is given, which replaces the former."""
    if unknown := [name for name in launch if name not in HINTS]:
        raise ArgumentError(
            f"a launch has no option {', '.join(map(repr, unknown))}",
            why=f"its options are {', '.join(sorted(HINTS))}",
            remedy="give pins of the plan by name: compile_ir(kernel, depth=4)",
        )
    given = {name: value for name, value in launch.items() if value is not None}
    options = {**options_of(program), **given}
    program.attributes["options"] = option_attributes(options)
    return options


def _pins(plan: Plan | Pins | str | None, pins: Mapping[str, Any]) -> Pins:
    if unknown := [name for name in pins if name not in PINS]:
        raise ArgumentError(
            f"compile_ir does not know {', '.join(map(repr, unknown))}",
            why=f"pins are {', '.join(sorted(PINS))}",
        )
    if not isinstance(plan, Pins):
        return Pins(plan=plan, **pins)
    if pins:
        raise ArgumentError(
            f"compile_ir got Pins and {', '.join(pins)} besides",
            remedy="put all pins into one place",
        )
    return plan


def signature_of(kernel: tile.Kernel) -> Signature:
    """Return what the arguments of a kernel are, by name, from their types and facts."""
    found: dict[str, Argument] = {}
    for argument, facts in zip(kernel.body.block.args, kernel.arguments, strict=True):
        known = {key: getattr(value, "data", None) for key, value in facts.data.items()}
        divisible = known.get("divisible")
        match argument.type:
            case PtrType() as pointer:
                one = PointerArg(spell(pointer.element), divisible == 16)
            case DescType() as desc:
                padding = str(known.get("padding", "zero"))
                ragged = "ragged" in known
                one = DescriptorArg(
                    spell(desc.element), desc.block_shape, padding, ragged, desc.window
                )
            case kind:
                one = ScalarArg(spell(kind), divisible == 16, divisible == 8)
        found[str(known["name"])] = one
    return found


class TileFunction(JitFunction[..., None]):
    """What launches a kernel of tile IR: as kernels from Python source are launched, but for one
    signature, the options and the plan it was made with.
    """

    def __init__(
        self,
        program: tile.Kernel,
        options: Mapping[str, Any],
        pins: Pins,
        strict: bool,
        compiler: Compiler | None = None,
        store: DiskStore | None = None,
    ) -> None:
        _refuse_lowered(program)
        self.program = program
        self.signature = signature_of(program)
        self._options = options
        self._pins = pins
        self._strict = strict
        parameters = (_parameter(name, one) for name, one in self.signature.items())
        kernel = KernelFunction.without_source(program.sym_name.data, parameters)
        super().__init__(kernel.function, kernel=kernel, compiler=compiler, store=store)

    def compile_for(self, target: Target, *, cubin: bool = True) -> CompiledIr:
        """Compile for a target, without arguments; without a cubin for what the simulator runs."""
        made = self._build(replace(self._request_for(target), cubin=cubin)).kernel
        facts = {field.name: getattr(made, field.name) for field in fields(CompiledKernel)}
        return CompiledIr(**facts, function=self)

    def _read_text(self) -> Fingerprint:
        text = f"{text_of(self.program)}\0{places_of(self.program)}"
        return Fingerprint(hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest(), ())

    def _request(self, call: Call) -> Request:
        own = [name for name in call.options if name not in self.signature]
        if given := [*own, *call.pins.given, *(["strict"] if call.strict else [])]:
            raise ArgumentError(
                f"a launch of {self.__name__} gives {', '.join(given)}",
                why="a kernel of tile IR has the options and the plan that it was compiled with",
                remedy="give them to compile_ir",
            )
        found = derive_signature(self.kernel, call.values)
        for name, declared in self.signature.items():
            value = call.values[name]
            if not _satisfies(declared, found[name]) or not _is_of(declared, value):
                shown = repr(value) if number(value) is not None else spell_argument(found[name])
                raise ArgumentError(
                    f"{self.__name__}: the argument '{name}' is {shown}",
                    why=f"the kernel declares it as {spell_argument(declared)}",
                    remedy="pass what it declares, or build the kernel without that fact",
                )
        return self._request_for(target_for(call.values))

    def _request_for(self, target: Target) -> Request:
        return Request(
            self.program,
            self.text_digest,
            self.signature,
            self._options,
            self._pins,
            target,
            self._strict,
        )


def _refuse_lowered(program: tile.Kernel) -> None:
    for name in (program.sym_name.data, *program.argument_names):
        if not is_name(name):
            raise ArgumentError(
                f"{name!r} cannot name a kernel or an argument",
                why="a launch gives arguments by name, as Python does",
            )
    for operation in walk(program):
        if operation.name.partition(".")[0] not in ("tile", "scf"):
            raise ArgumentError(
                f"{operation.name} stands in {program.sym_name.data}",
                why="what is compiled is tile IR: the dialects tile and scf, without roles, rings "
                "and barriers, which the compiler makes",
                remedy="pass the stage 'tile' of a kernel, or build one with tawa.ir.build",
            )


def _parameter(name: str, argument: Argument) -> Parameter:
    """Return how far launches look at an argument: at the facts that are declared."""
    looked_at = getattr(argument, "divisible", False) or getattr(argument, "by_eight", False)
    dtype = argument.dtype if isinstance(argument, ScalarArg) else ""
    return Parameter(name, dtype=dtype, specialize=looked_at)


def _is_of(declared: Argument, value: Any) -> bool:
    """Tell whether a number can be of the type declared: an integer is none with a fraction."""
    if not isinstance(declared, ScalarArg) or declared.dtype.startswith(("f", "bf")):
        return True
    plain = number(value)
    width = int(declared.dtype[1:])
    low, high = (0, 1 << width) if declared.dtype[0] == "u" else (-1 << width - 1, 1 << width - 1)
    return isinstance(plain, int) and (low <= plain < high or (width == 1 and plain in (0, 1)))


def _satisfies(declared: Argument, given: Argument) -> bool:
    match declared, given:
        case PointerArg(), PointerArg():
            return declared.dtype == given.dtype and (given.divisible or not declared.divisible)
        case ScalarArg(), ScalarArg():
            by_eight = given.divisible or given.by_eight or not declared.by_eight
            return by_eight and (given.divisible or not declared.divisible)
        case DescriptorArg(), DescriptorArg():
            # What is stored by threads may end anywhere, what TMA stores must not.
            return declared == replace(given, ragged=given.ragged or declared.ragged)
        case _:
            return declared == given
