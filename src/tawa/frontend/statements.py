"""Statements of a kernel: assignments, branches, returns; loops are in `loops`.

An early return under a run-time `if` makes the rest of the function part of the branches that do
not return: tile IR has no jumps. So `run` takes the statements that are still to come.

Loops: `scf.for`, `scf.while`, and loops that are unrolled here.

A loop carries the variables that its body assigns and that are read at the top of a later iteration
or after the loop. Their types must not change; what no iteration changes is not carried.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from copy import copy

from xdsl.ir import Block

from tawa.errors import Place, TypeMismatch
from tawa.frontend.calls import Iterations
from tawa.frontend.context import Binding, Context
from tawa.frontend.expressions import as_variable, declared, evaluate, named_by
from tawa.frontend.liveness import assigned, returns, writes
from tawa.frontend.names import Builtin
from tawa.frontend.operators import binary, static_items, truth
from tawa.ir.build.operations.program import device_assert, static_assert
from tawa.ir.build.regions import Carried, bounds, emit_if, end_for, end_while
from tawa.ir.build.values import (
    Const,
    Tensor,
    Value,
    describe,
    ir_scalar,
    known,
    leaves,
    name_value,
    rebuild,
    same_form,
)

_REFUSED: dict[type[ast.stmt], tuple[str, str]] = {
    ast.FunctionDef: ("def", "move it to the module and use @tawa.jit"),
    ast.ClassDef: ("class", "define it outside"),
    ast.Try: ("try", "a kernel has no exceptions; test the condition with if"),
    ast.With: ("with", "a kernel has no context managers"),
    ast.Break: ("break", "use a while loop with a condition"),
    ast.Continue: ("continue", "put the rest of the body under an if"),
    ast.Raise: ("raise", "use tl.static_assert or tl.device_assert"),
    ast.Delete: ("del", "leave it out: values end with their last use"),
    ast.Import: ("import", "import at the top of the module"),
    ast.ImportFrom: ("import", "import at the top of the module"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "pass the value as an argument"),
    ast.Match: ("match", "use if and elif"),
}


def run(c: Context, statements: Sequence[ast.stmt]) -> Value | None:
    """Compile statements in order; returns what they return, or None when they run to the end."""
    pending = list(statements)
    while pending:
        statement = pending.pop(0)
        c.builder.place = c.frame.source.place(statement)
        c.builder.fresh.clear()
        match statement:
            case ast.Return():
                return _return(c, statement)
            case ast.If():
                condition = truth(c, evaluate(c, statement.test))
                if isinstance(condition, bool):
                    pending[:0] = statement.body if condition else statement.orelse
                elif returns([statement]) is None:
                    _branch(c, statement, condition)
                else:
                    return _branch_with_return(c, statement, condition, pending)
            case ast.For():
                run_for(c, statement, run_body)
            case ast.While():
                run_while(c, statement, run_body)
            case _:
                _simple(c, statement)
    return None


def run_body(c: Context, statements: Sequence[ast.stmt]) -> None:
    """Compile the body of a loop, which may not return."""
    if (found := returns(statements)) is not None:
        c.builder.place = c.frame.source.place(found)
        raise c.unsupported(
            "return inside a loop",
            why="a loop runs all its iterations",
            remedy="keep the result in a variable, or use a while loop with a condition",
        )
    run(c, statements)


def _simple(c: Context, statement: ast.stmt) -> None:
    """Compile a statement without statements inside."""
    match statement:
        case ast.Assign():
            value = evaluate(c, statement.value)
            for target in statement.targets:
                _assign(c, target, value)
        case ast.AnnAssign():
            _annotated(c, statement)
        case ast.AugAssign():
            _augmented(c, statement)
        case ast.Expr():
            evaluate(c, statement.value)
            c.finish_statement()
        case ast.Assert():
            condition = evaluate(c, statement.test)
            message = evaluate(c, statement.msg) if statement.msg else Const("")
            check = static_assert if isinstance(condition, Const) else device_assert
            check(c, condition, message)
        case ast.Pass():
            pass
        case _:
            name, remedy = _REFUSED.get(type(statement), (type(statement).__name__, ""))
            raise c.unsupported(
                f"{name} cannot stand in a kernel",
                why="a kernel has assignments, if, for, while, return and assert",
                remedy=remedy,
            )


def _return(c: Context, statement: ast.Return) -> Value:
    if statement.value is None and c.frame.made:
        return c.frame.names[c.frame.made].value
    value = evaluate(c, statement.value) if statement.value else Const(None)
    # As in Triton, a helper's numbers are typed when they leave it. What the expression made stays
    # fresh: the variable that takes the result names it.
    return as_variable(c, value)


def _assign(c: Context, target: ast.expr, value: Value) -> None:
    fresh = set(c.builder.fresh)
    for name, part in named_by(c, target, value):
        item = as_variable(c, part, name.id)
        c.builder.fresh |= fresh
        c.bind(name.id, item, name)
        c.finish_statement(name.id, item)


def _annotated(c: Context, statement: ast.AnnAssign) -> None:
    constant = is_constexpr(c, statement.annotation)
    if statement.value is None:
        if constant:
            name = declared(ast.unparse(statement.target))
            c.frame.names[name] = Binding(Const(None), c.builder.place)
        return
    value = evaluate(c, statement.value)
    if not constant:
        _assign(c, statement.target, value)
        return
    if not isinstance(statement.target, ast.Name):
        raise c.builder.mismatch(
            f"{ast.unparse(statement.target)} is declared tl.constexpr",
            why="a constexpr is a name for a value",
            remedy="drop the annotation",
        )
    # As in Triton a value of run time may have the annotation, and is what it is.
    c.bind(statement.target.id, known(value), statement.target)


def is_constexpr(c: Context, annotation: ast.expr) -> bool:
    """Tell whether an annotation is tl.constexpr."""
    text = ast.unparse(annotation)
    if "constexpr" not in text:
        return False
    if isinstance(annotation, ast.Constant):
        return True
    return evaluate(c, annotation) == Const(Builtin("constexpr"))


def _augmented(c: Context, statement: ast.AugAssign) -> None:
    if not isinstance(statement.target, ast.Name | ast.Attribute):
        _assign(c, statement.target, Const(None))
        return
    load = copy(statement.target)
    load.ctx = ast.Load()
    one, other = evaluate(c, load), evaluate(c, statement.value)
    _assign(c, statement.target, binary(c, statement.op, one, other))


def _branch(c: Context, statement: ast.If, condition: Tensor) -> None:
    """Compile an `if` decided at run time: variables that are read later are joined."""
    before = dict(c.frame.names)
    blocks, after = (Block(), Block()), list[dict[str, Binding]]()
    place = c.builder.place
    for block, body in zip(blocks, (statement.body, statement.orelse)):
        c.frame.names = dict(before)
        with c.builder.into(block):
            run(c, body)
        after.append(c.frame.names)
    c.builder.place = place
    then, other = after
    written = assigned([statement])
    wanted = written & c.frame.live.after[statement]
    names = [name for name in then if name in wanted and name in other]
    for name in names:
        _check_join(c, name, then[name], other[name])
    sides = [[leaf for n in names for leaf in leaves(side[n].value)] for side in after]
    results = iter(emit_if(c.builder, condition, (blocks[0], sides[0]), (blocks[1], sides[1])))
    # What nothing reads later is not joined: it has the value of neither side.
    c.frame.names = {name: b for name, b in before.items() if name not in written}
    for name in names:
        value = rebuild(then[name].value, results)
        _name_results(name, value)
        c.frame.names[name] = Binding(value, then[name].place)
    for name in wanted - set(names):
        c.frame.names.pop(name, None)
        c.frame.gone[name] = f"it is assigned only where the `if` at line {place.line} goes one way"


def _name_results(name: str, value: Value) -> None:
    for leaf in leaves(value):
        name_value(leaf, name)


def _check_join(c: Context, name: str, then: Binding, other: Binding) -> None:
    if same_form(then.value, other.value):
        return
    raise c.builder.mismatch(
        f"{name} is {describe(then.value)} or {describe(other.value)} after this if",
        why=f"line {then.place.line} makes it {describe(then.value)}, line {other.place.line} "
        f"{describe(other.value)}; which one is known only at run time",
        remedy="cast so that both have one type",
    )


def _branch_with_return(
    c: Context, statement: ast.If, condition: Tensor, rest: Sequence[ast.stmt]
) -> Value:
    """Compile an `if` with a return inside together with all that comes after it."""
    if c.frame.loop is not None:
        run_body(c, [statement])
    before, place = dict(c.frame.names), c.builder.place
    blocks, values = (Block(), Block()), list[Value]()
    for block, body in zip(blocks, (statement.body, statement.orelse)):
        c.frame.names = dict(before)
        with c.builder.into(block):
            values.append(run(c, [*body, *rest]) or Const(None))
    c.builder.place = place
    then, other = values
    if not same_form(then, other):
        raise _returns_differ(c, place, then, other)
    results = emit_if(
        c.builder, condition, (blocks[0], list(leaves(then))), (blocks[1], list(leaves(other)))
    )
    return rebuild(then, iter(results))


def _returns_differ(c: Context, place: Place, then: Value, other: Value) -> TypeMismatch:
    return c.builder.mismatch(
        f"{c.frame.source.name} returns {describe(then)} or {describe(other)}",
        why=f"which way the `if` at line {place.line} goes is known only at run time",
        remedy="return values of one type everywhere",
    )


# --- loops ----------------------------------------------------------------------------------------


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
    _rebind(c, names, [group[-1] for group in arguments], c.frame.names)
    return Carried(initial, arguments, [])


def _without(names: dict[str, Binding], gone: frozenset[str]) -> dict[str, Binding]:
    return {name: binding for name, binding in names.items() if name not in gone}


def _rebind(
    c: Context, names: Sequence[str], values: Sequence[object], bound: Mapping[str, Binding]
) -> None:
    """Bind variables to arguments or results of a loop, as if where they are `bound`."""
    source = iter(values)
    for name in names:
        value = rebuild(c.frame.names[name].value, source)  # pyright: ignore[reportArgumentType]
        for leaf in leaves(value):
            name_value(leaf, name)
        c.frame.names[name] = Binding(value, bound[name].place)


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
    _rebind(c, names, results, inner)
    line = c.frame.source.place(loop).line
    for name in assigned(loop.body) - set(before):
        c.frame.gone[name] = (
            f"it is assigned only inside the loop at line {line}, which may run no iteration"
        )


def run_while(c: Context, loop: ast.While, body: Body) -> None:
    """Compile a `while` loop; raises UnsupportedSyntax, TypeMismatch."""
    if loop.orelse:
        c.builder.place = c.frame.source.place(loop.orelse[0])
        raise c.unsupported("else after a loop", remedy="write it after the loop")
    if writes(loop.test):
        raise c.unsupported(
            "an assignment in the condition of a loop",
            remedy="assign before the loop and at the end of its body",
        )
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
    _rebind(c, names, [group[0] for group in carried.arguments], c.frame.names)
    with c.builder.into(block):
        _run_inside(c, loop.body, body)
    after = c.frame.names
    c.builder.place = place
    _yielded(c, loop, names, before, after, carried)
    results = end_while(c.builder, condition, test, block, carried)
    _leave(c, loop, names, before, results)
