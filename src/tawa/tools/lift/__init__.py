"""From a plain tile kernel and its plan back to tasks and a mapping, as text: `tawa lift`.

The tile IR is walked once. Products become trees of the library, what stands between them leaves,
loads parts of tensors, loops `cy.srange`. The planner's decisions become fields of the instance
that HOST launches, and lines of the plan where the fields have no words for them. What is printed
is read and compiled again, and is given out only where the CUDA text is the same, byte for byte.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from tawa.cypress import event
from tawa.cypress.event import CopyIn, CopyOut, For, calls
from tawa.cypress.mapping import CEILING
from tawa.cypress.plan import subject
from tawa.cypress.program import Program, complete
from tawa.cypress.size import extent, key
from tawa.errors import MappingError
from tawa.integers.expressions import Symbol, ceildiv, of_atom, render
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.runtime.tile_function import function_of_ir
from tawa.target import H200
from tawa.tools.lift.leaf import refused
from tawa.tools.lift.tensors import with_tensors
from tawa.tools.lift.walk import AXES, Walk, label_of


def lift(compiled: Any) -> str:
    """Return a compiled kernel, by its tile IR and plan, as the text of a program and its mapping.

    The text binds `mapping`; what it makes of it has the CUDA text of the kernel, byte for byte,
    where integers that are no elements have no names: a program's sizes have none.
    Where a result depends on what lies past the end of a tensor, the program asks for calls in
    which nothing does. Raises MappingError for what tasks have no words for.
    """
    kernel = compiled.asm.program("tile").clone()
    plan = with_tensors(kernel, compiled.plan)
    # Tasks know their place first, and sizes have no names: CUDA text shows both.
    operations = list(kernel.walk())
    for operation in operations:
        for result in operation.results:
            result.name_hint = result.name_hint if shape_of(result.type) else None
    for operation in sorted(
        (each for each in operations if isinstance(each, tile.ProgramId)),
        key=lambda each: each.axis.data,
        reverse=True,
    ):
        operation.result.name_hint = AXES[operation.axis.data]
        operation.detach()
        kernel.body.block.insert_op_before(operation, kernel.body.block.first_op)
    plain = function_of_ir(kernel, plan=plan).compile_for(H200, cubin=False)
    used = sum(buffer.bytes for buffer in plain.resources.buffers)
    try:
        walk = Walk(kernel, plain.plan, used, whole=False)
        program = read(text_of(walk))
    except MappingError as error:
        if "past the end" not in error.what:
            raise
        walk = Walk(kernel, plain.plan, used, whole=True)
        program = read(text_of(walk))
    names = _names(walk, program)
    program = read(text_of(walk, names)) if names else program
    text = text_of(walk, names, lines := _unsaid(walk, program))
    program = read(text) if lines else program
    if plain.asm.text("cuda") != program.compile().asm.text("cuda"):
        why = "what would be printed compiles to another text"
        raise refused(kernel.sym_name.data, None, why)
    return text


def read(text: str) -> Program:
    """Return the program of a lifted text."""
    file = f"<lifted {sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": "lifted"}
    exec(compile(text, file, "exec"), space)
    return complete(space["mapping"])


def text_of(walk: Walk, names: Mapping[str, str] | None = None, lines: Sequence[str] = ()) -> str:
    """Return the text of a program, with names of its statements and lines of the plan."""
    name: str = walk.kernel.sym_name.data
    numbers = list(walk.numbers.values())
    kinds: dict[str, str] = {}
    for (argument, value), facts in zip(walk.arguments.items(), walk.kernel.arguments, strict=True):
        by = facts.data.get("divisible")
        kinds[argument] = walk.type_of(value).replace("]", f", {by.data}]" if by else "]")
    host, launched = [*walk.same], list[str]()
    for parameter, at in walk.parameters.items():
        argument = parameter.argument
        shape = [
            f"{argument}.shape[{d}]" if i is None else "None" if d in parameter.dropped else str(n)
            for d, (i, n) in enumerate(zip(parameter.index, parameter.tile, strict=True))
        ]
        host.append(f"{at}_blocks = cy.blocks({argument}, ({', '.join(shape)},))")
        index = ", ".join("0" if i is None else render(i) for i in parameter.index)
        launched.append(f"{at}_blocks[{index}]")
    launch = f'cy.launch("{name}", {", ".join([*launched, *numbers])})'
    grid = _grid(walk)
    head = f"for {', '.join(grid)} in cy.prange({', '.join(grid.values())}):"
    host += [head, f"    {launch}"] if grid else [launch]
    body = [
        f"size_{n} = cy.size({n})" for n in numbers if re.search(rf"\bsize_{n}\b", str(walk.body))
    ]
    inner: dict[str, str] = {}
    for parameter, at in walk.parameters.items():
        element = kinds[parameter.argument].partition(",")[0]
        inner[at] = f"{element}, {len(parameter.left)}]"
        if None in parameter.index:
            shape = ", ".join(str(parameter.tile[d]) for d in parameter.left)
            body.append(f"{at}_parts = cy.blocks({at}, ({shape},))")
    inner |= {n: kinds[n] for n in numbers}
    writes = [at for parameter, at in walk.parameters.items() if parameter.argument in walk.written]
    instances = [
        f'I("host", {name}_host, HOST, [{_times(kinds)}], calls=["block"], entry=True)',
        f'I("block", {name}_block, BLOCK, [{_times(inner)}], {_fields(walk, names or {}, lines)})',
        *walk.instances,
    ]
    ceiling = f", ceiling={walk.used}" if walk.used > CEILING else ""
    listed = "".join(f"    {each},\n" for each in instances)
    return "\n\n\n".join(
        [
            f'"""{name}, lifted: its tasks, and what the planner decided."""\n\n'
            "import tawa.cypress as cy\nimport tawa.language as tl\n"
            "from tawa.cypress import *\n\nI = cy.Instance",
            *walk.leaves,
            _variant(name, f"{name}_host", kinds, walk.written, host),
            _variant(name, f"{name}_block", inner, writes, [*body, *walk.body]),
            f"mapping = cy.Mapping([\n{listed}]{ceiling})\n",
        ]
    )


def _times(kinds: dict[str, str]) -> str:
    return ", ".join(["GLOBAL"] * len(kinds))


def _variant(task: str, name: str, kinds: dict[str, str], writes: Any, body: Sequence[str]) -> str:
    reads = " ".join(each for each in kinds if each not in writes)
    typed = ", ".join(f"{each}: {kind}" for each, kind in kinds.items())
    head = f'@cy.inner("{task}", reads="{reads}", writes="{" ".join(writes)}")'
    return "\n    ".join([f"{head}\ndef {name}({typed}):", *body])


def _grid(walk: Walk) -> dict[str, str]:
    """Return the extents of the grid, by index: as many programs as blocks are stored."""
    axes = {name: of_atom(Symbol(name, -1 - axis)) for axis, name in enumerate(AXES)}
    found: dict[str, str] = {}
    for parameter in walk.parameters:
        for dim, index in enumerate(parameter.index):
            for name in [n for n, axis in axes.items() if index == axis]:
                if parameter.argument in walk.written:
                    whole = key(extent(parameter.argument, dim))
                    found[name] = render(ceildiv(whole, parameter.tile[dim]))
    used = {s for size in walk.sizes.values() for s in size.symbols}
    for name, axis in axes.items():
        if axis.symbols & used and name not in found:
            why = "how many programs there are is told by the blocks that are stored"
            raise refused(f"program_id({AXES.index(name)})", None, why)
    return dict(sorted(found.items()))


def _fields(walk: Walk, names: Mapping[str, str], lines: Sequence[str]) -> str:
    """Return the planner's decisions as fields of the block."""
    plan = walk.plan
    tensors = {value: name for name, value in walk.arguments.items()}
    loaded = {label_of(load): tensors[load.desc] for load in walk.loads.values()}
    depths = {
        " ".join(dict.fromkeys(loaded[each] for each in ring.payload)): ring.depth
        for ring in plan.arefs
        if loaded.keys() >= {*ring.payload}
    }
    tiles = plan.consumers[0].instances if plan.specialized else 1
    coarse = any(loop.schedule == "coarse" for loop in plan.loops)
    fields: dict[str, Any] = {"calls": walk.calls, "specialize": plan.specialized}
    fields |= {"pipeline": depths} if depths else {}
    fields |= {"persistent": True, "group": plan.group} if plan.persistent else {}
    fields |= {"cluster": plan.cluster, "walk": plan.walk, "tiles": tiles}
    fields |= {"turns": tiles == 1 and plan.arrangement == "pingpong"}
    fields |= {"schedule": "coarse"} if coarse else {}
    fields |= {"plan": list(lines)} if lines else {}
    fields |= {"names": names} if names else {}
    unsaid = {"specialize": False, "cluster": 1, "walk": "forward", "tiles": 1, "turns": False}
    return ", ".join(f"{n}={value!r}" for n, value in fields.items() if unsaid.get(n) != value)


def _names(walk: Walk, program: Program) -> dict[str, str]:
    """Return what the kernel calls the statements of its program."""
    events = [each for each, _ in event.walk(program.events.body)]
    names = {
        "load": [each.slot.name for each in events if isinstance(each, CopyIn)],
        "store": [each.name for each in events if isinstance(each, CopyOut)],
        "loop": [each.name for each in events if isinstance(each, For)],
        "product": [call.product for call in calls(program.events.body) if call.product],
    }
    found: dict[str, str] = {}
    for what, labels in walk.labels.items():
        if len(labels) != len(names[what]):
            raise refused(f"each {what}", None, f"{len(labels)} become {len(names[what])}")
        found |= dict(zip(names[what], labels, strict=True))
    return {ours: theirs for ours, theirs in found.items() if ours != theirs}


def _unsaid(walk: Walk, program: Program) -> list[str]:
    """Return the lines of the kernel's plan that the fields of its mapping do not make."""
    kept = [line for line in str(walk.plan).splitlines() if not line.startswith("declined ")]
    theirs = {subject(line): line for line in kept}
    ours = {subject(line): line for line in program.show("plan").splitlines()}
    # Rings and roles stand in an order: where others stand among them, all are said anew.
    kinds = {what.partition(" ")[0] for what in theirs.keys() - ours.keys()}
    anew = {what for what in theirs if what.partition(" ")[0] in kinds}
    gone = [what for what in ours if what not in theirs or what in anew]
    return [*gone, *(line for what, line in theirs.items() if what in anew or ours[what] != line)]
