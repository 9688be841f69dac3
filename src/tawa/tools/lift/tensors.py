"""A kernel's pointers as tensors, which tasks take: what is done to it before it is walked.

Accesses through pointers become accesses by descriptors, as the compiler's own pass has them, and
of one dimension too; descriptors that a kernel makes of its arguments become its arguments.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import SSAValue

from tawa.analysis.statements import READS, WRITES, name_of, name_statements
from tawa.ir import LABEL, tile
from tawa.ir.build.finish import facts_of
from tawa.ir.types import PtrType
from tawa.passes.descriptors import promote_vectors
from tawa.passes.simplify import simplify_kernel
from tawa.plan.plan import Plan
from tawa.tools.lift.leaf import refused


def with_tensors(kernel: tile.Kernel, plan: Plan) -> str:
    """Make tensors of a kernel's pointers, and return the text of its plan, which names them.

    Threads load by themselves what no ring of the plan brings. Arguments that nothing asks for any
    more are dropped. Raises MappingError for a pointer whose accesses are not blocks of one tensor.
    """
    block = kernel.body.block
    if not any(isinstance(each.type, PtrType) for each in block.args):
        return str(plan)
    name_statements(kernel)
    simplify_kernel(kernel)
    before = [(each, name_of(each)) for each in _accesses(kernel)]
    declined = {note.feature.rpartition(" ")[2]: note.reason for note in promote_vectors(kernel)}
    simplify_kernel(kernel)  # equal descriptors are one, and the address arithmetic is dead
    name_statements(kernel)
    rings = {n for ring in plan.arefs for each in (ring.payload, *ring.also) for n in each}
    labels: dict[str, str] = {}
    direct = ""
    for (old, label), new in zip(before, _accesses(kernel), strict=True):
        labels[called := name_of(new)] = label
        if isinstance(new, tile.DescLoad) and old is not new and rings.isdisjoint((label, called)):
            direct += f"load {label} via=registers\n"
        new.attributes[LABEL] = StringAttr(label)
    text = str(replace(plan, guards=())).replace(" via=copy_async", "")
    text = re.sub(r"(?<= )[^ \n]+(?= )", lambda word: labels.get(word[0], word[0]), text) + direct
    for value in [each for each in block.args if isinstance(each.type, PtrType)]:
        _describe(kernel, value, declined)
    if plan.specialized:  # distinct tensors of a program do not overlap
        text += "".join(f"guard {read}, {stored}\n" for read, stored in _apart(kernel))
    simplify_kernel(kernel)
    unused = [n for n, each in enumerate(block.args) if not list(each.uses)]
    for n in reversed(unused):
        block.erase_arg(block.args[n])
    facts = [each for n, each in enumerate(kernel.arguments) if n not in unused]
    kernel.attributes["arguments"] = ArrayAttr(facts)
    kernel.attributes.pop("guards", None)
    return text


def _accesses(kernel: tile.Kernel) -> list[Any]:
    return [each for each in kernel.walk() if isinstance(each, (*READS, *WRITES))]


def _apart(kernel: tile.Kernel) -> set[tuple[str, str]]:
    """Return the tensors that are loaded, each with one that is stored, by name."""
    arguments: list[SSAValue] = list(kernel.body.block.args)
    names = dict(zip(arguments, kernel.argument_names, strict=True))
    ends: list[set[str]] = [
        {names[each.desc] for each in kernel.walk() if isinstance(each, kind)}
        for kind in (tile.DescLoad, tile.DescStore)
    ]
    return {(read, stored) for read in ends[0] for stored in ends[1]}


def _describe(kernel: tile.Kernel, pointer: SSAValue, declined: dict[str, str]) -> None:
    """Make an argument of the descriptor that a kernel makes of a pointer."""
    block = kernel.body.block
    names, arguments = kernel.argument_names, list[SSAValue](block.args)
    at = arguments.index(pointer)
    made: list[Any] = [use.operation for use in pointer.uses]
    if not made:
        return
    blocks = all(isinstance(each, tile.MakeDesc) for each in made)
    if len(made) > 1 or not blocks:
        why = "; ".join(f"{name}: {reason}" for name, reason in declined.items())
        why = "its blocks are of several shapes, and a tensor has one" if blocks else why
        why = why or "elements or atomics take it, and a tensor is taken in blocks"
        raise refused(f"{names[at]}, a pointer", None, why)
    name = names[at].removesuffix("_ptr")
    name = names[at] if name in names else name
    value = block.insert_arg(made[0].result.type, at)
    value.name_hint = name
    made[0].result.replace_all_uses_with(value)
    made[0].detach()
    made[0].erase()
    block.erase_arg(block.args[at + 1])
    facts = list(kernel.arguments)
    facts[at] = facts_of(name, padding=made[0].padding.data)
    kernel.attributes["arguments"] = ArrayAttr(facts)
