"""LLVM IR of a program: one function that runs a range of lanes, or a kernel of threads.

Scalars are SSA values, variables and arrays are stack slots that LLVM's mem2reg and SROA make
registers of. No fast-math flag is set: LLVM may not contract, reorder or approximate, so all
targets give the same bits. `fma`, `sqrt`, `floor` and `rint` are intrinsics, exact by definition.

Length: one case for each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tawa.errors import InternalError
from tawa.ppl.emit.scalars import LLVM, cast, divide, literal, shift
from tawa.ppl.emit.threads import Threads
from tawa.ppl.ir.core import I32, Function, Kind, Op, Program, Region, Type, Value
from tawa.ppl.ir.operations import ADJOINTS, FUNCTIONS, MATRICES, STACK

MEMORY = LLVM | {"bool": "i8"}
BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}
_FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_RELATION = {
    "lt": ("olt", "slt"),
    "le": ("ole", "sle"),
    "eq": ("oeq", "eq"),
    "ne": ("une", "ne"),
}
_INTRINSIC = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "rint": "rint", "fma": "fma"}
_LIBRARY = {*FUNCTIONS, *MATRICES, *ADJOINTS, "philox"}
Library = Callable[..., Function]


def emit(program: Program, library: Library, *, gpu: bool) -> tuple[str, int]:
    """Return LLVM IR of a program, and the bytes of memory that a lane has on its stack.

    The function is `kernel(first, end, lanes, params..., buffers...)`: i64 for the first three,
    numbers by value, arrays and buffers as pointers.
    """
    module = _Module(library)
    signature: list[str] = []
    names: list[str] = []
    for number, param in enumerate(program.params):
        type_ = "ptr noalias readonly" if param.type.shape else LLVM[param.type.kind]
        signature.append(f"{type_} %p{number}")
        names.append(f"{'ptr' if param.type.shape else type_} %p{number}")
    for name in program.buffers:
        signature.append(f"ptr noalias %buffer.{name}")
        names.append(f"ptr %buffer.{name}")
    # The cases of a machine leave nothing in registers between them: unrolled loops only cost code.
    body = _Body(module, program, gpu and all(op.code != "switch" for op in program.operations()))
    values = {param: f"%p{number}" for number, param in enumerate(program.params)}
    body.region(program.body, values)
    lane_signature = ", ".join(["i64 %lane", "i64 %lanes", *signature])
    text = body.function(f"internal void @lane({lane_signature}) alwaysinline nounwind", "ret void")
    call = f"call void @lane({', '.join(['i64 %lane', 'i64 %lanes', *names])})"
    outer = ", ".join(["i64 %first", "i64 %end", "i64 %lanes", *signature])
    kernel = (_GPU if gpu else _CPU).format(signature=outer, call=call, threads=program.threads)
    lines = [*module.functions.values(), text, kernel, *module.footer()]
    return "\n".join(lines), body.bytes + module.bytes


_CPU = """define void @kernel({signature}) nounwind {{
entry:
  %some = icmp slt i64 %first, %end
  br i1 %some, label %loop, label %exit
loop:
  %lane = phi i64 [ %first, %entry ], [ %next, %loop ]
  {call}
  %next = add i64 %lane, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""
# A lane's threads are neighbours in a warp.
_GPU = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
define ptx_kernel void @kernel({signature}) nounwind {{
entry:
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %thread64 = zext i32 %thread to i64
  %block64 = zext i32 %block to i64
  %threads64 = zext i32 %threads to i64
  %before = mul i64 %block64, %threads64
  %within = add i64 %before, %thread64
  %number = udiv i64 %within, {threads}
  %lane = add i64 %number, %first
  %inside = icmp slt i64 %lane, %end
  br i1 %inside, label %work, label %exit
work:
  {call}
  br label %exit
exit:
  ret void
}}
"""


class _Module:
    """Functions of `math/` that are used, with their stacks, and declarations of intrinsics."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.functions: dict[str, str] = {}
        self.declared: dict[str, None] = {}
        self.loops = 0
        self.bytes = 0

    def footer(self) -> list[str]:
        lines = list(self.declared)
        lines.append('!0 = !{!"llvm.loop.unroll.full"}')
        lines += [f"!{k} = distinct !{{!{k}, !0}}" for k in range(1, self.loops + 1)]
        return lines

    def function(self, name: str, types: Sequence[Type]) -> Function:
        """Return a function of the library, emitted when first used.

        It returns numbers, and writes arrays to the pointers behind its arguments.
        """
        made = self.library(name, *types)
        if made.name in self.functions:
            return made
        self.functions[made.name] = ""  # in its place before what it calls
        region = made.body
        body = _Body(self, Program(name, "f32", (), region, variables=made.variables), False)
        results = body.region(region, {arg: f"%p{k}" for k, arg in enumerate(region.args)})
        arrays = [value for value in region.yields if value.type.shape]
        signature = [
            f"ptr noalias readonly %p{k}" if arg.type.shape else f"{LLVM[arg.type.kind]} %p{k}"
            for k, arg in enumerate(region.args)
        ]
        if arrays:
            signature += [f"ptr noalias %r{k}" for k in range(len(arrays))]
            for k, (value, result) in enumerate(zip(arrays, results, strict=True)):
                body.copy(value.type, result, f"%r{k}")
            returned, end, effects = "void", "ret void", "memory(argmem: readwrite)"
        else:
            returned, effects = _returned(made), "memory(none)"
            held = results[0] if len(results) == 1 else "poison"
            for k, (value, result) in enumerate(zip(region.yields, results, strict=True)):
                if len(results) > 1:
                    item = f"{LLVM[value.type.kind]} {result}, {k}"
                    held = body.line(f"insertvalue {returned} {held}, {item}")
            end = f"ret {returned} {held}"
        head = f"internal {returned} @{made.name}({', '.join(signature)}) nounwind willreturn"
        self.functions[made.name] = body.function(f"{head} {effects}", end)
        self.bytes += body.bytes
        return made


class _Body:
    """The code of one function; stack slots are made in its first block."""

    def __init__(self, module: _Module, program: Program, unroll: bool) -> None:
        self.module = module
        self.program = program
        self.unroll = unroll
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.bytes = 0
        self.destination: dict[Value, str] = {}
        self.constants: dict[Value, int] = {}
        self.threads = Threads(self, program.threads)
        reads = (op.attrs["name"] for op in program.operations() if op.code == "read")
        self.shared = set(reads) if program.threads > 1 else set[str]()
        self.variables = {name: self.slot(type_, name) for name, type_ in program.variables.items()}
        for name, type_ in program.variables.items():
            if name != STACK:  # what was not pushed is never popped
                self.zero(type_, self.variables[name])

    def function(self, head: str, end: str) -> str:
        """Return the text of the function."""
        inside = "\n".join(["entry:", *self.slots, *self.lines, "  " + end])
        return f"define {head} {{\n{inside}\n}}\n"

    def fresh(self, stem: str = "t") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def line(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name[1:]}:")

    def slot(self, type_: Type, stem: str = "s") -> str:
        name = self.fresh(stem + ".")
        kind = MEMORY[type_.kind]
        self.bytes += BYTES[type_.kind] * type_.size
        held = f"[{type_.size} x {kind}]" if type_.shape else kind
        self.slots.append(f"  {name} = alloca {held}, align 8")
        return name

    def zero(self, type_: Type, slot: str) -> None:
        if not type_.shape:
            zero = "0.0" if type_.is_float else "0"
            self.do(f"store {MEMORY[type_.kind]} {zero}, ptr {slot}")
            return
        self.intrinsic("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = type_.size * BYTES[type_.kind]
        self.do(f"call void @llvm.memset.p0.i64(ptr align 8 {slot}, i8 0, i64 {size}, i1 false)")

    def intrinsic(self, declaration: str) -> None:
        self.module.declared[declaration] = None

    def load(self, kind: Kind, pointer: str) -> str:
        value = self.line(f"load {MEMORY[kind]}, ptr {pointer}")
        return self.line(f"trunc i8 {value} to i1") if kind == "bool" else value

    def store(self, kind: Kind, value: str, pointer: str) -> None:
        if kind == "bool":
            value = self.line(f"zext i1 {value} to i8")
        self.do(f"store {MEMORY[kind]} {value}, ptr {pointer}")

    def copy(self, type_: Type, source: str, target: str) -> None:
        if source == target:
            return
        self.intrinsic("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        size = type_.size * BYTES[type_.kind]
        self.do(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)"
        )

    def element(self, kind: Kind, shape: tuple[int, ...], base: str, at: list[str]) -> str:
        """Return the address of an element, or of the row that fewer indices choose."""
        place = "0"
        for size, index in zip(shape, at, strict=False):
            wide = self.line(f"sext i32 {index} to i64")
            if place != "0":
                scaled = self.line(f"mul nsw i64 {place}, {size}")
                wide = self.line(f"add nsw i64 {scaled}, {wide}")
            place = wide
        stride = math.prod(shape[len(at) :])
        if stride != 1:
            place = self.line(f"mul nsw i64 {place}, {stride}")
        return self.line(f"getelementptr inbounds {MEMORY[kind]}, ptr {base}, i64 {place}")

    # -- regions

    def region(self, region: Region, values: dict[Value, str]) -> list[str]:
        """Emit operations; return what the region yields."""
        for op in region.ops:
            results = self.operation(op, values)
            values.update(zip(op.results, results, strict=True))
        return [values[value] for value in region.yields]

    def operation(self, op: Op, values: dict[Value, str]) -> list[str]:
        given = [values[value] for value in op.operands]
        match op.code:
            case "const":
                return [self.constant(op.result, op.attrs["value"])]
            case "if":
                return self.branch(op, given, values)
            case "switch":
                return self.switch(op, given, values)
            case "for":
                return self.loop(op, given, values)
            case "while":
                return self.repeat(op, given, values)
            case "build":
                return self.build(op, values)
            case "pack":
                return [self.pack(op, given)]
            case code if code in _LIBRARY:
                return self.call(op, given)
            case "run":
                return self.region(self.program.procedures[op.attrs["name"]], values)
            case "set":
                self.hold(op.operands, given, [self.variables[op.attrs["name"]]])
                return []
            case "accumulate":
                kind, pointer = op.operands[-1].type.kind, self.address(op, given)
                self.store(kind, self.joined(kind, self.load(kind, pointer), given[-1]), pointer)
                return []
            case "storevar" | "write":
                kind = op.operands[-1].type.kind
                pointer = self.address(op, given)
                together = op.code == "write" and op.attrs["name"] in self.shared
                if together:  # all threads of the lane have read what is written over
                    self.threads.synchronise()
                self.store(kind, given[-1], pointer)
                if together:
                    self.threads.synchronise()
                return []
            case _:
                return [self.scalar(op, given)]

    def call(self, op: Op, given: list[str]) -> list[str]:
        """Call a function of the library; arrays come back in slots of their own."""
        made = self.module.function(op.code, [value.type for value in op.operands])
        slots = [self.slot(value.type) for value in op.results if value.type.shape]
        types = ["ptr" if v.type.shape else LLVM[v.type.kind] for v in op.operands]
        pairs = zip([*types, *["ptr"] * len(slots)], [*given, *slots], strict=True)
        call = f"@{made.name}({', '.join(f'{type_} {value}' for type_, value in pairs)})"
        if slots:
            self.do(f"call void {call}")
            return slots
        returned = _returned(made)
        whole = self.line(f"call {returned} {call}")
        if len(op.results) == 1:
            return [whole]
        return [self.line(f"extractvalue {returned} {whole}, {k}") for k in range(len(op.results))]

    def constant(self, value: Value, number: float | int | bool) -> str:
        if value.type == I32:
            self.constants[value] = int(number)
        return literal(value.type.kind, number)

    def address(self, op: Op, given: list[str]) -> str:
        name = op.attrs["name"]
        if op.code in ("loadvar", "storevar", "accumulate"):
            type_ = self.program.variables[name]
            at = given[: len(type_.shape)]
            if not at:
                return self.variables[name]
            return self.element(type_.kind, type_.shape, self.variables[name], at)
        kind = self.program.buffers[name]
        row = self.line(f"sext i32 {given[0]} to i64")
        start = self.line(f"mul nsw i64 {row}, %lanes")
        at = given[1 : len(op.operands) - (op.code == "write")]
        lane = self.line(f"sext i32 {at[0]} to i64") if at else "%lane"
        place = self.line(f"add nsw i64 {start}, {lane}")
        return self.line(f"getelementptr {MEMORY[kind]}, ptr %buffer.{name}, i64 {place}")

    def hold(self, values: Sequence[Value], given: Sequence[str], slots: Sequence[str]) -> None:
        """Keep values in slots."""
        for value, held, slot in zip(values, given, slots, strict=True):
            if value.type.shape:
                self.copy(value.type, held, slot)
            else:
                self.store(value.type.kind, held, slot)

    def taken(self, values: Sequence[Value], slots: Sequence[str]) -> list[str]:
        """Return what slots keep of values."""
        pairs = zip(values, slots, strict=True)
        return [slot if v.type.shape else self.load(v.type.kind, slot) for v, slot in pairs]

    def branch(self, op: Op, given: list[str], values: dict[Value, str]) -> list[str]:
        slots = [self.slot(result.type) for result in op.results]
        yes, no, after = self.fresh("then"), self.fresh("else"), self.fresh("after")
        self.do(f"br i1 {given[0]}, label {yes}, label {no}")
        for label, region in zip((yes, no), op.regions, strict=True):
            self.label(label)
            self.hold(region.yields, self.region(region, values), slots)
            self.do(f"br label {after}")
        self.label(after)
        return self.taken(op.results, slots)

    def switch(self, op: Op, given: list[str], values: dict[Value, str]) -> list[str]:
        labels = [self.fresh("case") for _ in op.regions]
        after = self.fresh("after")
        table = " ".join(f"i32 {k}, label {label}" for k, label in enumerate(labels))
        self.do(f"switch i32 {given[0]}, label {after} [ {table} ]")
        for label, region in zip(labels, op.regions, strict=True):
            self.label(label)
            self.region(region, values)
            self.do(f"br label {after}")
        self.label(after)
        return []

    def carry(self, region: Region, results: list[str], slots: list[str]) -> None:
        """Store what the next iteration begins with; arrays that change places go through
        copies.
        """
        moved = any(
            result in slots and result != slot for result, slot in zip(results, slots, strict=True)
        )
        if moved:
            spare = [self.slot(value.type) for value in region.yields]
            self.hold(region.yields, results, spare)
            results = self.taken(region.yields, spare)
        self.hold(region.yields, results, slots)

    def counted(self, count: str, iteration: Callable[[str], None], full: bool) -> None:
        """Emit a loop: `iteration` gets the index."""
        slot = self.slot(I32, "i")
        head, body, after = self.fresh("head"), self.fresh("body"), self.fresh("after")
        self.do(f"store i32 0, ptr {slot}")
        self.do(f"br label {head}")
        self.label(head)
        index = self.load("i32", slot)
        more = self.line(f"icmp slt i32 {index}, {count}")
        self.do(f"br i1 {more}, label {body}, label {after}")
        self.label(body)
        iteration(index)
        following = self.line(f"add nsw i32 {index}, 1")
        self.do(f"store i32 {following}, ptr {slot}")
        note = ""
        if full and self.unroll:
            self.module.loops += 1
            note = f", !llvm.loop !{self.module.loops}"
        self.do(f"br label {head}{note}")
        self.label(after)

    def loop(self, op: Op, given: list[str], values: dict[Value, str]) -> list[str]:
        region = op.regions[0]
        slots = [self.slot(result.type) for result in op.results]
        self.hold(op.operands[1:], given[1:], slots)

        def iteration(index: str) -> None:
            values.update(zip(region.args, (index, *self.taken(op.results, slots)), strict=True))
            self.carry(region, self.region(region, values), slots)

        self.counted(
            given[0], iteration, op.operands[0] in self.constants and indexes_memory(region)
        )
        return self.taken(op.results, slots)

    def repeat(self, op: Op, given: list[str], values: dict[Value, str]) -> list[str]:
        slots = [self.slot(result.type) for result in op.results]
        self.hold(op.operands, given, slots)
        head, body, after = self.fresh("head"), self.fresh("body"), self.fresh("after")
        self.do(f"br label {head}")
        self.label(head)
        carried = self.taken(op.results, slots)
        values.update(zip(op.regions[0].args, carried, strict=True))
        (test,) = self.region(op.regions[0], values)
        self.do(f"br i1 {test}, label {body}, label {after}")
        self.label(body)
        values.update(zip(op.regions[1].args, carried, strict=True))
        self.carry(op.regions[1], self.region(op.regions[1], values), slots)
        self.do(f"br label {head}")
        self.label(after)
        return self.taken(op.results, slots)

    def build(self, op: Op, values: dict[Value, str]) -> list[str]:
        region = op.regions[0]
        slots = [
            self.destination.pop(result, None) or self.slot(result.type) for result in op.results
        ]
        made = {result for inner in region.ops if inner.code == "build" for result in inner.results}

        def iteration(index: str) -> None:
            values[region.args[0]] = index
            rows = [
                self.element(r.type.kind, r.type.shape, slot, [index])
                for r, slot in zip(op.results, slots, strict=True)
            ]
            taken: set[Value] = set()
            for value, row in zip(region.yields, rows, strict=True):
                if value in made and value not in taken:  # built where it belongs, without a copy
                    self.destination[value] = row
                    taken.add(value)
            self.hold(region.yields, self.region(region, values), rows)

        self.counted(str(op.attrs["count"]), iteration, True)
        return slots

    def pack(self, op: Op, given: list[str]) -> str:
        slot, type_ = self.slot(op.result.type), op.result.type
        for number, (value, item) in enumerate(zip(op.operands, given, strict=True)):
            row = self.element(type_.kind, type_.shape, slot, [str(number)])
            self.hold([value], [item], [row])
        return slot

    # -- scalars

    def scalar(self, op: Op, given: list[str]) -> str:
        kind = op.operands[0].type.kind if op.operands else op.result.type.kind
        type_ = LLVM[kind]
        floating = kind in ("f32", "f64")
        match op.code:
            case "load":
                shape = op.operands[0].type.shape
                return self.load(kind, self.element(kind, shape, given[0], given[1:]))
            case "loadvar" | "read":
                return self.load(op.result.type.kind, self.address(op, given))
            case "get":
                return self.taken(op.results, [self.get(op)])[0]
            case "lane":
                return self.line("trunc i64 %lane to i32")
            case "thread":
                return self.threads.number()
            case "shuffle":
                return self.threads.shuffle("idx", type_, *given)
            case "shuffle_xor":
                return self.threads.shuffle("bfly", type_, given[0], str(op.attrs["mask"]))
            case "select":
                chosen = LLVM[op.result.type.kind]
                if op.result.type.shape:
                    chosen = "ptr"
                return self.line(f"select i1 {given[0]}, {chosen} {given[1]}, {chosen} {given[2]}")
            case "cast":
                return cast(self, kind, op.result.type.kind, given[0])
            case "bits":
                return self.line(f"bitcast {type_} {given[0]} to {LLVM[op.result.type.kind]}")
            case "neg":
                if floating:
                    return self.line(f"fneg {type_} {given[0]}")
                return self.line(f"sub {type_} 0, {given[0]}")
            case "floordiv" | "mod":
                return divide(self, op.code, type_, given)
            case "shl" | "lshr":
                return shift(self, op.code, type_, given)
            case "mulhi":
                wide = "i64" if kind == "i32" else "i128"
                a, b = (self.line(f"zext {type_} {x} to {wide}") for x in given)
                product = self.line(f"mul {wide} {a}, {b}")
                high = self.line(f"lshr {wide} {product}, {32 if kind == 'i32' else 64}")
                return self.line(f"trunc {wide} {high} to {type_}")
            case code if code in _RELATION:
                relation = _RELATION[code][0 if floating else 1]
                return self.line(
                    f"{'fcmp' if floating else 'icmp'} {relation} {type_} {given[0]}, {given[1]}"
                )
            case code if code in _INTRINSIC:
                name = f"@llvm.{_INTRINSIC[code]}.{kind}"
                self.intrinsic(f"declare {type_} {name}({', '.join([type_] * len(given))})")
                args = ", ".join(f"{type_} {value}" for value in given)
                return self.line(f"call {type_} {name}({args})")
            case code if floating and code in _FLOATING:
                return self.line(f"{_FLOATING[code]} {type_} {given[0]}, {given[1]}")
            case code if code in _INTEGER:
                return self.line(f"{_INTEGER[code]} {type_} {given[0]}, {given[1]}")
            case _:
                raise InternalError(f"LLVM has no rule for {op.code}")

    def joined(self, kind: Kind, one: str, other: str) -> str:
        """Return what accumulating gives: the sum of reals, the larger of whole numbers."""
        type_ = LLVM[kind]
        if kind in ("f32", "f64"):
            return self.line(f"fadd {type_} {one}, {other}")
        self.intrinsic(f"declare {type_} @llvm.smax.{type_}({type_}, {type_})")
        return self.line(f"call {type_} @llvm.smax.{type_}({type_} {one}, {type_} {other})")

    def get(self, op: Op) -> str:
        slot = self.variables[op.attrs["name"]]
        if not op.result.type.shape:
            return slot
        held = self.slot(op.result.type)  # an array value does not change when the variable does
        self.copy(op.result.type, slot, held)
        return held


def _returned(function: Function) -> str:
    """Return the type of a function's numbers."""
    types = [LLVM[value.type.kind] for value in function.body.yields]
    return types[0] if len(types) == 1 else "{ " + ", ".join(types) + " }"


def indexes_memory(region: Region) -> bool:
    """Whether a loop indexes the lane's own memory: unrolled in full, it can be registers."""
    index = region.args[0]
    return any(
        op.code in ("loadvar", "storevar", "accumulate", "load") and index in op.operands
        for op in region.ops
    )
