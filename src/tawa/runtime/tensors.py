"""What stands in the way of a kernel that takes a tensor of torch by its address.

A kernel reads and writes memory; what torch does around its operations (gradients, tracing,
batching, fake tensors) it does not see. So a call looks first, and refuses by name what it would
compute wrong or not at all. torch is never imported here: a tensor that exists was made by it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeVar, cast

from tawa.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])

_FOLDER = Path(__file__).resolve().parent.parent
# Folders of this package whose code Dynamo must run and not read. All but `torch`, whose layers it
# may look into.
_OPAQUE = ("kernels", "runtime", "simulator", "frontend", "passes", "plan", "codegen", "ir")
DYNAMO = "torch._dynamo.trace_rules"
"""The module that is loaded once `torch.compile` may look at frames."""
_GENERATED = "<tawa "
"""How the file names of generated code begin."""

# Modes of torch under which a program is recorded and not run, by the names of their keys.
_RECORDERS = ("FAKE", "PROXY", "FUNCTIONAL")

OPAQUE = MappingProxyType(
    {
        "_torchdynamo_disable": True,
        "_torchdynamo_disable_msg": "tawa's kernels run, they are not traced; for one graph use"
        " torch.ops.tawa, or tawa.torch.op for a kernel of your own",
    }
)
"""The attributes by which torch's compiler knows a function that it must not read
(`torch.compiler.disable` sets the same).
"""


def opaque(function: F) -> F:
    """Mark a function that `torch.compile` calls, with a graph break, and does not read."""
    for name, value in OPAQUE.items():
        setattr(function, name, value)
    return function


@opaque
def keep_out() -> None:
    """Tell Dynamo, where it is loaded, to run the frames of kernels and launches as they are."""
    rules: Any = sys.modules.get(DYNAMO)
    skipped: list[str] | None = getattr(rules, "SKIP_DIRS", None)
    if skipped is not None and _GENERATED not in skipped:
        skipped += [_GENERATED, *(f"{(_FOLDER / part).as_posix()}/" for part in _OPAQUE)]
        rules._recompile_re()


def undisturbed(function: F) -> F:
    """Return a function that does the same with Dynamo off: no frame below it is looked at.

    What compiles, prepares or simulates has thousands of frames, also of other packages.
    """

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
        if frames is None:
            return function(*args, **keywords)
        before = frames.set_eval_frame(None)
        try:
            return function(*args, **keywords)
        finally:
            frames.set_eval_frame(before)

    return cast("F", opaque(call))


def _find(path: str, otherwise: Any) -> Any:
    """Return what torch has at a path of attributes; `otherwise` where a stand-in has it not."""
    found: Any = sys.modules.get("torch")
    for name in path.split("."):
        found = getattr(found, name, None)
    return otherwise if found is None else found


def _nothing(*_: Any) -> None:
    """Take the place of a function that a stand-in for torch has not."""


def probes() -> Mapping[str, Callable[..., Any]]:
    """Return the functions by which generated code asks torch, each a tenth of a microsecond:

    `__modes`: how many dispatch modes are on; `__levels`: the transform of torch.func that runs, or
    None; `__recording`: whether gradients are recorded; `__dual`: whether tangents may be.
    """
    forward = _find("autograd.forward_ad", SimpleNamespace(_current_level=-1))
    return {
        "__dual": lambda: forward._current_level >= 0,
        "__modes": _find("_C._len_torch_dispatch_stack", _nothing),
        "__levels": _find("_C._functorch.peek_interpreter_stack", _nothing),
        "__recording": _find("is_grad_enabled", _nothing),
    }


def refuse_recorders() -> None:
    """Raise `ArgumentError` where torch records or transforms a program and does not run it."""
    asked = probes()
    if asked["__levels"]() is not None:
        raise ArgumentError(
            "a kernel is called inside a transform of torch.func (vmap, grad, functionalize)",
            why="a kernel reads memory, and tensors inside a transform have none of their own",
            remedy="call it outside, or an operator of torch.ops.tawa, which refuses or takes it",
        )
    if not asked["__modes"]():
        return
    keys = _find("_C._TorchDispatchModeKey", None)
    active = _find("_C._get_dispatch_mode", _nothing)
    for name in _RECORDERS:
        key = getattr(keys, name, None)
        if key is not None and (mode := active(key)) is not None:
            raise ArgumentError(
                f"a kernel is called under {type(mode).__name__}",
                why="torch records a program there (make_fx, functionalize, export), and a launch"
                " leaves nothing to record",
                remedy="call an operator of torch.ops.tawa, or make one with tawa.torch.op",
            )


def refuse_lost(names: Sequence[str], arrays: Sequence[Any]) -> None:
    """Raise `ArgumentError` where a call's result would come without a gradient that is asked for.

    `arrays` are the arguments that are arrays, of any library, or None.
    """
    refuse_recorders()
    if carrying := [n for n, a in zip(names, arrays) if has_tangent(a)]:
        raise ArgumentError(
            f"{', '.join(carrying)} carr{'ies' if len(carrying) == 1 else 'y'} a tangent",
            why="this call has no gradient in forward mode: its result would carry none",
            remedy="take the gradient in reverse mode, by the function of tawa.torch",
        )
    if not probes()["__recording"]():
        return
    asking = [n for n, a in zip(names, arrays) if getattr(a, "requires_grad", False)]
    if asking:
        raise ArgumentError(
            f"{', '.join(asking)} require{'s' if len(asking) == 1 else ''} a gradient",
            why="this call records none: what is before it in the model would not be trained",
            remedy="call the function of tawa.torch, which has gradients, or this one under"
            " torch.no_grad()",
        )


def has_tangent(array: Any) -> bool:
    """Tell whether a tensor carries a tangent of torch's forward mode."""
    if not probes()["__dual"]() or not isinstance(array, _find("Tensor", ())):
        return False
    return _find("autograd.forward_ad.unpack_dual", _nothing)(array).tangent is not None


def check_storage(tensor: Any) -> None:
    """Raise `ArgumentError`, which names the kind, for a tensor without plain memory of its own."""
    kind: Any = cast("Any", type(tensor))
    plain, strided, wrapped = _storage(sys.modules.get("torch"))
    if plain is not None and kind.__torch_dispatch__ is not plain:
        raise _without_storage(f"a {kind.__name__}", "a class of its own decides what it means")
    if getattr(tensor, "is_nested", False):
        raise _without_storage("a nested tensor", "its rows have lengths of their own")
    layout = getattr(tensor, "layout", strided)
    if layout is not strided:
        raise _without_storage(f"a tensor of the layout {layout}", "a kernel takes strides")
    if getattr(tensor, "device", None) is not None and tensor.device.type == "meta":
        raise _without_storage("a meta tensor", "it has a shape and no data")
    for test, name in wrapped:
        if test(tensor):
            raise _without_storage(name, "it stands for a tensor and has no memory of its own")
    for test, name, why in (
        ("is_neg", "a view whose sign is turned when it is read", "its memory holds the negative"),
        ("_is_zerotensor", "a tensor that torch knows to be zeros", "it has none"),
    ):
        if getattr(tensor, test, _nothing)():
            raise _without_storage(name, why)
    if not tensor.data_ptr() and tensor.numel():
        raise _without_storage("a tensor that gave its storage back", "it has none at the moment")


@lru_cache(maxsize=4)
def _storage(_: Any) -> tuple[Any, Any, tuple[tuple[Callable[..., Any], str], ...]]:
    """Return what `check_storage` asks of torch, looked up once for each module of that name."""
    wrapped = _find("_C._functorch.is_functorch_wrapped_tensor", _nothing)
    functional = _find("_is_functional_tensor", _nothing)
    return (
        _find("_C._disabled_torch_dispatch_impl", None),
        _find("strided", None),
        (
            (wrapped, "a tensor inside vmap or grad"),
            (functional, "a tensor inside functionalize"),
        ),
    )


def _without_storage(what: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"{what} cannot be an argument of a kernel",
        why=f"a kernel reads memory: {why}",
        remedy="pass a dense tensor: .to_dense(), .clone(), .to_local(), .resolve_neg()",
    )


def written(array: Any) -> None:
    """Tell autograd that a tensor was written in place, so that no gradient uses its old value."""
    sys.modules["torch"].autograd.graph.increment_version(array)


PRECISIONS = ("ieee", "tf32")
"""How a library call multiplies float32."""


def precision_of(array: Any, given: str) -> str:
    """Return how float32 is multiplied: as `given`, else as torch says for its tensors, else
    "ieee". Of arrays of other types nothing depends on it, and it is "ieee".
    """
    if given:
        if given not in PRECISIONS:
            raise ArgumentError(
                f"input_precision is {given!r}", why=f"one of {', '.join(PRECISIONS)}, or none"
            )
        return given
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(array, "dtype", None) is not torch.float32:
        return "ieee"
    try:
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    except RuntimeError:  # it was set through torch.backends, which the old name does not read
        return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def casts() -> bool:
    """Tell whether autocast is on, for some device."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch._C._is_any_autocast_enabled()


def cast_automatically(*arrays: Any) -> tuple[Any, ...]:
    """Return tensors of torch as autocast wants a product's operands; all others as they are."""
    torch, first = sys.modules["torch"], arrays[0]
    if not isinstance(first, torch.Tensor) or not torch.is_autocast_enabled(first.device.type):
        return arrays
    kind = torch.get_autocast_dtype(first.device.type)
    wide = (torch.float16, torch.bfloat16, torch.float32)
    return tuple(
        each.to(kind) if isinstance(each, torch.Tensor) and each.dtype in wide else each
        for each in arrays
    )
