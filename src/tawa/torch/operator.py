# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`op`: a kernel of the user's as an operator of torch, in three lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS

from tawa.errors import ArgumentError
from tawa.runtime.decorators import wrap
from tawa.runtime.jit import Launchable
from tawa.runtime.written import stored_by, stored_to
from tawa.torch.dispatch import refuse_tangents

_SCALARS = {"int": "i32", "SymInt": "i32", "float": "f32", "bool": "i1"}


def op(
    schema: str,
    kernel: Any,
    *,
    grid: Any,
    out: Mapping[str, Callable[..., Tensor]] | None = None,
    **constants: Any,
) -> Callable[..., Any]:
    """Make an operator of torch of a kernel, and return it; it is also torch.ops.NAMESPACE.NAME.

    Args:
        schema: "mine::add(Tensor x, Tensor y, Tensor out, SymInt n)", the kernel's parameters that
            are no constants, in their order, in torch's words: Tensor, Tensor?, SymInt, float,
            bool.
        kernel: under `tawa.jit` or `triton.jit`, tuned or not.
        grid: a tuple, or a function of the meta-parameters.
        out: of parameters that the operator makes and returns, functions of its other arguments
            that make them: {"out": lambda x, y, n: torch.empty_like(x)}. They are not in `schema`'s
            arguments then, but named in it all the same.
        constants: the kernel's constants and options.

    Which arguments a call changes is read from the kernel: torch is told so, and no schema can say
    otherwise. The operator has a fake kernel, so that `torch.compile(fullgraph=True)` and
    `torch.export` take it. Without a formula it refuses gradients; with `out`, `add.operator.
    register_autograd` of torch gives it one. Raises `ArgumentError` where schema and kernel differ.
    """
    launchable = wrap(kernel)
    text = schema if "->" in schema else f"{schema} -> ()"
    try:
        parsed = torch._C.parse_schema(text)
    except RuntimeError as error:
        raise ArgumentError(
            f"{schema!r} is no schema", why=str(error).splitlines()[0], remedy="see the docstring"
        ) from error
    arguments = {each.name: str(each.type) for each in parsed.arguments}
    # torch prints a SymInt as an int.
    symbolic = set(re.findall(r"SymInt\s+(\w+)", text))
    made = dict(out or {})
    _check_names(launchable, parsed.name, arguments, constants, made)
    kinds = {name: _kind(kind) for name, kind in arguments.items()}
    written = stored_to(launchable, kinds, constants)
    if missing := [name for name in made if name not in written]:
        raise ArgumentError(
            f"{parsed.name}: out names {', '.join(missing)}",
            why=f"the kernel stores to {', '.join(sorted(written)) or 'nothing'}",
        )
    changed = [name for name in arguments if name in written and name not in made]
    given = [name for name in arguments if name not in made]
    declared = ", ".join(
        f"{_spell(arguments[name], name in symbolic, place if name in changed else None)} {name}"
        for place, name in enumerate(given)
    )
    returns = ", ".join("Tensor" for _ in made)
    returned = returns if len(made) == 1 else f"({returns})"
    seen: set[tuple[Any, ...]] = set()

    def run(*args: Any) -> Any:
        values = dict(zip(given, args))
        results = {name: make(*args) for name, make in made.items()}
        ordered = [{**values, **results}[name] for name in arguments]
        kinds = tuple(each.dtype if isinstance(each, Tensor) else type(each) for each in ordered)
        if kinds not in seen:
            stored = stored_by(launchable.compile(*ordered, **constants))
            if not stored <= {*changed, *made}:
                raise ArgumentError(
                    f"{parsed.name} stores to {', '.join(sorted(stored))} for these types",
                    why=f"the operator says that it changes {', '.join(changed) or 'nothing'}",
                )
            seen.add(kinds)
        launchable[grid](*ordered, **constants)
        return _one(list(results.values()))

    def fake(*args: Any) -> Any:
        return _one([make(*args) for make in made.values()])

    before = OPDEFS.get(parsed.name)
    operator = torch.library.custom_op(
        parsed.name, run, mutates_args=changed, schema=f"({declared}) -> {returned}"
    )
    operator.register_fake(fake)
    refuse = _no_gradient(parsed.name)
    if changed:  # torch takes no formula for such, and would lose the gradient in silence
        cast("Any", operator)._setup_context_fn = refuse
    else:
        operator.register_autograd(refuse, setup_context=refuse)
    refuse_tangents(operator)

    # What Dynamo guards: a graph that was compiled before is looked at again.
    state = cast("Any", operator).state = SimpleNamespace(current=True)
    if (older := getattr(before, "state", None)) is not None:
        older.current = False

    @torch.compiler.assume_constant_result
    def is_current() -> bool:
        return OPDEFS.get(parsed.name) is operator  # torch lets a name be defined anew

    def call(*args: Any, **keywords: Any) -> Any:
        if not (state.current and is_current()):
            raise ArgumentError(
                f"{parsed.name} is another operator by now",
                why="its name was defined again, and torch would call what has it now",
                remedy="give each operator a name of its own, or call the newer one",
            )
        if changed and torch.is_grad_enabled():
            asking = [each for each in (*args, *keywords.values()) if isinstance(each, Tensor)]
            if any(each.requires_grad for each in asking):
                refuse()
        return operator(*args, **keywords)

    call.__name__ = parsed.name.rpartition("::")[2]
    call.__doc__ = f"{parsed.name}({declared}) -> {returned}"
    cast("Any", call).operator = operator
    return call


def _one(results: Sequence[Tensor]) -> Any:
    return None if not results else results[0] if len(results) == 1 else tuple(results)


def _kind(kind: str) -> str:
    """Return what an argument is to a kernel: "" for an array, else its type."""
    return "" if "Tensor" in kind else _SCALARS.get(kind.removesuffix("?"), "i32")


def _spell(kind: str, symbolic: bool, place: int | None) -> str:
    if symbolic:
        return "SymInt"
    if place is None:
        return kind
    return f"Tensor(a{place}!){'?' if 'Optional' in kind or kind.endswith('?') else ''}"


def _no_gradient(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ArgumentError(
            f"no gradient of {name}",
            why="its kernel says nothing about one",
            remedy="make it with out=..., and call .operator.register_autograd(backward), or call"
            " it under torch.no_grad()",
        )

    return refuse


def _check_names(
    kernel: Launchable,
    name: str,
    arguments: Mapping[str, str],
    constants: Mapping[str, Any],
    made: Mapping[str, Any],
) -> None:
    wanted = [each for each in kernel.arg_names if each in arguments]
    unknown = [each for each in (*arguments, *made) if each not in kernel.arg_names]
    absent = [each for each in made if each not in arguments]
    if unknown or wanted != list(arguments) or absent:
        raise ArgumentError(
            f"{name} has the arguments {', '.join(arguments)}",
            why=f"the kernel's parameters are {', '.join(kernel.arg_names)}",
            remedy="name those that are no constants, in their order, those that out makes too",
        )
    twice = [each for each in constants if each in arguments]
    if twice:
        raise ArgumentError(f"{name}: {', '.join(twice)} is an argument and a constant")
