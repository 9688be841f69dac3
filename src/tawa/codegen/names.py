"""Names in generated text: the user's where there are any, each used once."""

from __future__ import annotations

import re

# Words a variable may not be called: C++, built-ins, and the names of the text's own making.
_CPP = (
    "alignas alignof and asm auto bool break case catch char class const constexpr continue "
    "default delete do double else enum explicit export extern false float for friend goto if "
    "inline int long mutable namespace new not operator or private protected public register "
    "return short signed sizeof static struct switch template this throw true try typedef "
    "typename union unsigned using virtual void volatile while xor"
)
_OWN = (
    "min max memory shared thread warp warpgroup lane u8 u16 u32 u64 i64 threadIdx blockIdx "
    "gridDim blockDim TensorMap printf r step block box part line"
)
RESERVED = frozenset(f"{_CPP} {_OWN}".split(" "))


def identifier(text: str) -> str:
    """Return `text` as a C identifier; empty where nothing of it can stay."""
    clean = re.sub(r"\W+", "_", text).strip("_")
    if not clean or clean[0].isdigit():
        return f"v{clean}" if clean else ""
    return clean


class Names:
    """Hands out names unique within one function, none of them in `taken`."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}  # of each stem the last number that was tried

    def child(self, *more: str) -> Names:
        """Return the names of a scope inside this one: nothing taken here is given out there."""
        return Names(frozenset(self._taken | set(more)))

    def fresh(self, wish: str, otherwise: str = "v") -> str:
        """Return `wish` as an identifier, numbered where it is taken."""
        stem = identifier(wish) or otherwise
        name, number = stem, self._numbers.get(stem, 1)
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._numbers[stem] = number
        self._taken.add(name)
        return name
