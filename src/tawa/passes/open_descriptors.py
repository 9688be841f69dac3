"""Purpose: descriptors that control flow chooses or carries are handed on as what they are made of.

Before -> after::

    %d = scf.if %c {                       %p, %m = scf.if %c {
      scf.yield %a                           scf.yield %a_base, %a_rows
    } else {                           ->  } else {
      %b = tile.make_desc %q, ..             scf.yield %q, %b_rows
      scf.yield %b                         }
    }                                      %d = tile.make_desc %p, %m, 64, %s, 1

Extents and strides that are one constant on every way stay constants, as the last stride, 1, does.
The same for descriptors that a loop carries.
Requires: tile IR. Ensures: every descriptor that is accessed or asked is an argument of the kernel
or a `tile.make_desc`, and only arguments are asked; those that are made here depend on the program,
so that their accesses go through pointers.
Declines: never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, SSAValue

from tawa.analysis.hardware import padding_of
from tawa.analysis.statements import CONTROL
from tawa.errors import DescriptorError
from tawa.ir import place_of, tile
from tawa.ir.types import DescType, PtrType, i64
from tawa.ir.walk import all_of, passed_on, terminator
from tawa.passes.fold import integer_of
from tawa.passes.lower.emit import (
    Emitter,
    append_operands,
    replace,
    widen_for,
    widen_if,
    widen_while,
)
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

Control: TypeAlias = scf.ForOp | scf.IfOp | scf.WhileOp


@dataclass(frozen=True, slots=True)
class _Form:
    """What a descriptor that is handed on is on every way: the numbers of its extents and strides
    that are known (None: they are handed on), and what stands outside it.
    """

    kind: DescType
    numbers: tuple[int | None, ...]
    padding: str

    @property
    def kinds(self) -> list[Attribute]:
        """The types of what is handed on."""
        open_numbers = [i64 for number in self.numbers if number is None]
        return [PtrType(self.kind.element), *open_numbers]


_Forms: TypeAlias = dict[SSAValue, _Form]


def open_descriptors(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Hand on base, extents and strides instead of descriptors."""
    forms = {value: _form(value) for value in _handed(kernel)}
    if forms:
        _open_block(kernel.body.block, forms)
    for asked in all_of(kernel, tile.DescExtent):
        _answer(asked)
    return ()


def _handed(kernel: tile.Kernel) -> Iterator[SSAValue]:
    """Give the descriptors that loops and branches hand on."""
    for operation in all_of(kernel, *CONTROL):
        blocks = [block for region in operation.regions for block in region.blocks]
        for value in (*operation.results, *(item for block in blocks for item in block.args)):
            if isinstance(value.type, DescType):
                yield value


def _form(value: SSAValue) -> _Form:
    """Return what is the same of all descriptors that a value may be."""
    kind = value.type
    assert isinstance(kind, DescType), "descriptors are handed on"
    if kind.window is not None:
        raise DescriptorError(
            "a descriptor of windows is chosen or carried by control flow",
            place=next((place_of(use.operation) for use in value.uses), None),
            why="its blocks are loaded by TMA alone, through a map that the host makes of one"
            " argument",
            remedy="load in each branch, from the argument itself",
        )
    rank = len(kind.block_shape)
    seen: dict[SSAValue, None] = {}
    waiting = [value]
    while waiting:
        if (source := waiting.pop()) not in seen:
            seen[source] = None
            waiting += passed_on(source)
    made = [source for source in seen if not passed_on(source)]
    numbers = [_number([source.owner for source in made], place) for place in range(2 * rank - 1)]
    return _Form(kind, (*numbers, 1), padding_of(made[0]))


def _number(makers: Sequence[object], place: int) -> int | None:
    """Return an extent or stride that is one constant in all descriptors."""
    found = {
        integer_of(maker.operands[1 + place]) if isinstance(maker, tile.MakeDesc) else None
        for maker in makers
    }
    return found.pop() if len(found) == 1 else None


# --- loops and branches -------------------------------------------------------------------------


def _open_block(block: Block, forms: _Forms) -> None:
    for operation in list(block.ops):
        if isinstance(operation, CONTROL):
            _open(operation, forms)


def _open(operation: Control, forms: _Forms) -> None:
    """Open what an operation takes, what stands inside it, then what it gives.

    The descriptors themselves are still handed on, for nothing: `simplify` drops them.
    """
    given = [forms.get(result) for result in operation.results]
    results = {place: form for place, form in enumerate(given) if form is not None}
    match operation:
        case scf.ForOp():
            initial = _parts_of(operation.iter_args, results, Emitter.before(operation))
            wide: Control = widen_for(operation, initial)
            _enter(wide.body.block, forms, {place + 1: form for place, form in results.items()})
            _hand_on(wide.body.block, results)
        case scf.IfOp():
            kinds = [kind for form in results.values() for kind in form.kinds]
            wide = widen_if(operation, kinds) if kinds else operation
            for region in wide.regions:
                for block in region.blocks:
                    _enter(block, forms, {})
                    _hand_on(block, results)
        case scf.WhileOp():
            wide = _open_while(operation, forms, results)
    made = Emitter.after(wide)
    parts = iter(wide.results[len(given) :])
    for place, form in results.items():
        wide.results[place].replace_all_uses_with(_make(made, form, parts))


def _open_while(loop: scf.WhileOp, forms: _Forms, results: dict[int, _Form]) -> scf.WhileOp:
    """Open a loop whose test and body both take what it carries."""
    initial = _parts_of(loop.arguments, results, Emitter.before(loop))
    wide = widen_while(loop, initial)
    for region in wide.regions:
        _enter(region.block, forms, results)
    _hand_on(wide.before_region.block, results, before=1)  # after the condition
    _hand_on(wide.after_region.block, results)
    return wide


def _enter(block: Block, forms: _Forms, taken: dict[int, _Form]) -> None:
    """Make the descriptors that a block takes, by place, from its last arguments; open the rest."""
    count = sum(len(form.kinds) for form in taken.values())
    parts = iter(block.args[len(block.args) - count :])
    emitter = Emitter.at_start(block)
    for place, form in taken.items():
        block.args[place].replace_all_uses_with(_make(emitter, form, parts))
    _open_block(block, forms)


def _hand_on(block: Block, given: dict[int, _Form], before: int = 0) -> None:
    """Add to what a block yields the parts of its descriptors, `before` operands further on."""
    if given:
        last = terminator(block)
        parts = _parts_of(last.operands[before:], given, Emitter.before(last))
        append_operands(last, parts)


def _parts_of(
    values: Sequence[SSAValue], given: dict[int, _Form], emitter: Emitter
) -> Sequence[SSAValue]:
    """Ask the descriptors among `values`, by place, for what is handed on."""
    asked: list[SSAValue] = []
    for place, form in given.items():
        desc, rank = values[place], len(form.kind.block_shape)
        base = emitter.made(tile.DescExtent, [desc], form.kinds[0], what="base", axis=0)
        asked.append(base)
        numbers = zip(product(("extent", "stride"), range(rank)), form.numbers)
        for (what, axis), number in numbers:
            if number is None:
                asked.append(emitter.made(tile.DescExtent, [desc], i64, what=what, axis=axis))
    return asked


def _make(emitter: Emitter, form: _Form, parts: Iterator[SSAValue]) -> SSAValue:
    """Make a descriptor from the next of `parts`."""
    base = next(parts)
    numbers = [
        next(parts) if number is None else emitter.constant(number, i64) for number in form.numbers
    ]
    rank = len(form.kind.block_shape)
    return emitter.put(
        tile.MakeDesc.make(
            base, numbers[:rank], numbers[rank:], results=[form.kind], padding=form.padding
        )
    ).result


def _answer(asked: tile.DescExtent) -> None:
    """Replace what is asked of a descriptor that was made by what it was made of."""
    made = asked.desc.owner
    if not isinstance(made, tile.MakeDesc):
        return
    match asked.what.data:
        case "base":
            found = made.base
        case "extent":
            found = made.extents[asked.axis.data]
        case _:
            found = made.strides[asked.axis.data]
    replace(asked, [Emitter.before(asked).cast(found, asked.result.type)])
