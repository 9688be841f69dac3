"""What operators mean where a whole program is compiled: kernels, calls of the library, steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from tawa.axon.fuse import calls
from tawa.axon.fuse.needs import traced_in
from tawa.axon.fuse.trace import Cuts, Step, Traced
from tawa.axon.library import DIRECTED, reference, scheme_of
from tawa.axon.run.values import DTYPES, type_of
from tawa.axon.shapes.words import Source, Span
from tawa.axon.types.infer import Inference
from tawa.axon.types.kinds import DEFAULT, Arrow, Options, Product, Tensor, Type
from tawa.errors import AxonError
from tawa.integers import Expr


@cache
def meaning(name: str) -> Callable[..., Any]:
    """Return what an operator computes of traced arrays.

    It is what NumPy computes, where that goes by elements and rows or is a product, and a step of
    its own else.
    """
    plain = reference.meaning(name)

    def apply(*arguments: Any, **options: Any) -> Any:
        cuts = next((each.cuts for each in traced_in(arguments)), None)
        if cuts is None:
            return plain(*arguments, **options)
        if name != "conv":
            try:
                return plain(*arguments, **options)
            except AxonError:  # no kernel computes it
                pass
        return _step(cuts, name, arguments, options)

    return apply


def _step(cuts: Cuts, name: str, arguments: Any, options: dict[str, Any]) -> Any:
    """Return what an operator makes as a step; its type says what shape that has."""
    run: Any = partial(reference.meaning(name), **options)
    kind, plain, orders = result_of(name, arguments, options), False, None
    if name == "conv":
        w, x = arguments
        plain = w.dtype == x.dtype and x.dtype in calls.FLOATS and 3 <= x.ndim <= 5
        given = {key: value for key, value in options.items() if key != "kernel"}
        if plain:
            run = partial(calls.conv, **calls.conv_options(x.ndim, given))
            orders = calls.conv_orders

    def made(kind: Type, run: Callable[..., Any]) -> Traced:
        word = kind.word if isinstance(kind, Tensor) else ()
        shape = [size.value for size in word if isinstance(size, Expr) and size.value is not None]
        if not isinstance(kind, Tensor) or len(shape) < len(word):
            raise AxonError(
                f"`{name}` cannot be compiled",
                why="the size of what it gives depends on data",
                remedy="leave it outside of the function that is compiled",
            )
        element = kind.element if isinstance(kind.element, str) else DEFAULT[kind.element.kind]
        return cuts.step(Step(name, run, tuple(arguments), plain, orders), shape, DTYPES[element])

    if not isinstance(kind, Product):
        return made(kind, run)
    return tuple([made(item, partial(_item, run, i)) for i, item in enumerate(kind.items)])


def _item(run: Callable[..., Any], index: int, *given: Any) -> Any:
    return run(*given)[index]


def result_of(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Type:
    """Return the type of what an operator gives for arguments and options."""
    inference = Inference(scheme_of, lambda place, why: AxonError(f"`{name}`: {why}"))
    inference.begin()
    text = f" {arguments[0]}" if name in DIRECTED else ""
    place, scheme = Span(1, 1, 2), scheme_of(name + text)
    assert scheme is not None, "an operator has a type"
    source = Source(0, name, place, place)
    kind = inference.resolve(inference.instantiate(scheme, source))
    if isinstance(kind, Arrow) and isinstance(kind.argument, Options):
        for option, wanted, _ in kind.argument.fields:
            inference.unify(wanted, type_of(options[option], inference), source)
        kind = kind.result
    for argument in arguments:
        kind = inference.resolve(kind)
        assert isinstance(kind, Arrow), "an operator has as many arguments as it is given"
        inference.unify(kind.argument, type_of(argument, inference), source)
        kind = kind.result
    inference.release()
    inference.settle(final=True)
    return inference.full(kind)
