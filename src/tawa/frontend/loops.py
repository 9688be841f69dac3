"""Loops: `scf.for`, `scf.while`, and loops that are unrolled here.

A loop carries the variables that its body assigns and that are read at the top of a later iteration
or after the loop. Their types must not change; what no iteration changes is not carried.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from xdsl.ir import Block

from tawa.errors import TypeMismatch
from tawa.frontend.calls import Iterations
from tawa.frontend.context import Binding, Context
from tawa.frontend.expressions import evaluate
from tawa.frontend.liveness import assigned
from tawa.frontend.operators import static_items, truth
from tawa.ir.build.regions import Carried, bounds, end_for, end_while
from tawa.ir.build.values import (
    Const,
    Tensor,
    Value,
    describe,
    ir_scalar,
    leaves,
    name_value,
    rebuild,
    same_form,
)

Body = Callable[[Context, Sequence[ast.stmt]], None]


def run_for(c: Context, loop: ast.For, body: Body) -> None:
    """Compile a `for` loop; raises UnsupportedSyntax, TypeMismatch."""
    if loop.orelse:
        c.builder.place = c.frame.source.place(loop.orelse[0])
        raise c.unsupported("else after a loop", remedy="write it after the loop")
    over = evaluate(c, loop.iter)
    match over:
        case Const(value=Iterations(static=False) as iterations):
            if not isinstance(loop.target, ast.Name):
                raise c.unsupported("a loop over a range has one variable")
            _run_range(c, loop, loop.target.id, iterations, body)
        case _:
            _unroll(c, loop, static_items(c, over), body)


def _unroll(c: Context, loop: ast.For, items: Sequence[Value], body: Body) -> None:
    """Compile the body once for each item; the variable stays a constant."""
    for item in items:
        match loop.target:
            case ast.Name(id=name):
                c.bind(name, item, loop.target)
            case ast.Tuple(elts=names) if len(parts := _parts(item)) == len(names):
                for target, part in zip(names, parts):
                    if isinstance(target, ast.Name):
                        c.bind(target.id, part, target)
            case _:
                raise c.unsupported(f"the loop's variables do not fit {describe(item)}")
        body(c, loop.body)


def _parts(item: Value) -> tuple[Value, ...]:
    return getattr(item, "items", ())


def _run_range(c: Context, loop: ast.For, target: str, iterations: Iterations, body: Body) -> None:
    over = bounds(c.builder, iterations.start, iterations.end, iterations.step)
    names = _carried_names(c, loop)
    before, place = dict(c.frame.names), c.builder.place
    block = Block(arg_types=[ir_scalar(over.kind)])
    name_value(block.args[0], target)
    carried = _enter(c, names, assigned(loop.body), block)
    with c.builder.into(block):
        index = over.index(c.builder, Tensor(block.args[0]))
        c.bind(target, index, loop.target)
        _run_inside(c, loop.body, body)
    after = c.frame.names
    c.builder.place = place
    _yielded(c, loop, names, before, after, carried)
    results = end_for(c.builder, over, block, carried, iterations.hints)
    _leave(c, loop, names, before, results)
    c.frame.names.pop(target, None)
    c.frame.ended[target] = index.type
    c.frame.gone[target] = f"it is the index of the loop at line {place.line}, which has ended"


def _carried_names(c: Context, loop: ast.For | ast.While) -> list[str]:
    needed = c.frame.live.head.get(loop, frozenset()) | c.frame.live.after[loop]
    wanted = assigned(loop.body) & needed
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
        wanted -= {loop.target.id}
    return [name for name in c.frame.names if name in wanted]


def _enter(c: Context, names: Sequence[str], changed: frozenset[str], *blocks: Block) -> Carried:
    """Add block arguments for the carried variables and bind them to those of the last block. Other
    variables that the body has `changed` have no value at its top.
    """
    initial = [leaf for name in names for leaf in leaves(c.frame.names[name].value)]
    arguments = [
        [block.insert_arg(leaf.type, len(block.args)) for block in blocks] for leaf in initial
    ]
    c.frame.names = _without(c.frame.names, changed - set(names))
    _bind_arguments(c, names, [group[-1] for group in arguments])
    return Carried(initial, arguments, [])


def _without(names: dict[str, Binding], gone: frozenset[str]) -> dict[str, Binding]:
    return {name: binding for name, binding in names.items() if name not in gone}


def _bind_arguments(c: Context, names: Sequence[str], arguments: Sequence[object]) -> None:
    source = iter(arguments)
    for name in names:
        binding = c.frame.names[name]
        value = rebuild(binding.value, source)  # pyright: ignore[reportArgumentType]
        for leaf in leaves(value):
            name_value(leaf, name)
        c.frame.names[name] = Binding(value, binding.place)


def _run_inside(c: Context, statements: Sequence[ast.stmt], body: Body) -> None:
    outer, c.frame.loop = c.frame.loop, c.builder.place
    body(c, statements)
    c.frame.loop = outer


def _yielded(
    c: Context,
    loop: ast.For | ast.While,
    names: Sequence[str],
    before: dict[str, Binding],
    after: dict[str, Binding],
    carried: Carried,
) -> None:
    """Check that the body keeps the types, and note what it hands to the next iteration."""
    for name in names:
        if name not in after:
            raise c.builder.mismatch(
                f"{name} may have no value at the end of this loop's body",
                why=c.frame.gone.get(name, ""),
                remedy="assign it on every path",
            )
        old, new = before[name], after[name]
        if not same_form(old.value, new.value):
            raise _changes_type(c, loop, name, old, new)
        carried.yielded.extend(leaves(new.value))


def _changes_type(
    c: Context, loop: ast.For | ast.While, name: str, old: Binding, new: Binding
) -> TypeMismatch:
    line = c.frame.source.place(loop).line
    c.builder.place = new.place
    return c.builder.mismatch(
        f"{name} changes its type in the loop at line {line}: {describe(old.value)} before, "
        f"{describe(new.value)} after an iteration",
        why=f"line {old.place.line} makes it {describe(old.value)}, line {new.place.line} "
        f"{describe(new.value)}; a variable has one type in all iterations",
        remedy="start with a value of the final type, or cast with `.to(...)` at the end of "
        "the body",
    )


def _leave(
    c: Context,
    loop: ast.For | ast.While,
    names: Sequence[str],
    before: dict[str, Binding],
    results: Sequence[object],
) -> None:
    """Bind the carried variables to the loop's results, and forget what only the body knew."""
    inner = c.frame.names
    c.frame.names = _without(before, assigned(loop.body) - set(names))
    _bind_results(c, names, results, inner)
    line = c.frame.source.place(loop).line
    for name in assigned(loop.body) - set(before):
        c.frame.gone[name] = (
            f"it is assigned only inside the loop at line {line}, which may run no iteration"
        )


def _bind_results(
    c: Context, names: Sequence[str], values: Sequence[object], inner: dict[str, Binding]
) -> None:
    source = iter(values)
    for name in names:
        binding = c.frame.names[name]
        value = rebuild(binding.value, source)  # pyright: ignore[reportArgumentType]
        for leaf in leaves(value):
            name_value(leaf, name)
        c.frame.names[name] = Binding(value, inner[name].place)


def run_while(c: Context, loop: ast.While, body: Body) -> None:
    """Compile a `while` loop; raises UnsupportedSyntax, TypeMismatch."""
    if loop.orelse:
        c.builder.place = c.frame.source.place(loop.orelse[0])
        raise c.unsupported("else after a loop", remedy="write it after the loop")
    names = _carried_names(c, loop)
    before, place = dict(c.frame.names), c.builder.place
    test, block = Block(), Block()
    carried = _enter(c, names, assigned(loop.body), block, test)
    with c.builder.into(test):
        condition = truth(c, evaluate(c, loop.test))
    if isinstance(condition, bool):
        if condition:
            raise c.unsupported(
                "a loop that never ends",
                why="its condition is a constant, and a kernel has no break",
                remedy="write the condition of leaving into the while",
            )
        c.frame.names = before
        return
    _bind_arguments(c, names, [group[0] for group in carried.arguments])
    with c.builder.into(block):
        _run_inside(c, loop.body, body)
    after = c.frame.names
    c.builder.place = place
    _yielded(c, loop, names, before, after, carried)
    results = end_while(c.builder, condition, test, block, carried)
    _leave(c, loop, names, before, results)
