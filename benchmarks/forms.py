"""Kernels as users write them, each one source compiled by tawa and by Triton.

    python benchmarks/forms.py                    (all of them)
    python benchmarks/forms.py --section products --only 'int4|gradients'
    python benchmarks/forms.py --dry              (compiles everything, times nothing)

Kernels without a product have GB/s of what they read and write, the others TFLOP/s; gradients of
attention count five products, of which a causal mask takes half. tawa's plan is its planner's, for
kernels without products also with each number of warps below; Triton is timed with every number of
warps and stages below. The best of each counts. How figures are made is said in harness.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import form_block_cases
import form_cases
import form_row_cases
import gemm
import peers
from form_cases import Array, Form, Outputs, Set
from triton_peers import TritonPeer

SECTIONS = {
    "memory": form_row_cases.memory,
    "products": lambda: chain(form_cases.products(), form_block_cases.products()),
}
# Warps and stages that Triton may choose from.
HINTS = ((4, 2), (4, 3), (4, 4), (8, 2), (8, 3), (8, 4))
ROW_WISHES = ((4, 2), (8, 2), (16, 2))


class Tawa(peers.Tawa):
    """The form through tawa, as its planner has it."""

    def stand_ins(self, case: Form) -> Set:
        """Return arrays without data in the places of the form's."""
        import tawa

        def placeholder(each: Any) -> Any:
            if not isinstance(each, Array):
                return each
            return tawa.array(each.shape, {"e4m3": "f8e4m3"}.get(each.dtype, each.dtype))

        tensors = {name: placeholder(each) for name, each in case.arguments.items()}
        return Set(tensors, Outputs([], None))

    def variants(self, case: Form) -> list[dict[str, int]]:
        """Return the planner's own choice; for kernels without roles also numbers of warps."""
        rows = [{"num_warps": warps} for warps, _ in ROW_WISHES]
        return [{}, *(rows if case.group == "memory" else [])]

    def launches(self, case: Form, variant: dict[str, int], inputs: Set) -> list[Any]:
        from tawa.kernels.prepare import Launch

        arguments = tuple(case.passed(inputs.tensors))
        return [Launch(case.kernel, case.grid, arguments, {**case.constants, **variant})]

    def spell(self, variant: dict[str, int]) -> str:
        return f"{variant['num_warps']} warps" if variant else "planned"


class Triton(TritonPeer):
    """The same source through Triton."""

    name = "triton"

    def stand_ins(self, case: Form) -> Set:
        return case.make_inputs(most=1)[0]

    def variants(self, case: Form) -> Iterator[tuple[str, Any]]:
        for warps, stages in ROW_WISHES if case.group == "memory" else HINTS:
            yield f"{warps} warps, {stages} stages", (warps, stages)

    def launch(self, case: Form, variant: Any, inputs: Set) -> tuple[Any, Any, Any, Any]:
        from twin import twin

        warps, stages = variant
        hints = {"num_warps": warps, "num_stages": stages}
        options = {**case.constants, **hints}
        return twin(case.kernel), case.grid, case.passed(inputs.tensors), options


def cases_of(sections: str, dtypes: str, only: str) -> list[Form]:
    """Return the forms of comma-separated sections whose label matches `only`."""
    names = list(SECTIONS) if sections == "all" else sections.split(",")
    found = [form for name in names for form in SECTIONS[name]()]
    return [form for form in found if re.search(only, form.label)]


if __name__ == "__main__":
    suite = gemm.Suite(
        "Forms of kernels",
        __doc__ or "",
        ["all", *SECTIONS],
        ("all",),
        ("all", "all"),
        cases_of,
        lambda _: [Tawa(), Triton()],
    )
    sys.exit(gemm.main(suite))
