"""What a user times kernels with; the names and meaning are those of `triton.testing`."""

from tawa.runtime.timing import do_bench, do_bench_cudagraph

__all__ = ["do_bench", "do_bench_cudagraph"]
