"""Global memory: which arguments a kernel writes, and what the proof makes of reads of them."""

from __future__ import annotations

from xdsl.ir import Operation

from tawa.analysis.memory import roots_of
from tawa.ir import hopper, tile
from tawa.simulator.proof.decode import Decoder, Step, compute, run_steps

Roots = frozenset[int] | None


def written_roots(kernel: tile.Kernel) -> Roots:
    """Return the numbers of the arguments the kernel writes through; None: unknown ones."""
    found: frozenset[int] = frozenset()
    for operation in kernel.walk():
        roots = write_roots(operation)
        if roots is None:
            return None
        found |= roots
    return found


def write_roots(operation: Operation) -> Roots:
    """Return the arguments an operation writes through, none for one that writes nothing."""
    match operation:
        case tile.Store() | tile.Atomic() | tile.CompareExchange():
            return roots_of(operation.pointer)
        case hopper.TmaStore():
            return map_roots(operation)
        case _:
            return frozenset()


def map_roots(operation: hopper.TmaStore | hopper.TmaLoad) -> Roots:
    """Return the arguments behind the tensor map of a copy."""
    owner = operation.map.owner
    return roots_of(owner.desc) if isinstance(owner, hopper.TensorMap) else None


def may_change(operation: tile.Load | tile.Atomic | tile.CompareExchange, written: Roots) -> bool:
    """Tell whether two reads of one address may give different values."""
    if not isinstance(operation, tile.Load):
        return True
    if operation.volatile is not None and bool(operation.volatile.value.data):
        return True
    roots = roots_of(operation.pointer)
    return roots is None or written is None or bool(roots & written)


def global_rule(decoder: Decoder, operation: Operation) -> Step | None:
    """A store or atomic by threads: its registers must be at rest, its result is a new unknown."""
    check = decoder.touch(decoder, operation)
    if not any(result in decoder.needed for result in operation.results):
        return check
    step = compute(decoder, operation)
    return step if check is None else Step(run_steps((check, step)), True)
