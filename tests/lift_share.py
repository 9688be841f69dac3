"""Which of the tests' kernels can be said as tasks: `python tests/lift_share.py` prints a table.

Each is lifted from its tile IR under its pins, or refused; a refusal has a name and a reason.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator

from codegen_kernels import ATTENTION, ORDINARY, attention
from library_kernels import LIBRARY
from lower_kernels import CASES
from proof_kernels import codegen_products, of_launch
from tawa import compile_ir
from tawa.errors import TawaError
from tawa.frontend import build
from tawa.ir import tile
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.tools.lift import lift
from tawa.tools.lift.tensors import with_tensors
from tawa.tools.lift.walk import Walk


def kernels() -> Iterator[tuple[str, tile.Kernel, Pins]]:
    """The tile IR of kernels written in Python, with the pins they are tested under."""
    for name, case in CASES.items():
        yield name, build(case.function, case.signature, case.options), case.pins
    plain = [*codegen_products(), ("codegen attention", attention, ATTENTION)]
    plain += [(f"codegen {name}", *kernel) for name, kernel in ORDINARY.items()]
    for name, function, signature in plain:
        yield name, build(function, signature, {}), Pins()
    for name, item in LIBRARY.items():
        _, make, pins = of_launch(item.launches(None)[item.index])
        yield name, make(), pins


def outcome(kernel: tile.Kernel, pins: Pins) -> str:
    """Return "lifted", or why not."""
    try:
        walked = kernel.clone()
        with_tensors(walked, Plan())
        Walk(walked, Plan(), 0, whole=False)  # most are refused before anything is compiled
        lift(compile_ir(kernel, plan=pins))
    except TawaError as refusal:
        return f"{refusal.what}: {refusal.why}"
    return "lifted"


def kind(why: str) -> str:
    """Return a refusal without the names of one kernel."""
    return re.sub(r"^\S+, a pointer", "a pointer", why)


def main(*only: str) -> None:
    counts: Counter[str] = Counter()
    for name, kernel, pins in kernels():
        if only and name not in only:
            continue
        said = outcome(kernel, pins)
        counts[kind(said)] += 1
        print(f"{name:50} {said}", flush=True)
    for said, count in counts.most_common():
        print(f"{count:4} {said}")
    print(f"{counts['lifted']} of {counts.total()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
