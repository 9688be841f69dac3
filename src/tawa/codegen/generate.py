"""hopper IR → CUDA C++: one operation, one wrapper call or one unrolled loop, in order.

Before: a kernel of set-up operations and roles. After: one text without includes: constants, the
wrappers it uses, one device function a role, and the entry with a single chain over the warp
index. Codegen adds no synchronization and no shared memory: those are operations of hopper IR.
Requires: layouts on all tensors, offsets on all buffers and barriers, `launch` on the kernel.

The kernel's CUDA parameters: what the body uses of its arguments, and the tensor maps.

Descriptors become tensor maps, encoded by the launcher; a descriptor made inside the kernel from
arguments alone is described to it by expressions in Python over the arguments' names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DictionaryAttr, IntAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from tawa.analysis.hardware import padding_of
from tawa.codegen.elements import element_of
from tawa.codegen.emit import RULES, looks_at
from tawa.codegen.emit.emitter import (
    BarrierArray,
    Buffer,
    Emitter,
    Map,
    Scalar,
    Value,
    variable_type,
)
from tawa.codegen.emit.module import Module, RoleShape
from tawa.codegen.names import PREDECLARED, RESERVED, Names, identifier
from tawa.codegen.parameters import (
    CounterParameter,
    CudaSource,
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.codegen.storage import Storage, allocate
from tawa.codegen.wrappers import NAMES
from tawa.codegen.wrappers import barriers as w
from tawa.codegen.wrappers.arithmetic import UNIFORM, widen
from tawa.codegen.wrappers.core import PRELUDE, closure
from tawa.codegen.wrappers.tma import PREFETCH_MAP
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import DescType, PtrType, Real, bit_width, spell
from tawa.ir.walk import walk
from tawa.version import __version__

ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Function:
    """One role as text: its name, the call, and its definition."""

    name: str
    call: str
    text: str
    shape: RoleShape


def generate(kernel: tile.Kernel, *, lines: bool = False, arch: str = ARCH) -> CudaSource:
    """Return the CUDA C++ of a kernel at hopper level.

    With `lines`, `#line` directives point at the user's Python. Raises InternalError for hopper IR
    that breaks a rule of its operations.
    """
    launch = kernel.launch
    if launch is None:
        raise InternalError("codegen needs a lowered kernel: it has no launch facts")
    return _Generator(kernel, launch, lines, arch).run()


class _Generator:
    def __init__(self, kernel: tile.Kernel, launch: DictionaryAttr, lines: bool, arch: str) -> None:
        self.kernel = kernel
        self.arch = arch
        self.threads = _integer(launch, "threads")
        self.registers = _integer(launch, "registers", 255)
        self.shared = _integer(launch, "shared")
        self.cluster = _integer(launch, "cluster", 1)
        self.persistent = _flag(launch, "persistent")
        self.blocks = _integer(launch, "blocks", 1)
        self.early = bool(_integer(launch, "early", 0))
        # A kernel may be called `double` or `exp`: the entry gets a name that C++ can take and that
        # nothing has at file scope.
        taken = RESERVED | PREDECLARED | NAMES
        self.entry = Names(taken).fresh(kernel.sym_name.data, "kernel")
        self.module = Module(Names(RESERVED | NAMES | {self.entry}), lines=lines)
        self.values: dict[SSAValue, Value] = {}
        self.rings: list[str] = []
        self.inputs = collect(kernel, self.module.names)

    def run(self) -> CudaSource:
        for item in self.inputs:
            for value in item.values:
                self.values[value] = item.meaning
        ops = list(self.kernel.body.block.ops)
        for op in ops:
            self._declare(op)
        setup = Emitter(
            self.module,
            RoleShape("block", 0, self.threads // 32),
            self.values,
            RULES,
            Storage(),
            self.module.names.child(),
        )
        for item in self.inputs:
            if item.bits and isinstance(item.meaning, Scalar):
                widened = setup.call(widen(item.meaning.element.name), item.bits)
                setup.line(f"const float {item.name} = {widened};")
        roles = [op for op in ops if isinstance(op, hopper.Role)]
        self._setup(setup, [op for op in ops if not isinstance(op, hopper.Role)], roles)
        self.values = setup.values
        functions = [self._role(op) for op in roles]
        return CudaSource(
            self._text(setup, functions, ops),
            self.entry,
            tuple(item.parameter for item in self.inputs),
            self.threads,
            self.shared,
            self.cluster,
            self.persistent,
            self.arch,
            self.early,
        )

    # --- what the block owns ------------------------------------------------------------------

    def _declare(self, op: Operation) -> None:
        """Name the offsets of buffers and barriers at file scope."""
        match op:
            case hopper.Shared():
                kind = op.result.type
                label = identifier(op.label.data) or "buffer"
                at = self.module.constant(label.upper(), op.offset.data)
                slots = kind.slots.data
                pitch = self.module.constant(f"{at}_SLOT", kind.slot_bytes) if slots > 1 else ""
                self.values[op.result] = Buffer(at, pitch)
                self.rings.append(
                    f"{op.label.data}: {slots} x {kind.layout.data} at {op.offset.data}"
                )
            case hopper.Barriers():
                kind = op.result.type
                label = identifier(op.label.data) or "barriers"
                at = self.module.constant(label.upper(), op.offset.data)
                self.values[op.result] = BarrierArray(at, kind.count.data, op.arrivals.data)
                self.rings.append(
                    f"{op.label.data}: {kind.count.data} mbarriers of {op.arrivals.data} arrivals "
                    f"at {op.offset.data}"
                )
            case _:
                pass

    def _setup(self, e: Emitter, ops: list[Operation], roles: list[hopper.Role]) -> None:
        """Write what stands outside the roles; the set-up of one thread is gathered in one test."""
        first_role = roles[0] if roles else None
        used = _used_by_roles(ops, roles)
        open_test: int | None = None
        for op in ops:
            thread = self._sets_up(op)
            if open_test is not None and open_test != thread:
                e.line("}")
            if thread is not None:
                if open_test != thread:
                    e.line(f"if (threadIdx.x == {thread}) {{")
                open_test = thread
                self._by_one_thread(e, op)
                continue
            open_test = None
            if isinstance(op, (hopper.BlockSync, hopper.ClusterSync)):
                if first_role is not None and first_role.is_before_in_block(op):
                    continue
                e.operation(op)
            elif op in used:
                e.operation(op)
        if open_test is not None:
            e.line("}")

    def _sets_up(self, op: Operation) -> int | None:
        """Return the one thread that carries out a set-up operation, None for all others."""
        match op:
            case hopper.InitBarriers() | hopper.FenceBarrierInit():
                return 0
            case hopper.PrefetchMap():
                return max(0, self.threads - 32)
            case _:
                return None

    def _by_one_thread(self, e: Emitter, op: Operation) -> None:
        if isinstance(op, hopper.FenceBarrierInit):
            e.line("  " + e.call(w.FENCE_BARRIER_INIT) + ";")
            return
        if isinstance(op, hopper.PrefetchMap):
            map_ = e.values[op.map]
            assert isinstance(map_, Map)
            e.line("  " + e.call(PREFETCH_MAP, f"&{map_.name}") + ";")
            return
        assert isinstance(op, hopper.InitBarriers)
        found = e.values[op.barriers]
        assert isinstance(found, BarrierArray)
        if found.count == 1:
            e.line(f"  {e.call(w.BARRIER_INIT, f'shared + {found.at}', found.arrivals)};")
            return
        e.line("  #pragma unroll")
        call = e.call(w.BARRIER_INIT, f"shared + {found.at} + slot * 8", found.arrivals)
        e.line(f"  for (int slot = 0; slot < {found.count}; ++slot) {call};")

    # --- roles --------------------------------------------------------------------------------

    def _role(self, op: hopper.Role) -> Function:
        shape = RoleShape(op.label.data, op.first_warp.data, op.warps.data, self.registers)
        captured = self._captured(op)
        names = [(value, item) for value, item in captured if isinstance(item, (Map, Scalar))]
        distinct: dict[str, tuple[SSAValue, Map | Scalar]] = {}
        for value, item in names:
            text = item.name if isinstance(item, Map) else item.text
            if isinstance(item, Map) or text.isidentifier():
                distinct.setdefault(text, (value, item))
        name = self.module.names.fresh(f"role_{shape.label}")
        scope = self.module.names.child(*distinct)
        e = Emitter(self.module, shape, self.values, RULES, allocate(op.body, looks_at), scope)
        e.run(op.body.block)
        parameters = ["const u32 shared"]
        parameters += [
            f"const TensorMap* {text}"
            if isinstance(item, Map)
            else f"const {variable_type(item.element)} {text}"
            for text, (_, item) in distinct.items()
        ]
        head = [f"__device__ __forceinline__ void {name}({', '.join(parameters)}) {{"]
        if e.uses_thread:
            first = f" - {shape.first_warp * 32}" if shape.first_warp else ""
            head.append(f"  const u32 thread = threadIdx.x{first};")
        if "lane" in e.uses_thread:
            head.append("  const u32 lane = thread % 32;")
        if "warp" in e.uses_thread:
            head.append("  const u32 warp = thread / 32;")
        if "warpgroup" in e.uses_thread:
            # From one lane: ptxas then keeps what follows, addresses of operands, once for a warp.
            head.append(f"  const u32 warpgroup = {self.module.call(UNIFORM, 'thread / 128')};")
        arguments = ["shared"] + [
            f"&{text}" if isinstance(item, Map) else text for text, (_, item) in distinct.items()
        ]
        text = "\n".join([*head, *e.text, "}"])
        return Function(name, f"{name}({', '.join(arguments)});", text, shape)

    def _captured(self, role: hopper.Role) -> list[tuple[SSAValue, Value]]:
        """List what a role uses from outside, in order of first use."""
        found: dict[SSAValue, Value] = {}
        for inner in walk(role):
            for value in inner.operands:
                if value in self.values:
                    found.setdefault(value, self.values[value])
        return list(found.items())

    # --- the file -----------------------------------------------------------------------------

    def _text(self, setup: Emitter, functions: list[Function], ops: list[Operation]) -> str:
        parameters = [item.declaration for item in self.inputs]
        tail = _tail(setup, ops)
        body = [
            f'extern "C" __global__ void __launch_bounds__({self.threads}, {self.blocks})',
            f"{self.entry}({', '.join(parameters)}) {{",
            "  extern __shared__ __align__(1024) unsigned char memory[];",
            f"  const u32 shared = {setup.call(w.SHARED_ADDRESS, 'memory')};",
            *setup.text,
            *self._dispatch(functions),
            *tail,
            "}",
        ]
        wrappers = [wrapper.text for wrapper in closure(self.module.wrappers)]
        parts = [
            self._header(functions),
            PRELUDE.rstrip(),
            self._constants(),
            "\n".join(self.module.maps),
            *wrappers,
            *(function.text for function in functions),
            "\n".join(body),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _constants(self) -> str:
        """Return the named byte offsets; enumerators, since they take no storage."""
        if not self.module.constants:
            return ""
        lines = ["enum : u32 {", *(f"  {line}" for line in self.module.constants), "};"]
        return "\n".join(lines)

    def _header(self, functions: list[Function]) -> str:
        roles = [
            f"//   {function.shape.label}: warps {function.shape.first_warp}.."
            f"{function.shape.first_warp + function.shape.warps - 1}"
            for function in functions
        ]
        rings = [f"//   {ring}" for ring in self.rings]
        return "\n".join(
            [
                f"// {self.entry}, generated by tawa {__version__} for {self.arch}: "
                f"{self.threads} threads, {self.shared} bytes of shared memory.",
                "// Roles:",
                *roles,
                *(["// Shared memory:", *rings] if rings else []),
            ]
        )

    def _dispatch(self, functions: list[Function]) -> list[str]:
        """Return the one chain over the warp index; each role is one branch of it."""
        if len(functions) == 1 and functions[0].shape.warps * 32 == self.threads:
            return [f"  {functions[0].call}"]
        lines = ["  const u32 warp = threadIdx.x / 32;"]
        ordered = sorted(functions, key=lambda function: function.shape.first_warp)
        covered = 0
        for index, function in enumerate(ordered):
            if function.shape.first_warp != covered:
                raise InternalError(f"warps before role {function.shape.label} have no role")
            covered += function.shape.warps
            last = index == len(ordered) - 1 and covered * 32 == self.threads
            test = "" if last else f"if (warp < {covered}) "
            lines.append(f"  {'} else ' if index else ''}{test}{{")
            lines.append(f"    {function.call}")
        return [*lines, "  }"]


def _tail(setup: Emitter, ops: list[Operation]) -> list[str]:
    """Return the synchronization that stands after the roles."""
    seen = False
    lines: list[str] = []
    for op in ops:
        seen = seen or isinstance(op, hopper.Role)
        match op:
            case hopper.ClusterSync() if seen:
                lines.append(f"  {setup.call(w.CLUSTER_SYNC)};")
            case hopper.BlockSync() if seen:
                lines.append(f"  {setup.call(w.BLOCK_SYNC)};")
            case _:
                pass
    return lines


def _used_by_roles(ops: list[Operation], roles: Iterable[hopper.Role]) -> set[Operation]:
    """Return the scalar set-up operations that roles need, directly or through one another."""
    needed: set[SSAValue] = set()
    for role in roles:
        for inner in walk(role):
            needed |= set(inner.operands)
    used: set[Operation] = set()
    for op in reversed(ops):
        scalar = all(not isinstance(result.type, TensorType) for result in op.results)
        if type(op) in RULES and scalar and any(result in needed for result in op.results):
            used.add(op)
            needed |= set(op.operands)
    return used


def _integer(facts: DictionaryAttr, key: str, otherwise: int | None = None) -> int:
    match facts.data.get(key):
        case IntAttr() as found:
            return found.data
        case None if otherwise is not None:
            return otherwise
        case other:
            raise InternalError(f"launch fact {key} is {other}")


def _flag(facts: DictionaryAttr, key: str) -> bool:
    found: Attribute | None = facts.data.get(key)
    return isinstance(found, IntegerAttr) and bool(found.value.data)


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Input:
    """One CUDA parameter: what is passed, its declaration, and the values it stands for.

    A number of a narrow float type is passed as its `bits`, the name of the parameter; the kernel
    widens it once, to the variable `name`.
    """

    name: str
    parameter: Parameter
    declaration: str
    meaning: Map | Scalar
    values: tuple[SSAValue, ...]
    bits: str = ""


def collect(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return the parameters: tensor maps, then arguments in order, then what is derived."""
    block = kernel.body.block
    arguments: dict[SSAValue, str] = dict(zip(block.args, kernel.argument_names, strict=True))
    found = [
        _tensor_map(op, arguments, names) for op in block.ops if isinstance(op, hopper.TensorMap)
    ]
    for value, name in arguments.items():
        if isinstance(value.type, DescType) or not _is_read(value):
            continue
        found.append(_argument(value, name, names))
    found.extend(_extents(kernel, arguments, names))
    found.extend(_grid(kernel, names))
    found.extend(_counter(kernel, names))
    return found


def _is_read(value: SSAValue) -> bool:
    """Tell whether the device reads an argument: maps made of it are encoded on the host."""
    return any(not isinstance(use.operation, tile.MakeDesc) for use in value.uses)


def _argument(value: SSAValue, name: str, names: Names) -> Input:
    unique = names.fresh(name)
    if isinstance(value.type, PtrType):
        return _scalar(unique, PointerParameter(name), (value,))
    made = _scalar(unique, ScalarParameter(name, spell(value.type)), (value,))
    if not element_of(value.type).is_small_float:
        return made
    bits = names.fresh(f"{name}_bits")
    return replace(made, declaration=f"const {element_of(value.type).storage} {bits}", bits=bits)


def _scalar(name: str, parameter: Parameter, values: tuple[SSAValue, ...]) -> Input:
    element = element_of(values[0].type)
    return Input(name, parameter, f"const {element.storage} {name}", Scalar(name, element), values)


def _tensor_map(op: hopper.TensorMap, arguments: dict[SSAValue, str], names: Names) -> Input:
    kind = op.result.type
    source = arguments.get(op.desc, "")
    label = op.result.name_hint or (f"{source}_map" if source else "map")
    name = names.fresh(label)
    element, swizzle = spell(kind.element), op.swizzle.data
    assert isinstance(op.desc.type, DescType), "a tensor map is of a descriptor"
    row = op.desc.type.block_shape[-1] * max(8, bit_width(kind.element)) // 8
    of = label, element, kind.box_shape, swizzle, padding_of(op.desc), source
    parameter = TensorMapParameter(*of, row=row, window=op.desc.type.window)
    if not source:
        made = op.desc.owner
        if not isinstance(made, tile.MakeDesc):
            raise InternalError("a tensor map of something other than an argument or make_desc")
        parameter = replace(
            parameter,
            base=host_expression(made.base, arguments),
            extents=tuple(host_expression(value, arguments) for value in made.extents),
            strides=tuple(host_expression(value, arguments) for value in made.strides),
        )
    declaration = f"const __grid_constant__ TensorMap {name}"
    return Input(name, parameter, declaration, Map(name), (op.result,))


def _extents(kernel: tile.Kernel, arguments: dict[SSAValue, str], names: Names) -> list[Input]:
    """Return a parameter for each extent or stride of a descriptor argument the kernel asks for."""
    groups: dict[tuple[SSAValue, str, int], list[SSAValue]] = {}
    for op in walk(kernel):
        if isinstance(op, tile.DescExtent) and op.desc in arguments:
            groups.setdefault((op.desc, op.what.data, op.axis.data), []).append(op.result)
    found: list[Input] = []
    for (desc, what, axis), values in groups.items():
        source = arguments[desc]
        name = names.fresh(f"{source}_{what}_{axis}")
        # The base is an address; extents and strides are numbers of the type the kernel wants.
        kind = "u64" if what == "base" else spell(values[0].type)
        parameter = ScalarParameter(_of_descriptor(source, what, axis, desc), kind)
        found.append(_scalar(name, parameter, tuple(values)))
    return found


def _of_descriptor(source: str, what: str, axis: int, desc: SSAValue) -> str:
    """Return the host's expression of a descriptor argument's base, extent, stride or count."""
    if what == "base":
        return f"{source}.base"
    if what != "count":
        return f"{source}.{what}s[{axis}]"
    assert isinstance(desc.type, DescType), "windows are counted in images"
    window = desc.type.window
    assert window is not None, "windows are counted of a descriptor of windows"
    extent = f"({source}.extents[{axis + 1}] + {window.slack(axis)})"
    return f"max(0, {extent} // {window.stride[axis]} + 1)"


def _grid(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return a parameter for each extent of the user's grid the kernel asks for."""
    groups: dict[int, list[SSAValue]] = {}
    for op in walk(kernel):
        if isinstance(op, hopper.GridExtent):
            groups.setdefault(op.axis.data, []).append(op.result)
    return [
        _scalar(names.fresh(f"grid_{'xyz'[axis]}"), GridParameter(axis), tuple(values))
        for axis, values in sorted(groups.items())
    ]


def _counter(kernel: tile.Kernel, names: Names) -> list[Input]:
    """Return the parameter that says which counter is this launch's, if the kernel asks."""
    values = tuple(op.result for op in walk(kernel) if isinstance(op, hopper.Counter))
    return [_scalar(names.fresh("counter"), CounterParameter(), values)] if values else []


_PYTHON = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "idiv": "({} // {})",
    "irem": "({} % {})",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "neg": "(-{})",
    "shl": "({} << {})",
    "shr": "({} >> {})",
}


def host_expression(value: SSAValue, arguments: dict[SSAValue, str]) -> str:
    """Return a scalar as a Python expression over the arguments' names.

    Addresses count bytes. Raises InternalError for what the host cannot know.
    """
    if value in arguments:
        return arguments[value]
    match value.owner:
        case tile.Constant(value=IntAttr(data=int() as number)):
            return str(number)
        case tile.Constant(value=Real(data=float() as number)):
            return repr(number)
        case tile.Cast() as op:
            return host_expression(op.value, arguments)
        case tile.Elementwise() as op if op.function.data in _PYTHON:
            parts = [host_expression(item, arguments) for item in op.inputs]
            return _PYTHON[op.function.data].format(*parts)
        case tile.PtrAdd() as op if isinstance(op.pointer.type, PtrType):
            size = bit_width(op.pointer.type.element) // 8
            base, offset = (host_expression(v, arguments) for v in (op.pointer, op.offset))
            return f"({base} + {offset} * {size})"
        case tile.DescExtent() as op if op.desc in arguments:
            return _of_descriptor(arguments[op.desc], op.what.data, op.axis.data, op.desc)
        case Operation() as op:
            raise InternalError(f"a descriptor made of {op.name}, which the host does not know")
        case _:
            raise InternalError("a descriptor made of a value the host does not know")
