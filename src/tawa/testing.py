"""What a user times kernels with, as in `triton.testing`, and what was launched before a fault."""

from tawa.runtime.driver import recent_launches
from tawa.runtime.timing import do_bench, do_bench_cudagraph

__all__ = ["do_bench", "do_bench_cudagraph", "recent_launches"]
