r"""The six programs of `tawa.cypress.kernels` under their mappings, beside their peers, on one GPU.

    python benchmarks/cypress.py
    python benchmarks/cypress.py --program gemm,attention --only "x256|D128" --rounds 7
    python benchmarks/cypress.py --search 50 --only "4096\^3$|D128 4096$"
    python benchmarks/cypress.py --dry      (compiles everything for an H200, needs no GPU)

Every result is checked first. Peers take turns for several rounds, in another order each, timed by
`do_bench`; TFLOP/s of the median round, and the share of the fastest peer that is not ours. A peer
that cannot be imported or that fails is named. cuBLASLt's best is the fastest algorithm that its
heuristics offer, FlashAttention-3 the original, where `TAWA_PEERS` has it (`native/build.sh`). Dual
GEMM and row sums are also plain tile kernels (`cypress_triton.py`), which Triton and tawa compile
from one source. `--search` adds what `cy.search` finds in so many seconds from one warpgroup on
narrow tiles.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cypress_triton
import tawa.cypress as cy
from native_peers import flash_attention3
from tawa.cypress.kernels import attention, dual, gemm, sums


@dataclass(frozen=True)
class Search:
    """Where searches begin: mappings by what they find, and the tensors."""

    mappings: dict[str, cy.Mapping]
    tensors: tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A line of the table: tensors, what they should become, and who computes it."""

    name: str
    flops: float
    outputs: tuple[Any, ...]
    wanted: tuple[Any, ...]
    ours: dict[str, Callable[[], Any]]
    peers: dict[str, Callable[[], Any]]
    # Calls of ours that compute no more than the first output: what a program could reach.
    bounds: dict[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])
    plain: str = ""  # plain tile kernels of `cypress_triton` that compute it as well
    tensors: tuple[Any, ...] = ()  # of these
    tolerance: float = 2e-2
    start: Search | None = None  # of a search


def bound(mappings: dict[str, cy.Mapping], *tensors: Any) -> dict[str, Callable[[], Any]]:
    """Return calls of programs on tensors."""

    def make(mapping: cy.Mapping) -> Callable[[], Any]:
        program = cy.program(mapping)
        return lambda: program(*tensors)

    return {name: at_first(make, mapping) for name, mapping in mappings.items()}


def alone(*tensors: Any) -> dict[str, Callable[[], Any]]:
    """Return calls of the GEMM on tensors of a program that computes more."""
    return {f"GEMM alone, {name}": call for name, call in bound(gemm.mappings(), *tensors).items()}


def at_first(make: Callable[..., Callable[[], Any]], *arguments: Any) -> Callable[[], Any]:
    """Return a call that is made when it is called for the first time, when its case is run."""
    made = cache(lambda: make(*arguments))
    return lambda: made()()


def fastest_of_cublaslt(m: int, n: int, k: int, batch: int, *arrays: Any) -> Callable[[], Any]:
    """Return the call of the fastest algorithm that cuBLASLt's heuristics offer, on a, b and c."""
    import harness
    from cublaslt import CublasLt
    from tawa.testing import do_bench

    case = harness.Case("f16", m, n, k, batch, b_rows=True)
    problem, inputs = CublasLt().problem(case, "f16", fast=False), [harness.Inputs(*arrays)]
    calls = [problem.calls(index, inputs)[0] for index in range(len(problem.algorithms))]
    for _ in range(3):  # the slower half leaves each time: clocks drift by what they differ by
        times = [do_bench(call, warmup=5, rep=20, return_mode="median") for call in calls]
        ranked = sorted(range(len(calls)), key=times.__getitem__)
        calls = [calls[index] for index in ranked[: -(-len(calls) // 2)]]
    return calls[0]


def gemm_cases(torch: Any) -> Iterator[Case]:
    """M = N = 8192, several K; 4096 and 8192 squared."""
    from tawa.kernels.matmul import matmul

    shapes = [(8192, 8192, k) for k in (256, 512, 1024, 2048, 4096, 8192, 16384)]
    for m, n, k in [(4096, 4096, 4096), *shapes]:
        a, b = normal(torch, m, k), normal(torch, k, n)
        c = normal(torch, m, n)
        peers: dict[str, Callable[[], Any]] = {
            "torch.mm": lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
            "cuBLASLt's best": at_first(fastest_of_cublaslt, m, n, k, 1, a, b, c),
        }
        ours = bound(gemm.mappings(), c, a, b)
        ours["tawa.kernels.matmul"] = lambda a=a, b=b, c=c: matmul(a, b, out=c)
        start = Search({"searched": gemm.gemm(**NARROW)}, (c, a, b))
        flops, wanted = 2 * m * n * k, (a @ b,)
        yield Case(f"gemm {m}x{n}x{k}", flops, (c,), wanted, ours, peers, start=start)


def batched_cases(torch: Any) -> Iterator[Case]:
    """16 x 2048^3 and 64 x 1024^3."""
    for count, n in ((16, 2048), (64, 1024)):
        a, b, c = (normal(torch, count, n, n) for _ in "abc")
        peers: dict[str, Callable[[], Any]] = {
            "torch.bmm": lambda a=a, b=b, c=c: torch.bmm(a, b, out=c),
            "cuBLASLt's best": at_first(fastest_of_cublaslt, n, n, n, count, a, b, c),
        }
        ours = bound(gemm.mappings(batched=True), c, a, b)
        start = Search({"searched": gemm.gemm(batched=True, **NARROW)}, (c, a, b))
        flops, wanted = 2 * count * n**3, (a @ b,)
        yield Case(f"batched {count}x{n}^3", flops, (c,), wanted, ours, peers, start=start)


def dual_cases(torch: Any) -> Iterator[Case]:
    """A B1 + A B2, beside two products of torch and plain tile kernels of one loop."""
    for n in (4096, 8192):
        a, b1, b2, c = (normal(torch, n, n) for _ in "abcd")

        def twice(a: Any = a, b1: Any = b1, b2: Any = b2, c: Any = c) -> None:
            torch.mm(a, b1, out=c)
            torch.addmm(c, a, b2, out=c)

        peers: dict[str, Callable[[], Any]] = {"torch.mm, addmm": twice}
        wide, high = torch.cat([a, a], 1), torch.cat([b1, b2])
        long = "cuBLASLt's best, one product of twice K"
        peers[long] = at_first(fastest_of_cublaslt, n, n, 2 * n, 1, wide, high, c)
        wanted = ((a.float() @ b1.float() + a.float() @ b2.float()).half(),)
        ours = bound(dual.mappings(), c, a, b1, b2)
        tensors = (c, a, b1, b2)
        start = Search({"searched": dual.dual(**NARROW)}, tensors)
        flops = 4 * n**3
        bounds = alone(c, wide, high)
        args = f"dual {n}^3", flops, (c,), wanted, ours, peers, bounds, "dual", tensors
        yield Case(*args, start=start)


def sums_cases(torch: Any) -> Iterator[Case]:
    """A B and the sums of the rows of A; `torch.mm` alone is the bound."""
    for n in (4096, 8192):
        a, b, c = (normal(torch, n, n) for _ in "abc")
        for name, mapping in sums.mappings().items():
            width = dict(mapping["host"].tunables)["V"]
            y = torch.empty(-(-n // width), n, device="cuda")

            def both(a: Any = a, b: Any = b, c: Any = c) -> None:
                torch.mm(a, b, out=c)
                torch.sum(a, 1, dtype=torch.float32)

            peers: dict[str, Callable[[], Any]] = {
                "torch.mm and sum": both,
                "torch.mm alone": lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
                "cuBLASLt's best alone": at_first(fastest_of_cublaslt, n, n, n, 1, a, b, c),
            }
            plain = "sums" if name == "two warpgroups" else ""
            wanted = (a @ b, a.float().sum(1).expand_as(y))
            ours = bound({name: mapping}, c, y, a, b)
            tensors = (c, y, a, b)
            start = (
                Search({"searched": sums.sums(WGS=1, U=64, V=width)}, tensors) if plain else None
            )
            bounds, outputs = alone(c, a, b), (c, y)
            args = f"sums {n}^3", 2 * n**3, outputs, wanted, ours, peers, bounds, plain, tensors
            yield Case(*args, start=start)


def attention_cases(torch: Any) -> Iterator[Case]:
    """16k tokens, hidden size 2048, lengths 512 to 16k."""
    from tawa.kernels.attention import attention as tiles

    sdpa = torch.nn.functional.scaled_dot_product_attention
    for width, causal in ((64, False), (128, False), (128, True), (256, False)):
        for length in (512, 2048, 4096, 16384):
            batch, heads = 16384 // length, 2048 // width
            q, k, v, o = (normal(torch, batch, heads, length, width) for _ in "qkvo")
            flat = [t.flatten(0, 1) for t in (o, q, k, v)]
            wanted = sdpa(q, k, v, is_causal=causal).flatten(0, 1)
            peers: dict[str, Callable[[], Any]] = {}
            for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):

                def peer(
                    q: Any = q, k: Any = k, v: Any = v, causal: bool = causal, name: str = backend
                ) -> Any:
                    kind = getattr(torch.nn.attention.SDPBackend, name)
                    with torch.nn.attention.sdpa_kernel(kind):
                        return sdpa(q, k, v, is_causal=causal)

                peers[f"sdpa {backend}"] = peer
            peers["FlashAttention-3"] = at_first(flash_attention3, q, k, v, causal)
            ours = bound(attention.mappings(width, causal, length), *flat)
            ours["tawa.kernels.attention"] = lambda q=q, k=k, v=v, o=o, c=causal: tiles(
                q, k, v, causal=c, out=o
            )
            flops = 4 * batch * heads * length**2 * width / (2 if causal else 1)
            name = f"attention D{width} {length}{' causal' if causal else ''}"
            narrow = {
                f"searched, {loop}": attention.attention(loop, 1, 64, 64, width, causal)
                for loop in ("fa2", "fa3")
            }
            args = name, flops, (flat[0],), (wanted,), ours, peers
            yield Case(*args, start=Search(narrow, tuple(flat)))


NARROW: dict[str, Any] = {"WGS": 1, "U": 64, "V": 64}
CASES: dict[str, Callable[[Any], Iterator[Case]]] = {
    "gemm": gemm_cases,
    "batched": batched_cases,
    "dual": dual_cases,
    "sums": sums_cases,
    "attention": attention_cases,
}


def every_mapping(program: str) -> dict[str, cy.Mapping]:
    """Return all that the lines of a program compile."""
    match program:
        case "gemm" | "batched":
            return gemm.mappings(batched=program == "batched")
        case "dual":
            return dual.mappings()
        case "sums":
            return sums.mappings()
        case _:
            return {
                f"D{width}{' causal' if causal else ''}, {name}": mapping
                for width in (64, 128, 256)
                for causal in (False, True)
                for name, mapping in attention.mappings(width, causal).items()
            }


def normal(torch: Any, *shape: int) -> Any:
    """Return random f16 numbers."""
    return torch.randn(*shape, device="cuda").half()


def right(torch: Any, case: Case, call: Callable[[], Any], ours: bool) -> str:
    """Return why a result is wrong or missing, or nothing."""
    for output in case.outputs:
        output.fill_(float("nan"))
    made = call()
    torch.cuda.synchronize()
    outputs = case.outputs
    if not ours and made is not None and made.shape != case.outputs[0].shape:
        outputs = (made.reshape(case.outputs[0].shape),)
    for output, wanted in zip(outputs[: len(outputs) if ours else 1], case.wanted, strict=False):
        error = (output.double() - wanted.double()).norm() / wanted.double().norm()
        if not error < case.tolerance:
            return f"relative error {float(error):.3}"
    return ""


def searched(start: Search, budget: float) -> dict[str, Callable[[], Any]]:
    """Return calls of what searches find; each prints its mapping."""
    found = {
        name: cy.search(cy.program(mapping), *start.tensors, budget=budget)
        for name, mapping in start.mappings.items()
    }
    return {name: lambda p=program: p(*start.tensors) for name, program in found.items()}


def measure(torch: Any, case: Case, rounds: int) -> None:
    """Check and time a case, and print its lines."""
    from tawa.testing import do_bench

    plain = cypress_triton.calls(case.plain, *case.tensors) if case.plain else {}
    by_triton = {name: call for name, call in plain.items() if name.startswith("Triton")}
    peers, run = {**case.peers, **by_triton}, {**case.peers, **case.bounds, **plain, **case.ours}
    for name, call in list(run.items()):
        try:
            wrong = right(torch, case, call, name in case.ours)
        except Exception as error:
            wrong = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if wrong:
            print(f"{case.name:32} {name:28} WRONG OR MISSING: {wrong}", flush=True)
            del run[name]
    times: dict[str, list[float]] = {name: [] for name in run}
    for turn in range(rounds):
        for name in random.Random(turn).sample(list(run), len(run)):
            took = do_bench(run[name], warmup=10, rep=50, return_mode="median")
            assert isinstance(took, float), "one number is asked for"
            times[name].append(took)
    rates = {name: case.flops / statistics.median(each) / 1e9 for name, each in times.items()}
    best = max((rate for name, rate in rates.items() if name in peers), default=0.0)
    for name, rate in rates.items():
        share = f"{rate / best:6.3f} of the best peer" if best else ""
        print(f"{case.name:32} {name:28} {rate:7.0f} TFLOP/s {share}", flush=True)


def dry(program: str) -> None:
    """Compile every mapping of a program for an H200 and print what it takes."""
    for name, mapping in every_mapping(program).items():
        took = cy.program(mapping).compile().resources
        print(f"{program}: {name:40} {took.shared:7,} bytes, {took.spills} spills", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=",".join(CASES))
    parser.add_argument("--only", default="", help="a regular expression on the names of cases")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--search", type=float, default=0.0, help="seconds of each search")
    options = parser.parse_args()
    programs = options.program.split(",")
    if options.dry:
        for name in programs:
            dry(name)
        return
    import torch

    print(torch.cuda.get_device_name())
    for name in programs:
        for case in CASES[name](torch):
            if re.search(options.only, case.name):
                if options.search and case.start is not None:
                    case.ours.update(searched(case.start, options.search))
                measure(torch, case, options.rounds)


if __name__ == "__main__":
    main()
