"""What is wrong with the arguments of a call, or with the machine."""

from __future__ import annotations

from tawa.errors.base import TawaError


class DescriptorError(TawaError):
    """Strides, alignment, extents or box of a tensor that TMA cannot take.

    Why: TMA takes addresses and strides in multiples of 16 bytes, boxes of at most
    256 elements a side, up to five dimensions. All is checked before the launch, as a wrong
    descriptor stops the whole process on a GPU.

    Remedy: Pad the rows of the tensor, or load it through pointers: they have no such rule.

    Example::

        import numpy as np

        @tawa.jit
        def copy(x_desc, out_desc):
            out_desc.store([0, 0], x_desc.load([0, 0]))

        describe = tawa.TensorDescriptor.from_tensor
        x, out = np.zeros((128, 65), np.float16), np.zeros((128, 64), np.float16)
        copy[(1,)](describe(x[:, :64], [64, 64]), describe(out, [64, 64]))

    Message::

        x_desc: TMA needs strides that are multiples of 16 bytes, got 130 (65 x f16) along dimension 0
          do:  pad the rows of x_desc to 72 elements, or load it through pointers
    """  # noqa: E501


class ArgumentError(TawaError):
    """A launch argument is missing, unknown, of the wrong type, dtype, device or layout.

    Why: Arguments are checked by name before anything is compiled or launched.

    Remedy: Pass what the message names.

    Example::

        import numpy as np

        @tawa.jit
        def scale(x, out, factor, n, B: tl.constexpr):
            at = tl.program_id(0) * B + tl.arange(0, B)
            tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)

        x = np.ones(1000, np.float32)
        scale[(8,)](x, np.empty_like(x), 2.0, B=128)

    Message::

        scale needs 'n', which the call does not give
          why: its parameters are x, out, factor, n, B
          do:  pass n=...
    """


class LaunchError(TawaError):
    """The driver refused a launch, or a kernel failed on the device.

    Why: Kernels run behind the program that launches them, so a fault shows at a later call;
    after it the GPU takes nothing more from the process. The message lists what was launched
    last.

    Remedy: Start the process anew with CUDA_LAUNCH_BLOCKING=1, under which the launch at fault
    reports itself, or run the kernel by `tawa.simulate`, which checks every access.

    Example::

        import torch

        @tawa.jit
        def fill(x, n, B: tl.constexpr):
            at = tl.program_id(0) * B + tl.arange(0, B)
            tl.store(x + at, 1.0)  # without a mask

        fill[(1 << 20,)](torch.empty(1000, device="cuda"), 1000, B=1024)
        fill[(1,)](torch.empty(1000, device="cuda"), 1000, B=1024)

    Message::

        the GPU reported an error at the launch of fill: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered
          why: this kernel or one before it failed on the device, and nothing more runs in this process. The latest launches, this one first:
            fill: grid (1,); x=float32[1000], n=1000, B=1024
            fill on grid (1048576,): x = f32 at 0x7f0000000000, n = 1000
          do:  start the process anew with CUDA_LAUNCH_BLOCKING=1, which shows the kernel at fault; tawa.simulate checks a kernel without a GPU
    """  # noqa: E501

    lost = False
    """Whether the GPU takes nothing more from this process."""


class NoDriver(TawaError):  # noqa: N818
    """There is no NVIDIA driver, or it is too old, and the arguments live on a GPU.

    Why: Kernels are compiled to binaries of CUDA 13.0, which need driver 580 or newer.

    Remedy: Install or update the driver; or pass NumPy arrays, which run in the simulator.

    Example::

        from tawa.runtime.driver import check_version

        check_version(12_040)  # what cuDriverGetVersion says on a machine with driver 550

    Message::

        the NVIDIA driver is too old: it serves CUDA 12.4
          why: the kernels are CUDA 13.0 binaries, which need driver 580 or newer
          do:  update the driver, or run it in the simulator: pass NumPy arrays, or call tawa.simulate
    """  # noqa: E501


class MissingPackage(TawaError):  # noqa: N818
    """A part of tawa needs a package that is not installed.

    Why: What only some users need is no dependency of all: `tawa.axon` decides conditions with
    islpy, its importers read what onnx and torch write, and `tawa.torch` enters transformers.

    Remedy: Install what the message names.

    Example::

        from tawa.errors import MissingPackage

        raise MissingPackage("islpy is not installed", remedy='pip install "tawa[axon]"')

    Message::

        islpy is not installed
          do:  pip install "tawa[axon]"
    """
