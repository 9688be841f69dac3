"""What a demo measures: an error, and a time beside a peer's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a kernel ran, its sizes, its error against NumPy or torch, its speed if timed.

    `peer` is the library it was timed beside.
    """

    place: str
    shape: tuple[int, ...]
    error: float
    seconds: float
    tflops: float | None = None
    peer_tflops: float | None = None
    peer: str = "cuBLAS (torch.mm)"

    @property
    def ok(self) -> bool:
        """Whether the result is right to the rounding of bfloat16."""
        return self.error < 8e-3

    def describe(self, what: str) -> str:
        """Return the result, and the speed if timed, of the problem `what` says."""
        reference = "NumPy" if self.tflops is None else "float64"
        verdict = "right" if self.ok else "WRONG"
        text = f"{what} on {self.place}: {verdict}, "
        text += f"relative error {self.error:.1e} against {reference}"
        if self.tflops is None or self.peer_tflops is None:
            return text
        text += f"\n{self.tflops:.0f} TFLOP/s; {self.peer} {self.peer_tflops:.0f}"
        return text + f" in the same run: {self.tflops / self.peer_tflops:.2f} of it"


def take_turns(torch: Any, *calls: Any, rounds: int = 4, times: int = 20) -> list[float]:
    """Return each call's mean seconds in its best round, the calls taking turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(3):
                call()
            first.record()
            for _ in range(times):
                call()
            last.record()
            torch.cuda.synchronize()
            best[index] = min(best[index], first.elapsed_time(last) / 1e3 / times)
    return best
