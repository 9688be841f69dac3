"""tawa: plain tile kernels in, proved warp-specialized Hopper kernels out."""

from tawa.version import __version__ as __version__
