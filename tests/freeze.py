"""What the compiler makes, frozen: a hash of the CUDA text and of the plan of each kernel.

`python tests/freeze.py` writes `tests/frozen/kernels.txt` anew; `python tests/freeze.py --check`
names what differs. A change that is to leave generated code as it is keeps the table as it is.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from proof_kernels import KERNELS
from tawa.codegen.generate import generate

TABLE = Path(__file__).parent / "frozen" / "kernels.txt"
_IDIOMS = (
    *("corners", "inductor", "language", "libraries", "products", "recurrent", "scalars"),
    *("servers", "serving", "sparse", "templates", "training"),
)


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def kernel_hash(name: str) -> str:
    """The hash of a kernel of `proof_kernels`: its plan decides its text."""
    return digest(generate(KERNELS[name]()).text)


def _idiom_hash(item: object) -> str:
    placed, named = item.call(item.arguments())  # type: ignore[attr-defined]
    compiled = item.kernel.compile(*placed, grid=item.grid, **named)  # type: ignore[attr-defined]
    return f"{digest(compiled.asm.text('cuda'))} {digest(str(compiled.plan))}"


def idioms() -> Iterator[tuple[str, Callable[[], str]]]:
    """Each idiom: its text, and the plan that was chosen."""
    from idiom_case import Idiom

    for module in _IDIOMS:
        for value in vars(importlib.import_module(f"idiom_{module}")).values():
            if isinstance(value, dict):
                for name, item in value.items():
                    if isinstance(item, Idiom):
                        yield f"idiom {name}", partial(_idiom_hash, item)


def everything() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in KERNELS:
        yield name, partial(kernel_hash, name)
    yield from idioms()


def frozen() -> dict[str, str]:
    """The table as it is written down."""
    lines = TABLE.read_text().splitlines()
    return dict(line.split("  ", 1)[::-1] for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    found = {name: make() for name, make in everything()}
    if not check:
        TABLE.write_text("".join(f"{value}  {name}\n" for name, value in found.items()))
        return 0
    before = frozen()
    unlike = [name for name in {**before, **found} if before.get(name) != found.get(name)]
    print("\n".join(unlike) or f"{len(found)} kernels are as they were")
    return bool(unlike)


if __name__ == "__main__":
    raise SystemExit(main())
