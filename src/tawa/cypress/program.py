"""`cy.program`: a task program under a mapping: checked, compiled, run, explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tawa.cypress import interpret, sequential
from tawa.cypress.depend import text, waits
from tawa.cypress.emit import Emitted, emit
from tawa.cypress.event import Events, warpgroups
from tawa.cypress.instantiate import instantiate, spread_of
from tawa.cypress.interpret import Waits
from tawa.cypress.lower import lower
from tawa.cypress.mapping import Mapping as Tasks
from tawa.cypress.plan import check_ceiling
from tawa.cypress.sequential import scalar
from tawa.cypress.size import evaluate, sizes_of
from tawa.cypress.tree import Node
from tawa.errors import ArgumentError
from tawa.integers.expressions import Symbol
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.straight import Recipes
from tawa.plan.plan import Plan
from tawa.runtime.arrays import host_array, is_array, is_tensor
from tawa.runtime.descriptors import TensorDescriptor
from tawa.runtime.dispatch import devices_of, runs_cubin
from tawa.runtime.dtypes import dtype_name
from tawa.runtime.tensors import written
from tawa.runtime.tile_function import function_of_ir
from tawa.target import H200, Target


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program: calling it with its tensors runs it, on the GPU or in the simulator.

    Every check but those of the compiler has passed. `mapping` is what it was made of; for another
    one, `cy.program(program.mapping.with_(...))`.
    """

    mapping: Tasks
    name: str
    tree: Node
    events: Events
    emitted: Emitted
    kernels: dict[tuple[Target, bool], Any]
    recipes: Recipes

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the tensors, in order."""
        return self.tree.instance.variant.parameters

    def compile(self, target: Target | None = None) -> Any:
        """Return the compiled kernel, for a target or an H200; raises what `compile_ir` raises."""
        return self._compiled(target or H200, cubin=True)

    def _compiled(self, target: Target, *, cubin: bool) -> Any:
        """Return the kernel for a target, without a `cubin` where none is asked for or there."""
        key = target, cubin or (target, True) in self.kernels
        if key not in self.kernels:
            kernel: Any = self.emitted.kernel
            function = function_of_ir(kernel, plan=self.emitted.plan)
            made = function.compile_for(target, cubin=cubin)
            took = made.resources
            check_ceiling(self.events, self.mapping, took.shared, took.buffers)
            block, groups = self.events.block, warpgroups(self.events)
            wanted = [(4 * groups, block.tiles)] * block.specialize
            if (found := [(r.warps, r.instances) for r in made.plan.consumers]) != wanted:
                raise block.error(
                    " leaves pipeline to the planner, which has no such roles",
                    why=f"(warps of a tile, tiles) are {found}, and the mapping says {wanted}",
                    remedy="write pipeline=3, or leave turns, or tiles, out",
                )
            self.kernels[key] = made
        return self.kernels[key]

    @property
    def plan(self) -> Plan:
        """What the mapping says of roles, rings, loops and stores, or what the planner chose."""
        given = self.emitted.plan
        return given if isinstance(given, Plan) else self.compile().plan

    def __call__(self, *tensors: Any) -> None:
        """Run on tensors: those of a GPU there, NumPy's in the simulator.

        What depends on types, shapes and strides alone is prepared at the first call with them.
        """
        self._count(tensors)
        shapes = [tensor.shape for tensor in self.tree.parameters]
        arrays = tuple(each for each, shape in zip(tensors, shapes, strict=True) if shape)
        numbers = tuple(each for each, shape in zip(tensors, shapes, strict=True) if not shape)
        self.recipes.run(arrays, numbers, lambda: self._recipe(tensors))
        for name, tensor in zip(self.parameters, tensors, strict=True):
            if name in self.tree.instance.variant.writes and is_tensor(tensor):
                written(tensor)

    def sequential(self, *tensors: Any) -> None:
        """Run task by task in NumPy, in order, as if no machine were there: the oracle."""
        arrays = self._bound(tensors)
        sequential.run(self.tree, self._on_host(arrays))

    def interpret(self, *tensors: Any, seed: int = 0, waits: Waits = waits) -> None:
        """Run the events in NumPy, in an order drawn from those that their waits allow.

        `waits` says what each event of a body waits for; a wait too few shows in some order.
        """
        arrays = self._on_host(self._bound(tensors))
        interpret.run(self.events, arrays, Random(seed), waits)

    def _on_host(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return arrays of NumPy; numbers are of the types that the program declares."""
        kinds = {tensor.name: tensor.element for tensor in self.tree.parameters if not tensor.shape}
        numbers = {name: scalar(arrays[name], kind) for name, kind in kinds.items()}
        return {
            name: host_array(each) for name, each in arrays.items() if name not in kinds
        } | numbers

    def _bound(self, tensors: tuple[Any, ...]) -> dict[str, Any]:
        """Return the tensors of a call by name, checked against the program and one another."""
        self._count(tensors)
        self._writer(tensors)[0].finish().run([each for each in tensors if is_array(each)])
        return dict(zip(self.parameters, tensors, strict=True))

    def _count(self, tensors: tuple[Any, ...]) -> None:
        if len(tensors) != len(self.parameters):
            raise ArgumentError(
                f"{self.name} got {len(tensors)} tensors",
                why=f"it takes {', '.join(self.parameters)}",
            )

    def _recipe(self, tensors: tuple[Any, ...]) -> Recipe:
        """Return the launch of a call, for tensors of the same types, shapes and strides."""
        writer, held = self._writer(tensors)
        named = dict(zip(self.parameters, tensors, strict=True))
        for tensor in self.tree.parameters:
            columns = int(named[tensor.name].shape[-1]) if tensor.shape else 0
            if short := -columns % (128 // tensor.element.primitive_bitwidth):
                raise ArgumentError(
                    f"{self.name}: rows of {tensor.name} end inside 16 bytes",
                    why=f"they are {columns} of {dtype_name(tensor.element)}, which TMA copies by"
                    " whole 16 bytes",
                    remedy=f"pad it to {columns + short} columns",
                )
        sizes = sizes_of(named)
        grid = tuple(evaluate(n, sizes) for n in self.events.grid) or (1,)
        given = (
            TensorDescriptor.from_tensor(held[each.tensor], each.block)
            if each.block
            else named[each.tensor]
            for each in self.emitted.arguments
        )
        cubin = any(map(runs_cubin, devices_of(named).values()))
        made = self._compiled(H200, cubin=cubin)
        writer.launch(Launch(made.function, grid, tuple(given)))
        return writer.finish()

    def _writer(self, tensors: tuple[Any, ...]) -> tuple[Writer, dict[str, Any]]:
        """Check types and extents; return a recipe that checks at each call which memory is apart,
        and the placeholders of its tensors.
        """
        arrays = dict(zip(self.parameters, tensors, strict=True))
        for tensor in self.tree.parameters:
            array = arrays[tensor.name]
            if not tensor.shape:
                real = tensor.element.is_floating() and isinstance(array, float)
                whole = isinstance(array, int) and not isinstance(array, bool)
                if not real and not (whole and (array >= 0 or tensor.element.is_floating())):
                    raise ArgumentError(
                        f"{self.name}: {tensor.name} is {array!r}, which is no such number",
                        why=f"it is declared as {dtype_name(tensor.element)}; integers count and"
                        " place, and are never negative",
                    )
                continue
            if not is_array(array):
                raise ArgumentError(f"{self.name}: {tensor.name} is {array!r}, which is no array")
            found, rank = dtype_name(array.dtype), len(array.shape)
            wanted = dtype_name(tensor.element)
            if found != wanted or rank != len(tensor.shape):
                raise ArgumentError(
                    f"{self.name}: {tensor.name} is of {found} with {rank} dimensions",
                    why=f"it is declared as {wanted} with {len(tensor.shape)}",
                )
        self.check_equal(sizes_of(arrays))
        held: dict[str, Any] = dict(
            symbols({n: each for n, each in arrays.items() if is_array(each)})
        )
        writer = Writer(held, next(iter(held.values())))
        for name in sorted(self.tree.instance.variant.writes):
            writer.apart(held[name], {n: each for n, each in held.items() if n != name}, name)
        return writer, held

    def check_equal(self, sizes: Mapping[Symbol, int]) -> None:
        """Raise ArgumentError where extents differ that the program says are the same."""
        for one, other in {pair for node in self.tree.walk() for pair in node.equal}:
            if (first := evaluate(one, sizes)) != (second := evaluate(other, sizes)):
                raise ArgumentError(
                    f"{self.name}: {one} is {first}, {other} is {second}",
                    why="the program says that they are the same",
                )

    def show(self, *stages: str) -> str:
        """Return stages as text: "mapping", "tree", "event", "plan", or one of the compiler's.

        Raises ArgumentError for a stage that there is not.
        """
        known = {
            "mapping": lambda: str(self.mapping),
            "tree": lambda: "\n".join(self._tree(self.tree, "")) + "\n",
            "event": lambda: text(self.events),
            "plan": lambda: str(self.plan),
        }
        compiled: Mapping[str, Any] = self.compile().asm if set(stages) - set(known) else {}
        if wrong := [stage for stage in stages if stage not in (*known, *compiled)]:
            stands = ", ".join((*known, *compiled))
            raise ArgumentError(f"{self.name} has no stage {wrong[0]!r}", why=f"it has {stands}")
        return "\n".join(known[s]() if s in known else str(compiled[s]) for s in stages)

    def __repr__(self) -> str:
        """Name the program and its tensors; `show("mapping")` is the rest."""
        return f"program {self.name}({', '.join(self.parameters)})"

    def explain(self) -> str:
        """Return the tree, spreads, events and memory, and the kernel's report."""
        lines = [f"program {self.name}({', '.join(self.parameters)})", *self._tree(self.tree, "  ")]
        lines += ["events", *(f"  {line}" for line in text(self.events).splitlines())]
        if removed := self.events.removed:
            lines += ["copies that are not made", *(f"  {each}" for each in removed)]
        used = sum(buffer.bytes for buffer in self.emitted.buffers)
        if isinstance(self.emitted.plan, Plan):
            lines.append(f"shared memory {used:,} of {self.mapping.ceiling:,} bytes")
            lines += [f"  {each.label}: {each.bytes:,}" for each in self.emitted.buffers]
        else:
            lines += ["chosen for cy.auto", *(f"  {line}" for line in str(self.plan).splitlines())]
        return "\n".join([*lines, str(self.compile())])

    def _tree(self, node: Node, pad: str) -> list[str]:
        instance = node.instance
        tensors = ", ".join(
            f"{t.name}: {[*t.shape]} in {memory}"
            for t, memory in zip(node.parameters, instance.mems, strict=True)
        )
        tunables = "".join(f", {name}={value}" for name, value in instance.tunables.items())
        what = f"{instance.variant.name}({tensors}{tunables})"
        lines = [f"{pad}{instance.name} at {instance.level}: {what}"]
        if not instance.variant.inner and instance.like:
            spread = spread_of(self.tree, node)
            steps = ", ".join(map(str, spread.operands[0].parts))
            lines.append(f"{pad}  spread like {instance.like}: {steps}")
        for _, child in node.children:
            lines += self._tree(child, pad + "  ")
        return lines


def complete(mapping: Tasks, name: str = "") -> Program:
    """Return the program of a mapping that says all; raises what `cy.program` raises."""
    tree = instantiate(mapping)
    called = name or mapping.entry.variant.task
    events = lower(tree)
    recipes = Recipes([tensor.name for tensor in tree.parameters if tensor.shape], "")
    return Program(mapping, called, tree, events, emit(called, events, mapping), {}, recipes)
