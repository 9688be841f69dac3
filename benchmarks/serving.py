"""Attention as a server calls it: one query a sequence, and packed sequences of many lengths.

    python benchmarks/serving.py --section decode,paged,varlen,varlen_causal
    python benchmarks/serving.py --section all --dry      (compiles everything, times nothing)

Decoding is bound by memory: its figures are GB/s of keys and values read, and the peer `copy` moves
as many bytes, half of them read and half written, which is the bound. `varlen` has TFLOP/s, by the
sum over sequences of 4 * heads * length^2 * head_dim, half of it under a causal mask. How figures
are made is said in harness.py; errors are of every sequence's sample of heads.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import gemm
from serving_cases import Decode, Packed
from serving_peers import everyone

# batch, heads, kv_heads, head_dim, keys
DECODED = (
    (1, 32, 8, 128, 131072),
    (4, 32, 8, 128, 32768),
    (16, 32, 8, 128, 8192),
    (64, 32, 8, 128, 4096),
    (128, 32, 8, 128, 2048),
    (32, 16, 16, 128, 4096),
    (64, 64, 8, 64, 4096),
    (16, 32, 8, 256, 4096),
    (1, 32, 8, 128, 1024),
    (1, 32, 8, 128, 8192),
    (8, 64, 8, 128, 2048),
    (4, 32, 32, 128, 1024),
    (256, 32, 8, 128, 512),
    (8, 32, 4, 64, 4096),
)
# The same in pages; the last number is the shortest sequence, where they differ in length.
PAGED = (
    *((*sizes, page) for sizes in DECODED[:4] for page in (256, 64, 16)),
    *((*sizes, 16) for sizes in DECODED[8:11]),
    *((64, 64, 8, 128, 8192, page, 128) for page in (64, 16)),
    (16, 32, 8, 128, 32768, 16, 1024),
)
LENGTHS = {
    "equal 512": (512,) * 32,
    "equal 2048": (2048,) * 8,
    "halving": (8192, 4096, 2048, 1024, 512, 256, 128, 64, 64),
    "ramp": tuple(range(64, 1056, 31)),
    "skewed": (1, 3, 100, 37, 5000, 77, 2, 9000, 650),
    "one 16384": (16384,),
    "short": (64, 128, 96, 200) * 8,
}
SECTIONS = ("decode", "paged", "varlen", "varlen_causal")
# heads, kv_heads, head_dim of packed sequences
PACKED = ((16, 16, 128), (32, 32, 64), (8, 8, 256), (32, 4, 128))


def cases_of(sections: str, dtypes: str, only: str) -> list[Any]:
    """Return the cases of comma-separated sections and dtypes whose text matches `only`."""
    names = SECTIONS if sections == "all" else sections.split(",")
    cases: list[Any] = []
    for dtype in dtypes.split(","):
        if "decode" in names:
            cases += [Decode(*sizes, dtype=dtype) for sizes in DECODED]
        if "paged" in names:
            cases += [Decode(*sizes, dtype=dtype) for sizes in PAGED]
        for name, causal in (("varlen", False), ("varlen_causal", True)):
            if name in names:
                cases += [
                    Packed(label, lengths, *sizes, causal, dtype)
                    for sizes in PACKED
                    for label, lengths in LENGTHS.items()
                ]
    return [case for case in cases if re.search(only, str(case))]


if __name__ == "__main__":
    suite = gemm.Suite(
        "Attention of a server",
        __doc__ or "",
        ["all", *SECTIONS],
        ("f16", "bf16"),
        ("all", "f16"),
        cases_of,
        everyone,
    )
    sys.exit(gemm.main(suite))
