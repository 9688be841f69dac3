"""Who takes part in the GEMM benchmark: tawa's kernels, torch, cuBLASLt, QuACK, Triton.

A peer makes *offers* for a case: ways to compute it, each bound to inputs later. The harness times
all offers of a peer and keeps its best, so that nobody is judged by a bad tile size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from harness import OUTPUT, Call, Candidate, Case, Inputs, Missing

Bind = Callable[[Inputs], Call]


@dataclass(frozen=True, slots=True)
class Offer:
    """A way to compute a case; `warm` compiles it ahead, in any process.

    `bound`: it computes something else, whose time is what any peer's is compared with.
    """

    label: str
    bind: Bind
    warm: Callable[[Any], object] | None = None
    bound: bool = False


class Peer(Protocol):
    """A competitor: its name, and what it offers for a case (raises `Missing`)."""

    name: str

    def offers(self, case: Case) -> Iterator[Offer]: ...

    def failures(self) -> tuple[type[Exception], ...]:
        """Return the exceptions with which an offer may decline a case."""
        ...

    def stand_ins(self, case: Case) -> Any:
        """Return inputs that suffice for compiling."""
        ...


def candidates(peer: Peer, case: Case, sets: Sequence[Inputs]) -> Iterator[Candidate]:
    """Bind a peer's offers to every set; one that declines becomes a candidate without calls."""
    for offer in peer.offers(case):
        try:
            calls = [offer.bind(inputs) for inputs in sets]
            yield Candidate(offer.label, calls, bound=offer.bound)
        except peer.failures() as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            yield Candidate(offer.label, [], note=lines[0][:200])


class Plain:
    """What most peers are: nothing to compile ahead, and a RuntimeError declines."""

    def stand_ins(self, case: Any) -> Any:
        """Return no inputs: nothing is compiled ahead."""
        return None

    def failures(self) -> tuple[type[Exception], ...]:
        """Return what torch and the drivers raise for a case they do not take."""
        return (RuntimeError,)


class Torch(Plain):
    """torch.mm, torch.bmm, and torch._scaled_mm for fp8, tensor-wise."""

    name = "torch"

    def offers(self, case: Case) -> Iterator[Offer]:
        import torch

        if case.dtype in ("e4m3", "e5m2"):
            one = torch.ones((), device="cuda")
            yield from _scaled(case, one, one, "tensor-wise")
            return
        product = torch.bmm if case.batch > 1 else torch.mm

        def bind(inputs: Inputs) -> Call:
            b = inputs.b if case.b_rows else inputs.b.transpose(-1, -2)
            return lambda: product(inputs.a, b, out=inputs.c)

        yield Offer(product.__name__, bind)


class TorchRows(Torch):
    """torch._scaled_mm with a scale for each row and column."""

    name = "torch_rows"

    def offers(self, case: Case) -> Iterator[Offer]:
        import torch

        if case.dtype not in ("e4m3", "e5m2"):
            raise Missing("row-wise scales are for fp8")
        rows = torch.ones((case.m, 1), device="cuda")
        columns = torch.ones((1, case.n), device="cuda")
        yield from _scaled(case, rows, columns, "row-wise")


def _scaled(case: Case, scale_a: Any, scale_b: Any, label: str) -> Iterator[Offer]:
    import torch

    if case.batch > 1:
        raise Missing("torch._scaled_mm takes no batch")
    for fast in (True, False):

        def bind(inputs: Inputs, fast: bool = fast) -> Call:
            return lambda: torch._scaled_mm(
                inputs.a,
                inputs.b.t(),
                scale_a=scale_a,
                scale_b=scale_b,
                out_dtype=torch.bfloat16,
                use_fast_accum=fast,
                out=inputs.c,
            )

        yield Offer(f"{label} use_fast_accum={fast}", bind)


class Quack(Plain):
    """QuACK's GEMM in CuTe, which tunes itself at the first call; where it is installed."""

    name = "quack"

    def offers(self, case: Case) -> Iterator[Offer]:
        try:
            from quack.gemm_interface import gemm
        except ImportError as error:
            raise Missing(f"QuACK is not installed: {error}") from error
        if case.dtype not in ("f16", "bf16") or case.batch > 1:
            raise Missing("one product of f16 or bf16")

        def bind(inputs: Inputs) -> Call:
            b = inputs.b if case.b_rows else inputs.b.t()
            return lambda: gemm(inputs.a, b, out=inputs.c)

        yield Offer("gemm", bind)

    def failures(self) -> tuple[type[Exception], ...]:
        """Return what its checks and CuTe raise for a case they do not take."""
        return (RuntimeError, AssertionError, ValueError)


class CublasLtBest(Plain):
    """cuBLASLt: the fastest of the algorithms its heuristic offers."""

    name = "cublaslt"

    def __init__(self) -> None:
        self._library: Any = None

    def offers(self, case: Case) -> Iterator[Offer]:
        import cublaslt

        if case.a_columns:
            raise Missing("A by columns is not described to it")
        if self._library is None:
            self._library = cublaslt.CublasLt()
        for fast in (True, False) if case.dtype in ("e4m3", "e5m2") else (True,):
            problem = self._library.problem(case, OUTPUT[case.dtype], fast)
            count = len(problem.algorithms)
            for index in range(count if fast else min(count, 4)):

                def bind(inputs: Inputs, problem: Any = problem, index: int = index) -> Call:
                    return problem.calls(index, [inputs])[0]

                yield Offer(f"algorithm {index} of {count}" + ("" if fast else " exact"), bind)


class Tawa:
    """tawa.kernels.matmul: every variant its own model proposes."""

    name = "tawa"

    def __init__(self, most: int = 12) -> None:
        self.most = most

    def stand_ins(self, case: Case) -> Any:
        return placeholders(case)

    def failures(self) -> tuple[type[Exception], ...]:
        from tawa.errors import TawaError

        return (TawaError,)

    def variants(self, case: Case) -> list[Any]:
        from tawa.kernels.variants import variants

        return variants(self.bound(placeholders(case), case).problem, most=self.most)

    def bound(self, inputs: Inputs, case: Case) -> Any:
        from tawa.kernels.prepare import bind

        b = inputs.b if case.b_rows else swapped(inputs.b)
        return bind(inputs.a, b, inputs.c)

    def launches(self, case: Case, variant: Any, inputs: Inputs) -> list[Any]:
        from tawa.kernels.prepare import prepare

        return prepare(self.bound(inputs, case), variant)

    def offers(self, case: Case) -> Iterator[Offer]:
        for variant in self.variants(case):

            def bind(inputs: Inputs, variant: Any = variant) -> Call:
                launches = self.launches(case, variant, inputs)
                for launch in launches:
                    launch.compile()
                return launches[0] if len(launches) == 1 else lambda: [each() for each in launches]

            def warm(inputs: Inputs, variant: Any = variant) -> None:
                for launch in self.launches(case, variant, inputs):
                    launch.compile()

            yield Offer(self.spell(variant), bind, warm)

    def spell(self, variant: Any) -> str:
        """Return a variant in one line."""
        if not isinstance(variant, dict):
            return str(variant)
        tile = "x".join(str(variant[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        return f"{tile} parts={variant['SUBTILES']}"


class TawaPointers(Tawa):
    """The pointer kernel (Triton's tutorial 03 form) through tawa, with the pins of the others."""

    name = "tawa_pointers"

    def variants(self, case: Case) -> list[Any]:
        import tawa
        from tawa.kernels.variants import Variant

        if case.batch > 1:
            raise Missing("the pointer kernel takes no batch")
        return [
            Variant(
                "pointers", tawa.Config({**each.config.kwargs, "GROUP_M": 8}, **each.config.pins)
            )
            for each in super().variants(case)
            if each.form == "descriptors"
        ]


class TawaPersistent(Tawa):
    """The author's persistent kernel (Triton's tutorial 09 form) through tawa."""

    name = "tawa_persistent"

    def variants(self, case: Case) -> list[Any]:
        if case.batch > 1 or case.b_rows or case.a_columns:
            raise Missing("the persistent kernel takes a dense A, and a dense B stored [N, K]")
        return [
            tile_of(*tile) | {"GROUP_M": 8, "SUBTILES": parts}
            for tile in our_tiles(case)
            for parts in (1, 2)
        ]

    def launches(self, case: Case, variant: Any, inputs: Inputs) -> list[Any]:
        from tawa import TensorDescriptor
        from tawa.kernels.gemm import matmul_persistent
        from tawa.kernels.prepare import Launch

        grid, arguments, options = persistent(case, variant, inputs, TensorDescriptor.from_tensor)
        return [Launch(matmul_persistent, grid, arguments, options)]


def swapped(array: Any) -> Any:
    """Return the transposed view of an array or of a placeholder."""
    import tawa

    if not hasattr(array, "transpose"):
        shape = (*array.shape[:-2], array.shape[-1], array.shape[-2])
        strides = (*array.strides[:-2], array.strides[-1], array.strides[-2])
        return tawa.array(shape, array.dtype, strides=strides)
    return array.transpose(-1, -2)


def placeholders(case: Case) -> Inputs:
    """Return inputs without data, for compiling."""
    import tawa

    kind = {"e4m3": "f8e4m3", "e5m2": "f8e5m2"}.get(case.dtype, case.dtype)
    lead = (case.batch,) if case.batch > 1 else ()
    b = (case.k, case.n) if case.b_rows else (case.n, case.k)
    a = (case.k, case.m) if case.a_columns else (case.m, case.k)
    stored = tawa.array((*lead, *a), kind)
    return Inputs(
        swapped(stored) if case.a_columns else stored,
        tawa.array((*lead, *b), kind),
        tawa.array((*lead, case.m, case.n), OUTPUT[case.dtype]),
    )


def tile_of(rows: int, columns: int, depth: int, *_: int) -> dict[str, int]:
    return {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}


def our_tiles(case: Case) -> list[tuple[int, int, int]]:
    """Return the tiles worth trying in tawa for kernels whose author chose the rest."""
    depth = 128 if case.dtype in ("e4m3", "e5m2") else 64
    if case.m <= 64:
        return [(64, 64, depth), (64, 128, depth), (64, 256, depth)]
    return [(128, 256, depth), (128, 192, depth), (256, 128, depth), (128, 128, depth)]


def triton_tiles(case: Case) -> list[tuple[int, int, int, int, int]]:
    """Return (rows, columns, depth, stages, warps): what is worth trying in Triton 3.6."""
    small = case.dtype in ("e4m3", "e5m2")
    if case.m <= 64:
        if small:
            return [(64, 64, 256, 4, 4), (64, 128, 128, 4, 4), (64, 128, 128, 5, 4)]
        return [(64, 64, 128, 4, 4), (64, 128, 128, 4, 4), (64, 128, 64, 5, 4)]
    if small:
        return [
            (128, 256, 128, 3, 8),
            (128, 256, 128, 4, 8),
            (128, 128, 128, 4, 8),
            (128, 128, 128, 4, 4),
        ]
    return [
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 4, 8),
    ]


def persistent(
    case: Case, variant: dict[str, int], inputs: Inputs, describe: Callable[..., Any]
) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
    """Return grid, arguments and options of the persistent kernel, for tawa and for Triton."""
    rows, columns, depth = variant["BLOCK_M"], variant["BLOCK_N"], variant["BLOCK_K"]
    programs = min(132, ceil(case.m / rows) * ceil(case.n / columns))
    arguments = (
        describe(inputs.a, [rows, depth]),
        describe(inputs.b, [columns, depth]),
        describe(inputs.c, [rows, columns // variant["SUBTILES"]]),
        case.m,
        case.n,
        case.k,
    )
    return (programs,), arguments, variant | {"PROGRAMS": programs}
