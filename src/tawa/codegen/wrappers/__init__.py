"""The table of device functions: one thin function an instruction, emitted only if used.

`FIXED` are those without parameters; the makers (`tma_load`, `wgmma` ...) give the others.
"""

from __future__ import annotations

from types import ModuleType

from tawa.codegen.wrappers import arithmetic, barriers, memory, tensor_cores, tma
from tawa.codegen.wrappers.core import Wrapper


def _fixed(module: ModuleType) -> dict[str, Wrapper]:
    return {item.name: item for item in vars(module).values() if isinstance(item, Wrapper)}


FIXED: dict[str, Wrapper] = {
    name: wrapper
    for module in (barriers, tma, tensor_cores, memory, arithmetic)
    for name, wrapper in _fixed(module).items()
}

# Stems of names that makers give out: a variable may be called none of them.
_MADE = ("pin", "mulhi", "shuffle_xor", "shuffle_from", "policy_evict_first", "policy_evict_last")

NAMES = frozenset((*FIXED, *_MADE))
"""Names of functions that a variable of generated text must not hide."""
