"""From a plain tile kernel and its plan back to tasks and a mapping, as text: `tawa lift`.

The tile IR is walked once. Products become trees of the library, what stands between them leaves,
loads parts of tensors, loops `cy.srange`. The planner's decisions become fields of the instance
that HOST launches, and lines of the plan where the fields have no words for them. What is printed
is read and compiled again, and is given out only where the CUDA text is the same but for names.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa import compile_ir
from tawa.cypress.emit import subject
from tawa.cypress.event import CopyIn, CopyOut, Event, For, calls
from tawa.cypress.lift_leaf import WORDS, LeafText, element_of
from tawa.cypress.program import Program, complete
from tawa.cypress.size import divides, extent, key, number, sized
from tawa.errors import MappingError
from tawa.integers.expressions import ZERO, Expr, Symbol, ceildiv, constant, of_atom, render
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType, shape_of
from tawa.plan.plan import Plan
from tawa.simulator.values import place_of

_AXES = ("i", "j", "n")
"""What the indices of programs along the grid's axes are called."""
_SIZES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "idiv": lambda a, b: a // b,
    "irem": lambda a, b: a % b,
}


def refused(what: str, operation: Operation | None, why: str) -> MappingError:
    """Return the error of what tasks have no words for."""
    place = None if operation is None else place_of(operation)
    return MappingError(f"{what} cannot be said as tasks", place=place, why=why)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A part of a tensor: of the block's parameter `name` at `inner`, by its place in `outer`."""

    name: str
    inner: tuple[str, ...] | None
    operation: Any

    def __str__(self) -> str:
        return self.name if self.inner is None else f"{self.name}_parts[{', '.join(self.inner)}]"


@dataclass(frozen=True, slots=True, eq=False)
class _Parameter:
    """A tensor that HOST gives a block: blocks of an argument, whole along `panels`."""

    argument: str
    index: tuple[Expr | None, ...]  # None: the whole extent, parted in the block
    tile: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(slots=True)
class _Lift:
    """The text of a kernel's tasks; `whole` asks calls that loops end where tensors do."""

    kernel: tile.Kernel
    plan: Plan
    whole: bool
    sizes: dict[SSAValue, Expr] = field(default_factory=dict[SSAValue, Expr])
    numbers: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    loads: dict[SSAValue, tile.DescLoad] = field(default_factory=dict[SSAValue, tile.DescLoad])
    parts: dict[SSAValue, _Part] = field(default_factory=dict[SSAValue, _Part])
    joined: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    taken: set[str] = field(default_factory=set[str])
    parameters: dict[_Parameter, str] = field(default_factory=dict[Any, str])
    variables: dict[Symbol, tuple[Symbol, Expr, int]] = field(default_factory=dict[Symbol, Any])
    stops: dict[Symbol, Expr] = field(default_factory=dict[Symbol, Expr])
    leaves: list[str] = field(default_factory=list[str])
    instances: list[str] = field(default_factory=list[str])
    calls: list[str] = field(default_factory=list[str])
    labels: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    same: dict[str, None] = field(default_factory=dict[str, None])
    written: set[str] = field(default_factory=set[str])
    body: list[str] = field(default_factory=list[str])
    products: list[tile.Dot] = field(default_factory=list[tile.Dot])

    def __post_init__(self) -> None:
        self.taken |= {"cy", "tl", "I", "Tensor", "mapping", "block", *_AXES}
        for value, facts in zip(self.kernel.body.block.args, self.kernel.arguments, strict=True):
            name = self.named(str(facts.data["name"].data))
            match value.type:
                case DescType():
                    if extra := set(facts.data) - {"name", "padding"}:
                        raise refused(
                            f"{name}, {', '.join(extra)}", None, "tasks know no such tensor"
                        )
                case PtrType():
                    raise refused(
                        f"{name}, a pointer", None, "tasks take tensors in blocks: a descriptor's"
                    )
                case _:
                    self.numbers[value] = name
                    self.sizes[value] = key(number(name))
            self.names[value] = name
        for operation in self.kernel.walk():
            self._join(operation)
        self.products = [op for op in self.kernel.walk() if isinstance(op, tile.Dot)]
        self.block(self.kernel.body.block, self.body)

    def named(self, hint: str) -> str:
        """Return a name of its own."""
        base = re.sub(r"\W|@.*", "", hint) or "x"
        found = next(
            n for k in range(10_000) if (n := f"{base}_{k}" if k else base) not in self.taken
        )
        self.taken.add(found)
        return found

    # --- which values are one tensor ------------------------------------------------------------

    def _join(self, operation: Operation) -> None:
        """Make one tensor of what a loop carries, and of a product and what it is added to."""
        match operation:
            case scf.ForOp():
                ends = operation.body.block.last_op
                assert ends is not None, "a loop's body has an end"
                for start, inside, after, end in zip(
                    operation.iter_args,
                    operation.body.block.args[1:],
                    operation.results,
                    ends.operands,
                    strict=True,
                ):
                    members = [inside, end, after]
                    members += [] if isinstance(start.owner, tile.Constant) else [start]
                    self._union(members)
            case tile.Dot() if not isinstance(operation.acc.owner, tile.Constant):
                self._union([operation.acc, operation.result])
            case _:
                pass

    def _union(self, members: Sequence[SSAValue]) -> None:
        first, *rest = map(self.tensor, members)
        for each in rest:
            if each is not first:
                self.joined[each] = first

    def tensor(self, value: SSAValue) -> SSAValue:
        """Return the value that stands for a tensor."""
        while value in self.joined:
            value = self.joined[value]
        return value

    def of(self, value: SSAValue) -> str:
        """Return the name of a value's tensor, or the part that it is."""
        if value in self.loads:
            return str(self.loaded(value))
        root = self.tensor(value)
        if root not in self.names:
            self.names[root] = self.named(root.name_hint or "x")
        return self.names[root]

    # --- statements -----------------------------------------------------------------------------

    def block(self, block: Block, lines: list[str]) -> None:
        """Print the statements of a block: leaves are what stands between products and loops."""
        pending: list[Operation] = []
        made: set[SSAValue] = set()
        for operation in block.ops:
            if (
                self._size(operation)
                or self._load(operation)
                or isinstance(operation, tile.Constant)
            ):
                continue
            match operation:
                case tile.Dot():
                    self._leaf(pending, lines, made)
                    if isinstance(operation.acc.owner, tile.Constant):
                        self._clear(operation.result, operation.acc.owner, lines, made)
                    self._product(operation, lines)
                case scf.ForOp():
                    self._leaf(pending, lines, made)
                    self._for(operation, lines, made)
                case tile.DescStore():
                    self._leaf(pending, lines, made)
                    if not self._stored(operation):
                        self._copy(operation, lines)
                case scf.YieldOp():
                    self._leaf(pending, lines, made)
                case tile.Reshape() if self._store_of(operation.value) is not None:
                    pass
                case _ if isinstance(operation, WORDS) and len(operation.results) == 1:
                    pending.append(operation)
                case _:
                    raise refused(operation.name, operation, "tasks have no word for it")
        self._leaf(pending, lines, made)

    def _size(self, operation: Operation) -> bool:
        """Take an operation on indices and extents; tell whether it is one."""
        operands = [self.sizes.get(value) for value in operation.operands]
        known = [each for each in operands if each is not None]
        match operation:
            case tile.Constant() if not shape_of(operation.result.type):
                value: Any = operation.value
                if not isinstance(value.data, int):
                    return False
                found = constant(value.data)
            case tile.ProgramId():
                axis = operation.axis.data
                found = of_atom(Symbol(_AXES[axis], -1 - axis))
            case tile.DescExtent() if operation.what.data == "shape":
                found = key(extent(self.names[operation.desc], operation.axis.data))
            case tile.Elementwise() if len(known) == len(operands) and not shape_of(
                operation.result.type
            ):
                function = _SIZES.get(operation.function.data)
                if function is None:
                    raise refused(
                        f"{operation.function.data} of sizes", operation, "sizes have + - * // %"
                    )
                found = function(*known)
            case _:
                return False
        self.sizes[operation.results[0]] = found
        return True

    def _load(self, operation: Operation) -> bool:
        """Take a load, or what only drops its dimensions of extent 1, or turns it round."""
        match operation:
            case tile.DescLoad():
                self.loads[operation.result] = operation
            case tile.Reshape() if operation.value in self.loads:
                *others, last = (use.operation for use in operation.value.uses)
                load = self.loads[operation.value]
                kept = [n for n in shape_of(load.desc.type.block) if n != 1]
                if others or last is not operation or list(shape_of(operation.result.type)) != kept:
                    return False
                self.loads[operation.result] = load
            case tile.Transpose():
                users = [use.operation for use in operation.result.uses]
                return operation.value in self.loads and all(
                    isinstance(user, tile.Dot) and user.b is operation.result for user in users
                )
            case _:
                return False
        return True

    def loaded(self, value: SSAValue) -> _Part:
        """Return the part that a loaded value is."""
        if value not in self.parts:
            self.parts[value] = self._part(self.loads[value], value)
        return self.parts[value]

    def _part(self, access: tile.DescLoad | tile.DescStore, value: SSAValue) -> _Part:
        """Return the part that a load or store takes, as it is named in the block."""
        argument = self.names[access.desc]
        tile_shape = tuple(shape_of(access.desc.type.block))
        dropped = tuple(d for d, n in enumerate(tile_shape) if n == 1)
        dropped = dropped if len(shape_of(value.type)) < len(tile_shape) else ()
        index: list[Expr | None] = []
        inner: list[str] = []
        for dim, (at, count) in enumerate(zip(access.offsets, tile_shape, strict=True)):
            offset = self.sizes.get(at)
            if self.whole and isinstance(access, tile.DescLoad) and dim not in dropped:
                self._end(f"{argument}.shape[{dim}]", offset, count)
            if offset is None or not divides(count, sized(offset)):
                raise refused(
                    f"{argument} from {at.name_hint or offset} on", access,
                    f"a block of {count} begins at a multiple of {count}",
                )  # fmt: skip
            moving = {s for s in offset.symbols if isinstance(s.key, int) and s.key >= 0}
            index.append(None if moving else offset // count)
            if moving and any(isinstance(s.key, int) and s.key < 0 for s in offset.symbols):
                raise refused(
                    f"{argument} at {offset}", access, "a place is of the program, or of a loop"
                )
            if dim not in dropped:
                inner.append(self.in_block(offset, count) if moving else "0")
        wanted = _Parameter(argument, tuple(index), tile_shape, dropped)
        if wanted not in self.parameters:
            self.parameters[wanted] = (
                argument if argument not in self.parameters.values() else (self.named(argument))
            )
        name = self.parameters[wanted]
        return _Part(name, tuple(inner) if None in index else None, access)

    def in_block(self, expr: Expr, by: int = 1) -> str:
        """Return a size as the block's text, divided by a number."""
        for trip, (at, start, step) in self.variables.items():
            factor = expr.coefficient(trip)
            if factor % step:
                raise refused(f"{expr}", None, f"{at} counts by {step}")
            expr += (of_atom(at) - start) * (factor // step) - of_atom(trip) * factor
        whole = expr // by
        names: dict[Symbol, str] = {}
        for symbol in expr.symbols:
            match symbol.key:
                case (str() as name,):
                    names[symbol] = f"size_{name}"
                case (str() as name, int() as dim):
                    names[symbol] = self._extent(name, dim)
                case _:
                    pass
        plain = by == 1 or (not (whole * by - expr).terms and not self._strided(expr))
        return (
            render(whole, names)
            if plain
            else f"({render(expr, names)}) // {by}".replace(
                f"({at.name}) //" if (at := next(iter(expr.symbols), None)) else "\0",
                f"{at} //",
            )
        )

    def _strided(self, expr: Expr) -> bool:
        return any(at in expr.symbols and step > 1 for at, _, step in self.variables.values())

    def _extent(self, argument: str, dim: int) -> str:
        for parameter, name in self.parameters.items():
            if parameter.argument == argument and parameter.index[dim] is None:
                return f"{name}.shape[{dim - sum(d < dim for d in parameter.dropped)}]"
        raise refused(f"{argument}.shape[{dim}]", None, "no block is given all of that dimension")

    def _make(self, value: SSAValue, lines: list[str], made: set[SSAValue]) -> None:
        """Make a value's tensor where none is yet."""
        root = self.tensor(value)
        if root in self.names or value in self.loads:
            return
        shape = tuple(shape_of(value.type))
        lines.append(f"{self.of(value)} = cy.make_tensor({element_of(value)}, {shape})")

    def _clear(
        self, value: SSAValue, start: tile.Constant, lines: list[str], made: set[SSAValue]
    ) -> None:
        self._make(value, lines, made)
        name = self.named(f"clear_{self.of(value)}")
        self._print_leaf(name, [value], [], [f"return {LeafText({}).expression(start.result)}"], {})
        lines.append(f'cy.launch("{name}", {self.of(value)})')

    def _leaf(self, pending: list[Operation], lines: list[str], made: set[SSAValue]) -> None:
        """Print a leaf of the operations up to here, and its launch."""
        run, pending[:] = list(pending), []
        inside = {result for operation in run for result in operation.results}
        run = [op for op in run if any(result.uses for result in op.results)]
        if not run:
            return
        outputs = [
            result
            for operation in run
            for result in operation.results
            if any(_top(use.operation, run[0]) not in run for use in result.uses)
        ]
        text = LeafText({})
        inputs: list[SSAValue] = []
        for operation in run:
            for value in [v for op in operation.walk() for v in op.operands]:
                outer = value not in inside and not _within(value, run)
                if outer and not isinstance(value.owner, tile.Constant) and value not in inputs:
                    if value in self.sizes and value not in self.numbers:
                        raise refused(
                            f"{self.sizes[value]} in a leaf",
                            operation, "a leaf is given tensors and numbers of the call",
                        )  # fmt: skip
                    inputs.append(value)
        stores = {o: s for o in outputs if (s := self._store_of(o)) is not None}
        for value in outputs:
            if value not in stores:
                self._make(value, lines, made)
        for value in inputs:
            text.names[value] = self.numbers.get(value) or self._local(value)
        statements = text.statements(run, outputs)
        name = self.named(f"{(outputs[0].name_hint or run[-1].name.split('.')[1])}_leaf")
        parts = {o: self._part(s, _before_reshape(s)) for o, s in stores.items()}
        self._print_leaf(name, outputs, inputs, statements, parts)
        given = [str(parts[o]) if o in parts else self.of(o) for o in outputs]
        known = {self.tensor(o) for o in outputs if o not in parts}
        given += [self.numbers.get(v) or self.of(v) for v in inputs if self.tensor(v) not in known]
        lines.append(f'cy.launch("{name}", {", ".join(given)})')

    def _local(self, value: SSAValue) -> str:
        return self.loaded(value).name if value in self.loads else self.of(value)

    def _store_of(self, value: SSAValue) -> Any:
        """Return the store that alone takes a value, if there is one."""
        uses = [use.operation for use in value.uses]
        if len(uses) == 1 and isinstance(uses[0], tile.Reshape):
            uses = [use.operation for use in uses[0].result.uses]
        return uses[0] if len(uses) == 1 and isinstance(uses[0], tile.DescStore) else None

    def _stored(self, store: tile.DescStore) -> bool:
        """Tell whether a leaf has written what is stored."""
        value = _before_reshape(store)
        kept = isinstance(value.owner, Block | tile.Dot | scf.ForOp) or value in self.loads
        return not kept and self._store_of(value) is store

    def _copy(self, store: tile.DescStore, lines: list[str]) -> None:
        value = _before_reshape(store)
        name = self.named("copy_leaf")
        part = self._part(store, value)
        self._print_leaf(
            name, [store.value], [value], [f"return {self._local(value)}"], {store.value: part}
        )
        lines.append(f'cy.launch("{name}", {part}, {self.of(value)})')

    def _print_leaf(
        self,
        name: str,
        outputs: Sequence[SSAValue],
        inputs: Sequence[SSAValue],
        statements: Sequence[str],
        stored: Mapping[SSAValue, _Part],
    ) -> None:
        """Print a leaf and its instance; a stored output is a part of the program's tensor."""
        writes = [f"{stored[o].name}_out" if o in stored else self._local(o) for o in outputs]
        reads = [self.numbers.get(v) or self._local(v) for v in inputs]
        both = list(dict.fromkeys([*writes, *reads]))
        said = f'reads="{" ".join(dict.fromkeys(reads))}", ' if reads else ""
        head = f'@cy.leaf("{name}", {said}writes="{" ".join(writes)}")'
        self.leaves.append("\n    ".join([f"{head}\ndef {name}({', '.join(both)}):", *statements]))
        memory = {r: "SHARED" if v in self.loads else "REGISTER" for r, v in zip(reads, inputs)}
        memory |= {w: "GLOBAL" if o in stored else "REGISTER" for w, o in zip(writes, outputs)}
        ways = {store.store: store.via for store in self.plan.stores}
        via = [
            ways.get(self._label(stored[o].operation), "registers") for o in outputs if o in stored
        ]
        stage = ", stage=SHARED" if "tma" in via else ""
        self.written |= {self.names[stored[o].operation.desc] for o in outputs if o in stored}
        for o in outputs:
            if o in stored:
                self.labels.setdefault("store", []).append(self._label(stored[o].operation))
        self._note(inputs)
        mems = f"[{', '.join(memory[each] for each in both)}]"
        if self.products:
            like = f', like="product_{len(self.products)}"'
            self.instances.append(f'I("{name}", {name}, WARPGROUP, {mems}{like}{stage})')
            self.calls.append(name)
            return
        kinds = {r: v for r, v in zip(reads, inputs)} | {w: o for w, o in zip(writes, outputs)}
        typed = (
            f"{n}: Tensor[{element_of(kinds[n])}, {len(shape_of(kinds[n].type))}]" for n in both
        )
        self.leaves.append(
            f'@cy.inner("{name}", {said}writes="{" ".join(writes)}")\n'
            f"def {name}_over({', '.join(typed)}):\n    for _ in cy.prange(1):\n"
            f'        cy.launch("{name}", {", ".join(both)})'
        )
        above = mems.replace("REGISTER", "NONE")
        self.instances += [
            f'I("{name}_over", {name}_over, BLOCK, {above}, calls=["{name}"])',
            f'I("{name}", {name}, WARPGROUP, {mems}{stage})',
        ]
        self.calls.append(f"{name}_over")

    def _label(self, operation: Operation) -> str:
        label: Any = operation.attributes.get("label")
        return "" if label is None else label.data

    def _note(self, values: Sequence[SSAValue]) -> None:
        """Remember in which order loads are first wanted: in that order they are copied in."""
        for value in values:
            if value in self.loads:
                label = self._label(self.loads[value])
                if label not in self.labels.setdefault("load", []):
                    self.labels["load"].append(label)

    def _product(self, dot: tile.Dot, lines: list[str]) -> None:
        turned = isinstance(dot.b.owner, tile.Transpose) and dot.b.owner.value in self.loads
        b = dot.b.owner.value if isinstance(dot.b.owner, tile.Transpose) and turned else dot.b
        if len(shape_of(dot.a.type)) != 2 or b not in self.loads:
            raise refused(
                "this product", dot, "cy.lib has C += A B and A B^T of matrices, with B as loaded"
            )
        task, number = "mma_t" if turned else "mma", self.products.index(dot) + 1
        moved = {each.product: each.a for each in self.plan.operands}.get(self._label(dot))
        where = {"registers": "REGISTER", "shared": "SHARED"}
        a = where[moved] if moved else "SHARED" if dot.a in self.loads else "REGISTER"
        columns = ', split="columns"' if self.plan.split == "columns" else ""
        name = f"product_{number}"
        self.instances.append(f'*cy.lib.{task}("{name}", WGS={self.groups}, A={a}{columns})')
        self.calls.append(name)
        self._note([dot.a, b])
        self.labels.setdefault("product", []).append(self._label(dot))
        given = f"{self.of(dot.result)}, {self.of(dot.a)}, {self.of(b)}"
        lines.append(f'cy.launch("{task}", {given})')

    @property
    def groups(self) -> int:
        """How many warpgroups share a tile."""
        return (self.plan.consumers[0].warps if self.plan.specialized else self.plan.warps) // 4

    def _for(self, loop: scf.ForOp, lines: list[str], made: set[SSAValue]) -> None:
        start, stop = (self.sizes.get(each) for each in (loop.lb, loop.ub))
        step = self.sizes.get(loop.step)
        if start is None or stop is None or step is None or not step.value or step.value < 1:
            raise refused("this loop", loop, "cy.srange counts up from size to size by a number")
        inside = loop.body.block.args
        for begin, value in zip(loop.iter_args, inside[1:], strict=True):
            if isinstance(begin.owner, tile.Constant):
                self._clear(value, begin.owner, lines, made)
        variable = self.named(inside[0].name_hint or "k")
        trip = Symbol(variable, len(self.variables))
        bounds = f"{self.in_block(start)}, {self.in_block(stop)}, {step}"
        bounds = self.in_block(stop) if start == ZERO and step.value == 1 else bounds
        self.stops[trip] = stop
        self.variables[trip] = Symbol(variable, ("index", trip)), start, step.value
        self.sizes[inside[0]] = start + of_atom(trip) * step
        self.labels.setdefault("loop", []).append(self._label(loop))
        body: list[str] = []
        self.block(loop.body.block, body)
        lines.append(f"for {variable} in cy.srange({bounds}):")
        lines += [f"    {line}" for line in body]

    def _end(self, extents: str, offset: Expr | None, count: int) -> None:
        """Ask that a tensor ends where the loop over its blocks does, with a whole block."""
        if offset == ZERO:
            self.same[f"cy.same({extents}, {count})"] = None
        for trip, stop in self.stops.items():
            if offset is not None and trip in offset.symbols:
                names = {s: f"cy.size({s})" for s in stop.symbols if len(s.key) == 1}
                if render(stop, names) != extents:
                    self.same[f"cy.same({render(stop, names)}, {extents})"] = None
                self.same[f"cy.same({extents} % {count}, 0)"] = None

    # --- the whole ------------------------------------------------------------------------------

    def source(self, lines: Sequence[str]) -> str:
        """Return the text, with `lines` of the plan."""
        name = str(self.kernel.sym_name.data)
        arguments = list(self.kernel.body.block.args)
        kinds: list[str] = []
        for value, facts in zip(arguments, self.kernel.arguments, strict=True):
            more = f", {facts.data['divisible'].data}" if "divisible" in facts.data else ""
            rank = len(shape_of(value.type.block)) if isinstance(value.type, DescType) else 0
            kinds.append(f"{self.names[value]}: Tensor[{element_of(value)}, {rank}{more}]")
        named = [self.names[value] for value in arguments]
        inner = ", ".join(
            [
                f"{n}: Tensor[{self._element(p)}, {len(p.tile) - len(p.dropped)}]"
                for p, n in self.parameters.items()
            ]
            + [kind for kind, value in zip(kinds, arguments, strict=True) if value in self.numbers]
        )
        numbers = list(self.numbers.values())
        given = [*self.parameters.values(), *numbers]
        host = [*self.same]
        launched: list[str] = []
        for parameter, at in self.parameters.items():
            index = ["0" if i is None else render(i) for i in parameter.index]
            shape = [
                "None" if d in parameter.dropped
                else f"{parameter.argument}.shape[{d}]" if parameter.index[d] is None else str(n)
                for d, n in enumerate(parameter.tile)
            ]  # fmt: skip
            host.append(f"{at}_blocks = cy.blocks({parameter.argument}, ({', '.join(shape)},))")
            launched.append(f"{at}_blocks[{', '.join(index)}]")
        launch = f'cy.launch("{name}", {", ".join([*launched, *numbers])})'
        if grid := self._grid():
            host += [
                f"for {', '.join(grid)} in cy.prange({', '.join(grid.values())}):",
                f"    {launch}",
            ]
        else:
            host.append(launch)
        body = [
            f"size_{n} = cy.size({n})"
            for v, n in self.numbers.items()
            if _is_size(v) and f"size_{n}" in str(self.body)
        ]
        for parameter, at in self.parameters.items():
            if None in parameter.index:
                left = [d for d in range(len(parameter.tile)) if d not in parameter.dropped]
                body.append(
                    f"{at}_parts = cy.blocks({at}, ({', '.join(str(parameter.tile[d]) for d in left)},))"
                )
        block_writes = [n for p, n in self.parameters.items() if p.argument in self.written]
        block_reads = [n for n in given if n not in block_writes]
        reads = [n for n in named if n not in self.written]
        task = lambda what, r, w: (
            f'@cy.inner("{what}", reads="{" ".join(r)}", writes="{" ".join(w)}")'
        )
        fields = self._fields(lines)
        places = f"[{', '.join(['GLOBAL'] * len(arguments))}]"
        inside = f"[{', '.join(['GLOBAL'] * len(given))}]"
        entries = [
            f'I("host", {name}_host, HOST, {places}, calls=["block"], entry=True)',
            f'I("block", {name}_block, BLOCK, {inside}, calls={self.calls!r}{fields})',
            *self.instances,
        ]
        indent = "\n    "
        return "\n\n\n".join(
            [
                f'"""{name}, lifted from a tile kernel: its tasks, and what the planner decided."""\n\n'
                "import tawa.cypress as cy\nimport tawa.language as tl\n"
                "from tawa.cypress import *\n\nI = cy.Instance",
                *self.leaves,
                f"{task(name, reads, sorted(self.written))}\ndef {name}_host({', '.join(kinds)}):"
                f"{indent}{indent.join(host)}",
                f"{task(name, block_reads, block_writes)}\ndef {name}_block({inner}):"
                f"{indent}{indent.join([*body, *self.body])}",
                f"mapping = cy.Mapping([{indent}{(',' + indent).join(entries)},\n])\n",
            ]
        )

    def _element(self, parameter: _Parameter) -> str:
        values = {self.names[value]: value for value in self.kernel.body.block.args}
        return element_of(values[parameter.argument])

    def _grid(self) -> dict[str, str]:
        """Return the extents of the grid, by index: as many programs as blocks are stored."""
        found: dict[str, str] = {}
        for parameter in self.parameters:
            if parameter.argument in self.written:
                for dim, index in enumerate(parameter.index):
                    for axis, name in enumerate(_AXES):
                        if index == of_atom(Symbol(name, -1 - axis)):
                            extents = ceildiv(
                                key(extent(parameter.argument, dim)), parameter.tile[dim]
                            )
                            found[name] = render(extents)
        used = {
            s.name
            for e in self.sizes.values()
            for s in e.symbols
            if isinstance(s.key, int) and s.key < 0
        }
        if missing := sorted(used - set(found)):
            raise refused(
                f"program_id({_AXES.index(missing[0])})", None,
                "how many programs there are is told by the blocks that are stored",
            )  # fmt: skip
        return dict(sorted(found.items()))

    def _fields(self, lines: Sequence[str]) -> str:
        """Return the planner's decisions as fields of the block."""
        plan, found = self.plan, dict[str, Any]()
        loads = {self._label(load): self.names[load.desc] for load in self.loads.values()}
        if plan.specialized:
            found["specialize"] = True
        depths = {
            " ".join(dict.fromkeys(loads[each] for each in ring.payload)): ring.depth
            for ring in plan.arefs
            if set(ring.payload) <= set(loads)
        }
        if depths:
            found["pipeline"] = depths
        found |= {"persistent": True, "group": plan.group} if plan.persistent else {}
        found |= {"cluster": plan.cluster} if plan.cluster > 1 else {}
        found |= {"walk": plan.walk} if plan.walk != "forward" else {}
        tiles = plan.consumers[0].instances if plan.specialized else 1
        found |= {"tiles": tiles} if tiles > 1 else {}
        found |= {"turns": True} if tiles == 1 and plan.arrangement == "pingpong" else {}
        coarse = any(loop.schedule == "coarse" for loop in plan.loops)
        found |= {"schedule": "coarse"} if coarse else {}
        found |= {"plan": list(lines)} if lines else {}
        return "".join(f", {name}={value!r}" for name, value in found.items())

    def unsaid(self, program: Program) -> list[str]:
        """Return the lines of the plan that the fields of a mapping do not make."""
        moved = [call for call in calls(program.events.body) if call.a]
        events = list(_events(program.events.body))
        names = {
            "load": [e.slot.name for e in events if isinstance(e, CopyIn)],
            "store": [f"{e.name}_out" for e in events if isinstance(e, CopyOut)],
            "loop": [e.name for e in events if isinstance(e, For)],
            "product": [f"{call.spread.leaf.name}_{n}" for n, call in enumerate(moved, 1)],
        }
        operands = {each.product for each in self.plan.operands}
        labels = self.labels | {
            "product": [p for p in self.labels.get("product", []) if p in operands]
        }
        there: dict[str, str] = {}
        for what, found in labels.items():
            if len(found) != len(names[what]):
                raise refused(f"this {what}", None, f"{len(found)} are {len(names[what])} as tasks")
            there |= dict(zip(found, names[what], strict=True))
        known = "|".join(map(re.escape, sorted(there, key=len, reverse=True)))
        text = re.sub(rf"(?<![\w@#])({known})(?![\w@#])", lambda m: there[m[1]], str(self.plan))
        theirs = {
            subject(line): line for line in text.splitlines() if not line.startswith("declined")
        }
        ours = {subject(line): line for line in program.show("plan").splitlines()}
        unlike = [line for what, line in theirs.items() if ours.get(what) != line]
        return unlike + [what for what in ours if what not in theirs]


def _events(body: tuple[Event, ...]) -> Iterator[Event]:
    for event in body:
        yield event
        if isinstance(event, For):
            yield from _events(event.body)


def _before_reshape(store: tile.DescStore) -> SSAValue:
    owner = store.value.owner
    return owner.value if isinstance(owner, tile.Reshape) else store.value


def _top(operation: Operation, beside: Operation) -> Operation:
    """Return the operation of the block of another one that an operation stands in."""
    block = beside.parent
    while operation.parent is not block and (above := operation.parent_op()) is not None:
        operation = above
    return operation


def _within(value: SSAValue, run: Sequence[Operation]) -> bool:
    """Tell whether a value is made in a region of one of some operations."""
    owner = value.owner
    above = owner.parent_op() if isinstance(owner, Block) else owner
    return above is not None and (_top(above, run[0]) in run)


def _is_size(value: SSAValue) -> bool:
    return str(value.type).startswith(("i", "u"))


def lift(compiled: Any) -> str:
    """Return a kernel compiled from tile IR as the text of a program and its mapping.

    The text binds `mapping`; what it makes of it has the CUDA text of the kernel, names apart.
    Raises MappingError for what tasks have no words for.
    """
    kernel: tile.Kernel = compiled.asm.program("tile").clone()
    for operation in kernel.walk():  # sizes of tasks have no names, and the text shows some
        for result in operation.results:
            named = bool(shape_of(result.type))
            result.name_hint = result.name_hint if named else None
            if isinstance(operation, tile.ProgramId):
                result.name_hint = _AXES[operation.axis.data]
    plain = compile_ir(kernel, plan=str(compiled.plan))
    try:
        text = _Lift(kernel, plain.plan, False)
        program = read(text.source(()))
    except MappingError as error:
        if "past the end" not in error.what:
            raise
        text = _Lift(kernel, plain.plan, True)
        program = read(text.source(()))
    lines = text.unsaid(program)
    source = text.source(lines)
    program = read(source) if lines else program
    if not same_but_for_names(plain.asm.text("cuda"), program.compile().asm.text("cuda")):
        raise refused(
            str(kernel.sym_name.data), None, "what would be printed compiles to another text"
        )
    return source


def read(text: str) -> Program:
    """Return the program of a lifted text."""
    file = f"<lifted {sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": "lifted"}
    exec(compile(text, file, "exec"), space)
    return complete(space["mapping"])


_NAME = re.compile(r"((?:for |while )?[A-Za-z_][\w#]*@\d+(?:#\d+)?|[A-Za-z_]\w*)")


def same_but_for_names(one: str, other: str) -> bool:
    """Tell whether two texts of CUDA are one, byte for byte, but for what names are.

    A name after a type is declared in the braces around it; others are of the whole text.
    """
    first, second = _NAME.split(one), _NAME.split(other)
    if len(first) != len(second) or first[::2] != second[::2]:
        return False
    scopes: list[tuple[dict[str, str], dict[str, str]]] = [({}, {})]
    for n in range(1, len(first), 2):
        for brace in re.findall(r"[{}]", first[n - 1]):
            scopes = [*scopes, ({}, {})] if brace == "{" else scopes[:-1]
        declared = n > 1 and re.fullmatch(r"\*? +\*?", first[n - 1]) is not None
        there, back = scopes[-1] if declared else scopes[0]
        if not declared:
            found = [s for s in scopes if first[n] in s[0] or second[n] in s[1]]
            there, back = found[-1] if found else scopes[0]
        elif first[n] in there or second[n] in back:
            back.pop(there.pop(first[n], ""), None)
            there.pop(back.pop(second[n], ""), None)
        if (
            there.setdefault(first[n], second[n]) != second[n]
            or back.setdefault(second[n], first[n]) != first[n]
        ):
            return False
    return True
