"""The walk over a kernel's tile IR that finds its tasks: products, leaves, loops and parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation, SSAValue

from tawa.cypress.size import divides, extent, key, number, sized
from tawa.integers.expressions import ZERO, Expr, Symbol, constant, of_atom, render
from tawa.ir import tile
from tawa.ir.types import DescType, shape_of
from tawa.plan.plan import Plan
from tawa.tools.lift.leaf import WORDS, LeafText, dot_text, element_of, refused

AXES = ("block_i", "block_j", "block_n")
"""What the indices of programs along the grid's axes are called."""
_SIZES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "idiv": lambda a, b: a // b,
    "irem": lambda a, b: a % b,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that HOST gives a block: a block of an argument by its index, whole along None."""

    argument: str
    index: tuple[Expr | None, ...]
    tile: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def left(self) -> list[int]:
        """The dimensions that the block sees."""
        return [dim for dim in range(len(self.tile)) if dim not in self.dropped]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a block's parameter, by the text of its index; of one that is whole: itself."""

    name: str
    index: str

    def __str__(self) -> str:
        return f"{self.name}_parts[{self.index}]" if self.index else self.name


def label_of(operation: Operation) -> str:
    """Return the name by which a plan speaks of a statement."""
    label: Any = operation.attributes.get("label")
    return "" if label is None else label.data


@dataclass(slots=True)
class Walk:
    """What is printed of a kernel that has `used` bytes of shared memory; `whole` asks calls that
    loops end where tensors do.
    """

    kernel: Any
    plan: Plan
    used: int
    whole: bool
    arguments: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    numbers: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    parameters: dict[Parameter, str] = field(default_factory=dict[Parameter, str])
    same: dict[str, None] = field(default_factory=dict[str, None])
    body: list[str] = field(default_factory=list[str])
    leaves: list[str] = field(default_factory=list[str])
    instances: list[str] = field(default_factory=list[str])
    calls: list[str] = field(default_factory=list[str])
    written: dict[str, None] = field(default_factory=dict[str, None])
    labels: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sizes: dict[SSAValue, Expr] = field(default_factory=dict[SSAValue, Expr])
    loads: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    products: list[Any] = field(default_factory=list[Any])
    _parts: dict[SSAValue, _Part] = field(default_factory=dict[SSAValue, _Part])
    _joined: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    _names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    _taken: set[str] = field(default_factory=set[str])
    _loops: dict[Symbol, tuple[Symbol, Expr, Expr, int]] = field(default_factory=dict[Symbol, Any])

    def __post_init__(self) -> None:
        """Walk; raises MappingError for what tasks have no words for."""
        self._taken |= {"cy", "tl", "I", "Tensor", "mapping", *AXES}
        self.labels |= {what: [] for what in ("load", "store", "loop", "product")}
        for value, facts in zip(self.kernel.body.block.args, self.kernel.arguments, strict=True):
            name = self._names[value] = self._named(facts.data["name"].data)
            self.arguments[name] = value
            if not isinstance(value.type, DescType):
                self.numbers[value] = name
                self.sizes[value] = key(number(name))
            elif set(facts.data) > {"name"}:
                raise refused(f"{name}, {set(facts.data) - {'name'}}", None, "tensors are plain")
        for operation in self.kernel.walk():
            self._join(operation)
        dots = [each for each in self.kernel.walk() if isinstance(each, tile.Dot)]
        # wgmma is of 64 rows: a kernel of smaller products has them in plain leaves.
        wide = any(shape_of(each.result.type)[-2] % 64 == 0 for each in dots)
        self.products = dots if wide else []
        self._block(self.kernel.body.block, self.body)

    def _named(self, hint: str | None, otherwise: str = "x") -> str:
        """Return a name of its own."""
        base, count = re.sub(r"\W|@.*", "", hint or "") or otherwise, 0
        while (name := f"{base}_{count}" if count else base) in self._taken:
            count += 1
        self._taken.add(name)
        return name

    # --- which values are one tensor ------------------------------------------------------------

    def _join(self, operation: Any) -> None:
        """Make one tensor of what a loop carries, and of a product and what it is added to."""
        match operation:
            case scf.ForOp():
                inside: Any = operation.body.block
                groups: Any = zip(
                    operation.iter_args,
                    inside.args[1:],
                    operation.results,
                    inside.last_op.operands,
                    strict=True,
                )
            case tile.Dot():
                groups = [(operation.acc, operation.result)]
            case _:
                return
        for start, *members in groups:
            # A constant is no tensor's value alone: each has it written.
            kept = members if isinstance(start.owner, tile.Constant) else [start, *members]
            first, *rest = map(self._root, kept)
            self._joined |= {each: first for each in rest if each is not first}

    def _root(self, value: SSAValue) -> SSAValue:
        while value in self._joined:
            value = self._joined[value]
        return value

    def _of(self, value: SSAValue) -> str:
        """Return the name of a value's tensor, or the text of the part that it is."""
        if value in self.loads:
            return str(self._part_of(value))
        root = self._root(value)
        if root not in self._names:
            alike = [root, *(each for each in self._joined if self._root(each) is root)]
            hints = (each.name_hint for each in alike if each.name_hint)
            self._names[root] = self._named(next(hints, None))
        return self._names[root]

    def _local(self, value: SSAValue) -> str:
        """Return what a leaf calls a value that it is given."""
        if value in self.loads:
            return self._part_of(value).name
        return self.numbers.get(value) or self._of(value)

    # --- statements -----------------------------------------------------------------------------

    def _block(self, block: Any, lines: list[str]) -> None:
        """Print the statements of a block: leaves are what stands between products and loops."""
        pending: list[Any] = []
        for operation in block.ops:
            if self._size(operation) or self._load(operation):
                continue
            match operation:
                case tile.Constant():
                    pass
                case tile.Reshape() if self._store_of(operation.value) is not None:
                    pass
                case tile.Dot() if operation in self.products:
                    self._leaf(pending, lines)
                    self._product(operation, lines)
                case scf.ForOp():
                    self._leaf(pending, lines)
                    self._for(operation, lines)
                case tile.DescStore():
                    self._leaf(pending, lines)
                    value = _stored(operation)
                    plain = value in self.loads or not isinstance(value.owner, WORDS)
                    if plain or self._store_of(value) is not operation:
                        self._print("copy", {operation.value: operation}, [value], lines)
                case scf.YieldOp():
                    self._leaf(pending, lines)
                case _ if isinstance(operation, WORDS) and len(operation.results) == 1:
                    pending.append(operation)
                case _:
                    raise refused(operation.name, operation, "tasks have no word for it")
        self._leaf(pending, lines)

    def _size(self, operation: Any) -> bool:
        """Take an operation on indices, extents and numbers; tell whether it is one."""
        if len(operation.results) != 1 or shape_of(operation.results[0].type):
            return False
        known = [self.sizes[value] for value in operation.operands if value in self.sizes]
        match operation:
            case tile.Constant(value=IntAttr(data=number)):
                found = constant(number)
            case tile.ProgramId():
                axis = operation.axis.data
                found = of_atom(Symbol(AXES[axis], -1 - axis))
            case tile.DescExtent() if operation.what.data == "shape":
                found = key(extent(self._names[operation.desc], operation.axis.data))
            case tile.Cast() if known:
                found = known[0]
            case tile.Elementwise() if len(known) == len(operation.operands):
                function = operation.function.data
                if function not in _SIZES:
                    raise refused(f"{function} of sizes", operation, "sizes have + - * // %")
                found = _SIZES[function](*known)
            case _:
                return False
        self.sizes[operation.results[0]] = found
        return True

    def _load(self, operation: Any) -> bool:
        """Take a load, what only drops its dimensions of extent 1, or turns it for a product."""
        match operation:
            case tile.DescLoad():
                self.loads[operation.result] = operation
            case tile.Reshape() if operation.value in self.loads:
                load = self.loads[operation.value]
                kept = tuple(n for n in shape_of(operation.value.type) if n != 1)
                if shape_of(operation.result.type) != kept:
                    return False
                self.loads[operation.result] = load
            case tile.Transpose() if operation.value in self.loads:
                uses: list[Any] = [use.operation for use in operation.result.uses]
                return all(e in self.products and e.b is operation.result for e in uses)
            case _:
                return False
        return True

    def _part_of(self, value: SSAValue) -> _Part:
        """Return the part that a loaded value is."""
        if value not in self._parts:
            self._parts[value] = self._part(self.loads[value], value)
        return self._parts[value]

    def _part(self, access: Any, value: SSAValue) -> _Part:
        """Return the part that a load or store takes, with the parameter that it is of."""
        argument, shape = self._names[access.desc], shape_of(access.desc.type.block)
        dropped = tuple(d for d, n in enumerate(shape) if n == 1)
        dropped = dropped if len(shape_of(value.type)) < len(shape) else ()
        outer: list[Expr | None] = []
        offsets: list[Expr] = []
        for dim, (at, count) in enumerate(zip(access.offsets, shape, strict=True)):
            offset = self.sizes.get(at)
            if offset is None or not divides(count, sized(offset)):
                why = f"a block of {count} begins at a multiple of {count}"
                raise refused(f"{argument} from {offset or at.name_hint} on", access, why)
            axes = {s for s in offset.symbols if isinstance(s.key, int) and s.key < 0}
            moving = bool(offset.symbols & set(self._loops))
            if moving and axes:
                why = "a place along a dimension is the program's, or a loop's"
                raise refused(f"{argument} at {offset}", access, why)
            outer.append(None if moving else offset // count)
            offsets.append(offset)
            if self.whole and isinstance(access, tile.DescLoad) and dim not in dropped:
                self._end(f"{argument}.shape[{dim}]", offset, count)
        wanted = Parameter(argument, tuple(outer), tuple(shape), dropped)
        if wanted not in self.parameters:
            known = argument in self.parameters.values()
            self.parameters[wanted] = self._named(argument) if known else argument
        inner = [
            "0" if outer[d] is not None else self._text(offsets[d], shape[d]) for d in wanted.left
        ]
        return _Part(self.parameters[wanted], ", ".join(inner) if None in outer else "")

    def _end(self, extents: str, offset: Expr, count: int) -> None:
        """Ask that a tensor ends where the loop over its blocks does, with a whole block."""
        if offset == ZERO:
            self.same[f"cy.same({extents}, {count})"] = None
        for iteration, (_, _, stop, _) in self._loops.items():
            if iteration in offset.symbols:
                given = {s: f"cy.size({s})" for s in stop.symbols if s.key == (s.name,)}
                if (end := render(stop, given)) != extents:
                    self.same[f"cy.same({end}, {extents})"] = None
                self.same[f"cy.same({extents} % {count}, 0)"] = None

    def _text(self, expr: Expr, by: int = 1) -> str:
        """Return a size as the block's text, divided by a number, with what loops count."""
        counted = by == 1
        for iteration, (at, start, _, step) in self._loops.items():
            factor = expr.coefficient(iteration)
            if factor % step:
                raise refused(str(expr), None, f"{at} counts by {step}")
            counted |= bool(factor) and step == 1
            expr += (of_atom(at) - start) * (factor // step) - of_atom(iteration) * factor
        names: dict[Symbol, str] = {}
        for symbol in expr.symbols:
            match symbol.key:
                case (str() as name,):
                    names[symbol] = f"size_{name}"
                case (str() as name, int() as dim):
                    names[symbol] = self._extent(name, dim)
                case _:
                    pass
        if counted or expr.value is not None:
            return render(expr // by, names)
        text = render(expr, names)
        return f"{text} // {by}" if text.isidentifier() else f"({text}) // {by}"

    def _extent(self, argument: str, dim: int) -> str:
        for parameter, name in self.parameters.items():
            if parameter.argument == argument and parameter.index[dim] is None:
                return f"{name}.shape[{parameter.left.index(dim)}]"
        raise refused(f"{argument}.shape[{dim}]", None, "no block is given all of that dimension")

    def _make(self, value: SSAValue, lines: list[str]) -> None:
        """Make a value's tensor where none is yet."""
        if self._root(value) not in self._names:
            made = f"cy.make_tensor({element_of(value)}, {shape_of(value.type)})"
            lines.append(f"{self._of(value)} = {made}")

    def _clear(self, value: SSAValue, start: SSAValue, lines: list[str]) -> None:
        """Write a constant, where a loop or a product begins with one."""
        if isinstance(start.owner, tile.Constant):
            self._make(value, lines)
            self._print("clear", {value: None}, [], lines, [f"return {LeafText().of(start)}"])

    def _leaf(self, pending: list[Any], lines: list[str]) -> None:
        """Print a leaf of the operations up to here, and its launch."""
        run = [each for each in pending if list(each.results[0].uses)]
        pending.clear()
        if not run:
            return
        inside = {id(each) for operation in run for each in operation.walk()}
        made = [operation.results[0] for operation in run]
        outputs = {
            result: self._store_of(result)
            for result in made
            if any(id(use.operation) not in inside for use in result.uses)
        }
        inputs: dict[SSAValue, None] = {}
        for value in [v for operation in run for each in operation.walk() for v in each.operands]:
            owner: Any = value.owner
            within = owner.parent_op() if isinstance(owner, Block) else owner
            if id(within) not in inside and not isinstance(owner, tile.Constant):
                if value in self.sizes and value not in self.numbers:
                    why = "a leaf is given tensors and numbers of the call"
                    raise refused(f"{self.sizes[value]} in a leaf", run[0], why)
                inputs[value] = None
        for value, store in outputs.items():
            if store is None:
                self._make(value, lines)
        text = LeafText({value: self._local(value) for value in inputs})
        statements = text.statements(run, list(outputs))
        products = [label_of(each) for each in run if isinstance(each, tile.Dot)]
        self.labels["product"] += products[-1:]  # what a leaf multiplies last goes by a name
        name = made[-1].name_hint or run[-1].name.partition(".")[2]
        self._print(name, outputs, list(inputs), lines, statements)

    def _store_of(self, value: SSAValue) -> Any:
        """Return the store that alone takes a value, if there is one."""
        uses: list[Any] = [use.operation for use in value.uses]
        if len(uses) == 1 and isinstance(uses[0], tile.Reshape):
            uses = [use.operation for use in uses[0].result.uses]
        return uses[0] if len(uses) == 1 and isinstance(uses[0], tile.DescStore) else None

    def _print(
        self,
        name: str,
        outputs: Mapping[SSAValue, Any],
        inputs: Sequence[SSAValue],
        lines: list[str],
        statements: Sequence[str] = (),
    ) -> None:
        """Print a leaf, its instances and its launch; outputs that have a store go to its part."""
        name = self._named(f"{name}_leaf")
        parts = {o: self._part(store, _stored(store)) for o, store in outputs.items() if store}
        writes = {f"{parts[o].name}_out" if o in parts else self._local(o): o for o in outputs}
        reads = {self._local(value): value for value in inputs}
        both = {**reads, **writes}
        order = [*writes, *(each for each in reads if each not in writes)]
        said = f'reads="{" ".join(reads)}", ' * bool(reads) + f'writes="{" ".join(writes)}"'
        body = statements or [f"return {self._local(inputs[0])}"]
        head = f'@cy.leaf("{name}", {said})\ndef {name}({", ".join(order)}):'
        self.leaves.append("\n    ".join([head, *body]))
        where = {n: self._memory(value) for n, value in reads.items()}
        where |= {n: "GLOBAL" if o in parts else "REGISTER" for n, o in writes.items()}
        mems = f"[{', '.join(where[each] for each in order)}]"
        ways = {store.store: store.via for store in self.plan.stores}
        stored = [outputs[o] for o in parts]
        self.written |= {self._names[store.desc]: None for store in stored}
        self.labels["store"] += map(label_of, stored)
        staged = any(ways.get(label_of(store)) == "tma" for store in stored)
        more = ", stage=SHARED" if staged else ""
        self._copied(inputs)
        given = {n: str(parts[o]) if o in parts else self._of(o) for n, o in writes.items()}
        given |= {n: self.numbers.get(v) or self._of(v) for n, v in reads.items() if n not in given}
        lines.append(f'cy.launch("{name}", {", ".join(given[each] for each in order)})')
        if self.products:
            like = f', like="product_{len(self.products)}"'
            self.instances.append(f'I("{name}", {name}, WARPGROUP, {mems}{like}{more})')
            self.calls.append(name)
            return
        # Without products a warpgroup has all of it; the plan says how many warps there are.
        typed = [f"{n}: {self.type_of(both[n])}" for n in order]
        self.leaves.append(
            f'@cy.inner("{name}", {said})\ndef {name}_over({", ".join(typed)}):\n'
            f'    for _ in cy.prange(1):\n        cy.launch("{name}", {", ".join(order)})'
        )
        above = mems.replace("REGISTER", "NONE")
        self.instances += [
            f'I("{name}_over", {name}_over, BLOCK, {above}, calls=["{name}"])',
            f'I("{name}", {name}, WARPGROUP, {mems}{more})',
        ]
        self.calls.append(f"{name}_over")

    def _memory(self, value: SSAValue) -> str:
        """Return where a leaf finds what it reads."""
        if (load := self.loads.get(value)) is None:
            return "REGISTER"
        return "GLOBAL" if self.plan.takes_directly(label_of(load)) else "SHARED"

    def type_of(self, value: SSAValue) -> str:
        """Return the annotation of a tensor or number."""
        kind: Any = value.type
        shape = shape_of(kind.block if isinstance(kind, DescType) else kind)
        return f"Tensor[{element_of(value)}, {len(shape)}]"

    def _copied(self, values: Sequence[SSAValue]) -> None:
        """Remember the order in which loads are first wanted: in that order they are copied in."""
        for label in [label_of(self.loads[value]) for value in values if value in self.loads]:
            if label not in self.labels["load"]:
                self.labels["load"].append(label)

    def _product(self, dot: Any, lines: list[str]) -> None:
        transposed = isinstance(dot.b.owner, tile.Transpose) and dot.b.owner.value in self.loads
        b = dot.b.owner.value if transposed else dot.b
        if len(shape_of(dot.a.type)) != 2 or b not in self.loads:
            raise refused("this product", dot, "tasks have A B and A B^T of matrices, B as loaded")
        self._clear(dot.result, dot.acc, lines)
        task, name = "mma_t" if transposed else "mma", f"product_{self.products.index(dot) + 1}"
        said = dot_text(dot, "A", "B.T" if transposed else "B", "C")
        leaf = f", leaf={name}" * ("=" in said)
        if leaf:
            self.leaves.append(
                f'@cy.leaf("{task}", reads="C A B", writes="C")\ndef {name}(C, A, B):\n'
                f"    return {said}"
            )
        moved = {each.product: each.a for each in self.plan.operands}.get(label_of(dot))
        lies = "shared" if dot.a in self.loads else "registers"
        columns = ', split="columns"' if self.plan.split == "columns" else ""
        a = {"registers": "REGISTER", "shared": "SHARED"}[moved or lies]
        warps = self.plan.consumers[0].warps if self.plan.specialized else self.plan.warps
        self.instances.append(f'*cy.lib.{task}("{name}", WGS={warps // 4}, A={a}{columns}{leaf})')
        self.calls.append(name)
        self._copied([dot.a, b])
        self.labels["product"].append(label_of(dot))
        lines.append(
            f'cy.launch("{task}", {self._of(dot.result)}, {self._of(dot.a)}, {self._of(b)})'
        )

    def _for(self, loop: Any, lines: list[str]) -> None:
        bounds = [self.sizes.get(each) for each in (loop.lb, loop.ub, loop.step)]
        start, stop, step = (ZERO if each is None else each for each in bounds)
        if None in bounds or not step.value or step.value < 1:
            raise refused("this loop", loop, "cy.srange counts up from size to size by a number")
        variable, *carried = loop.body.block.args
        for begin, value in zip(loop.iter_args, carried, strict=True):
            self._clear(value, begin, lines)
        plain = start == ZERO and step.value == 1
        said = self._text(stop) if plain else f"{self._text(start)}, {self._text(stop)}, {step}"
        name = self._named(variable.name_hint, "k")
        iteration = Symbol(name, len(self._loops))
        self._loops[iteration] = Symbol(name, ("counted", iteration)), start, stop, step.value
        self.sizes[variable] = start + of_atom(iteration) * step
        self.labels["loop"].append(label_of(loop))
        body: list[str] = []
        self._block(loop.body.block, body)
        lines.append(f"for {name} in cy.srange({said}):")
        lines += [f"    {line}" for line in body]


def _stored(store: Any) -> SSAValue:
    """Return what is stored, before a reshape that only adds dimensions of extent 1."""
    owner = store.value.owner
    return owner.value if isinstance(owner, tile.Reshape) else store.value
