"""Every error a user can meet, one class each.

A message answers, in this order: what is wrong, where (Python file, line, caret), why (the rule,
with numbers), what to do. `TawaError` formats it; the classes fix the kind. The documentation page
of each class is generated from its docstring, whose example is run by a test that compares the
message word for word (the file stands as ``kernel.py``, under the two imports of tawa).

Length: the docstrings are the pages of the manual, and a traceback shows a class by its module:
`tawa.errors.TypeMismatch`, as a user imports it.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A span of the user's Python source: 1-based line, 0-based columns."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0

    def render(self) -> str:
        """Return ``file:line`` with the source line and a caret under the span."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return f"  at {self.file}:{self.line}"
        width = max(1, self.end_column - self.column)
        caret = " " * self.column + "^" * min(width, max(1, len(text) - self.column))
        return f"  at {self.file}:{self.line}\n    {text}\n    {caret}"


class TawaError(Exception):
    """The base of all errors: `what`, an optional place, `why` and `remedy`."""

    def __init__(
        self,
        what: str,
        *,
        place: Place | None = None,
        calls: tuple[Place, ...] = (),
        why: str = "",
        remedy: str = "",
    ) -> None:
        self.what = what
        self.place = place
        self.calls = calls
        self.why = why
        self.remedy = remedy
        super().__init__(self._render())

    @property
    def brief(self) -> str:
        """What is wrong and why, in one line, for lists of several."""
        return f"{self.what}: {self.why.splitlines()[0]}" if self.why else self.what

    def _render(self) -> str:
        lines = [self.what]
        if self.place is not None:
            lines.append(self.place.render())
        lines.extend(f"  called from {call.file}:{call.line}" for call in self.calls)
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.remedy:
            lines.append(f"  do:  {self.remedy}")
        return "\n".join(lines)


class UnsupportedSyntax(TawaError):  # noqa: N818
    """The kernel uses a Python construct or a `tl` function that the language does not have.

    Why: A kernel becomes one program for all threads of a block: only what has a meaning there
    can stand in it. The message names the construct and what can be written instead.

    Remedy: Write what the message proposes; compute what needs all of Python outside of the
    kernel and pass it in.

    Example::

        @tawa.jit
        def first_zero(x, out, n):
            for i in range(n):
                if tl.load(x + i) == 0:
                    break
            tl.store(out, i)

        first_zero.compile(tawa.array((64,), "i32"), tawa.array((1,), "i32"), 64)

    Message::

        break cannot stand in a kernel
          at kernel.py:8
                        break
                        ^^^^^
          why: a kernel has assignments, if, for, while, return and assert
          do:  use a while loop with a condition
    """


class TypeMismatch(TawaError):  # noqa: N818
    """Types, shapes or constants of an operation do not fit together.

    Why: Shapes and types are known when a kernel is compiled, and follow Triton's rules of
    broadcasting and promotion. What does not fit would be another program than the one meant.

    Remedy: Compare the two types in the message: transpose, reshape or cast one of them.

    Example::

        @tawa.jit
        def scores(q_desc, k_desc, out):
            q = q_desc.load([0, 0])
            k = k_desc.load([0, 0])
            tl.store(out, tl.max(tl.dot(q, k)))

        rows = tawa.TensorDescriptor.from_tensor(tawa.array((512, 128), "bf16"), [64, 128])
        scores.compile(rows, rows, tawa.array((1,), "f32"))

    Message::

        the operands of tl.dot do not fit: bf16[64, 128] and bf16[64, 128]
          at kernel.py:8
                tl.store(out, tl.max(tl.dot(q, k)))
                                     ^^^^^^^^^^^^
          why: the first has 128 columns (K), the second 64 rows
          do:  transpose one with .T, or make the block sizes of K equal
    """


class UnknownName(TawaError):  # noqa: N818
    """The kernel uses a name that is not defined, or a global that is not a constant.

    Why: A kernel is compiled once and launched many times: a global read when it is compiled
    would be frozen without notice. The types of the language, functions and `tl.constexpr` values
    cannot change.

    Remedy: Pass the value as an argument, or make the global a `tl.constexpr`.

    Example::

        BLOCK = 64

        @tawa.jit
        def copy(x, out):
            at = tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(x + at))

        copy.compile(tawa.array((64,), "f32"), tawa.array((64,), "f32"))

    Message::

        the global BLOCK is not a compile-time constant
          at kernel.py:8
                at = tl.arange(0, BLOCK)
                                  ^^^^^
          why: a kernel reads globals when it is compiled: its value could change after the kernel is compiled
          do:  write BLOCK = tl.constexpr(...), or pass it as an argument
    """  # noqa: E501


class DefinitionError(TawaError):
    """Code that builds tile IR (`tawa.ir.build`) breaks the form of a kernel.

    Why: Values exist from where they are made to the end of their region: what a loop or a branch
    makes is seen outside only where it is yielded, and each iteration yields all that the loop
    carries. Statements have different names, so that plans can speak of them.

    Remedy: Carry the value through the loop (`carry=`, `yield_`), or yield it from both sides of
    the branch, and use the result.

    Example::

        from tawa.ir.build import KernelBuilder

        k = KernelBuilder("sums")
        x, n = k.pointer("x", "f32"), k.scalar("n", "i32")
        with k.range(0, n) as loop:
            last = k.load(x + loop.index)
        k.store(x, last)

    Message::

        fp32 is used outside of its region
          at kernel.py:10
            k.store(x, last)
            ^^^^^^^^^^^^^^^^
          why: it was made inside the region that ended before, at line 8
          do:  yield it there, and use the result of the loop or branch
    """


class ShapeUnsupported(TawaError):  # noqa: N818
    """A shape of a tensor that no instruction takes.

    Why: The elements of a tensor are spread over threads and instructions, whose sizes are powers
    of two and small multiples of eight.

    Remedy: Round the extent up (`tawa.next_power_of_2`) and mask what lies outside.

    Example::

        @tawa.jit
        def row_sum(x, out, COLUMNS: tl.constexpr):
            at = tl.arange(0, COLUMNS)
            tl.store(out, tl.sum(tl.load(x + at)))

        row_sum.compile(tawa.array((50257,), "f32"), tawa.array((1,), "f32"), COLUMNS=50257)

    Message::

        a tensor of shape [50257] has an extent of 50257
          at kernel.py:6
                at = tl.arange(0, COLUMNS)
                     ^^^^^^^^^^^^^^^^^^^^^
          why: the extents of a tensor are powers of two or multiples of 8
          do:  round the extent up and mask what lies outside
    """


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


class OverBudget(TawaError):  # noqa: N818
    """Shared memory or registers exceed what a block has; the message lists the buffers.

    Why: A block has 227 KiB of shared memory and 64 Ki registers. Without pins the planner stays
    within both; with them, or with very large block sizes, nothing may be left to choose.

    Remedy: Use smaller block sizes or a smaller depth, as the list of buffers suggests.

    Example::

        from tawa.tools.samples import matmul

        matrix, describe = tawa.array((8192, 8192), "bf16"), tawa.TensorDescriptor.from_tensor
        a, b, c = (describe(matrix, block) for block in ([128, 64], [64, 256], [128, 256]))
        matmul.compile(a, b, c, 8192, BM=128, BN=256, BK=64, depth=5)

    Message::

        the plan needs 311,376 bytes of shared memory
          why: a block has 231,424; a@28 x 5 slots: 81,920, b@29 x 5 slots: 163,840, barriers of a@28+b@29: 80, stage of c_desc@31: 65,536
          do:  use smaller block sizes, or a smaller depth=
    """  # noqa: E501

    excess = 0  # bytes of shared memory over what a block has, where that is known


class MappingError(TawaError):
    """A task program and its mapping do not fit together (`tawa.cypress`).

    Why: A mapping says where tasks run and tensors live, and can change speed only. What would
    change a result, or asks for what the machine does not have, is refused before anything runs.

    Remedy: Change the instance that the message names, or the variant at the place it shows.

    Example::

        import tawa.cypress as cy

        T = cy.Tensor[cy.f16, 2]


        @cy.inner("twice", reads="A", writes="C")
        def rows(C: T, A: T, *, U: int):
            c, a = (cy.blocks(t, (U, t.shape[1])) for t in (C, A))
            for i in cy.prange(c.grid[0]):
                cy.launch("twice", c[i // 2, 0], a[i, 0])


        @cy.leaf("twice", reads="A", writes="C")
        def leaf(C, A):
            return A + A


        I = cy.Instance
        host = I("host", rows, cy.HOST, [cy.GLOBAL] * 2, dict(U=64), calls=["leaf"], entry=True)
        cy.program(cy.Mapping([host, I("leaf", leaf, cy.BLOCK, [cy.GLOBAL, cy.SHARED])]))

    Message::

        prange over i writes overlapping parts of C
          at kernel.py:13
                    cy.launch("twice", c[i // 2, 0], a[i, 0])
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          why: c[(i // 2), 0] is the same block for i = 0 and i = 1
          do:  give each iteration a part of its own, or loop with cy.srange
    """


class PlanError(TawaError):
    """A pinned field of the plan cannot be honoured.

    Why: A pin is a promise that the kernel is compiled so and not otherwise. Where a fact of the
    kernel stands in the way, the message names it; nothing else is compiled in its place.

    Remedy: Change the pin as proposed, or leave it to the planner.

    Example::

        from tawa.tools.samples import matmul

        matrix, describe = tawa.array((8192, 8192), "bf16"), tawa.TensorDescriptor.from_tensor
        a, b, c = (describe(matrix, block) for block in ([128, 64], [64, 128], [128, 128]))
        matmul.compile(a, b, c, 8192, BM=128, BN=128, BK=64, consumers=3)

    Message::

        consumers=3
          why: a warpgroup takes a multiple of 64 rows of a product; the products have [128] rows, so [1, 2] warpgroups can share them
          do:  change the block size, or the pin
    """  # noqa: E501


class ProtocolError(TawaError):
    """A run in the simulator found a hang, a race or a leftover; the message holds the rows.

    Why: The simulator runs the roles of a kernel with a race detector of its own. What it finds
    would hang, or read memory that is not written yet, on a GPU. arrived/needed are those of a
    barrier's phase.

    Remedy: It is a fault of the compiler, never of the kernel: report it. `specialize=False`
    compiles a kernel without roles meanwhile.

    Example::

        import numpy
        from tawa import ir
        from tawa.simulator import simulate
        from tawa.simulator.memory import HostDescriptor
        from tawa.tools.samples import matmul

        matrix, describe = tawa.array((64, 64), "f16"), tawa.TensorDescriptor.from_tensor
        a, b, c = (describe(matrix, [64, 64]) for _ in range(3))
        compiled = matmul.compile(a, b, c, 64, BM=64, BN=64, BK=64, depth=2, persistent=False)
        kernel = ir.parse(compiled.asm.text("hopper"))
        expect = next(op for op in kernel.walk() if isinstance(op, ir.hopper.Expect))
        expect.detach()  # as a compiler would that forgot it
        zeros = numpy.zeros((64, 64), "float16")
        given = HostDescriptor(zeros, (64, 64), (64, 1), (64, 64))
        names = dict.fromkeys(("a_desc", "b_desc", "c_desc"), given)
        simulate(kernel, (1, 1, 1), {**names, "K": 64})

    Message::

        deadlock: every role waits
          step  role  line  waits for            phase         arrived/needed
          12    mma   -     a@28+b@29 filled[0]  0 (parity 0)  0/1 -16384 bytes due
          why: mma waits for phase 0 of a@28+b@29 filled[0], which has 0/1 arrivals and has 16384 bytes that nobody expected; nobody is left to do it
    """  # noqa: E501


class UnprovedProtocol(ProtocolError):  # noqa: N818
    """The proof does not show that the kernel cannot hang or race: it is not run.

    Why: Every compile ends with a proof that the synchronization of the kernel is right, for every
    input (docs/design/proof.md). It names the rule that it does not find to hold, and the place.
    The planner has offered its other plans by then.

    Remedy: Split the kernel, or compile it with `specialize=False`, which leaves less to prove.

    Example::

        from tawa import ir
        from tawa.tools.samples import matmul
        from tawa.verify import verify

        matrix, describe = tawa.array((8192, 8192), "bf16"), tawa.TensorDescriptor.from_tensor
        a, b, c = (describe(matrix, block) for block in ([64, 64], [64, 64], [64, 64]))
        compiled = matmul.compile(a, b, c, 8192, BM=64, BN=64, BK=64, depth=2, persistent=False)
        kernel = ir.parse(compiled.asm.text("hopper"))
        expect = next(op for op in kernel.walk() if isinstance(op, ir.hopper.Expect))
        expect.detach()  # as a compiler would that forgot it
        verify(kernel)

    Message::

        matmul is not proved: the roles at a@28+b@29 filled are not shown to agree for every input: mma waits for iterations(K, step 64) phases; nobody arrives; a phase takes 1
          why: rule "one control": what decides how often roles synchronize is one function of the launch in all of them: each barrier gets as many arrivals as the roles that wait for it ask for, for every input.
          do:  compile it with specialize=False, which leaves less to prove, or split it.
    """  # noqa: E501


class BuildError(TawaError):
    """NVRTC refused the generated source, or its log shows a defect (serialised wgmma).

    Why: A kernel whose products are serialised runs at a fraction of its speed without any sign of
    it. Such a build is refused and the next plan tried. The last, an ordinary kernel, is taken as
    it is, and `explain` says what is slow; with pins that rule it out the error is raised. A kernel
    whose loops wait for local memory (spills) many times is no error: other plans are tried, and
    the one that waits least is taken.

    Remedy: Use a smaller tile or fewer stages; source that does not compile at all is a fault of
    ours to report.

    Example::

        from tawa.runtime import nvrtc

        text = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= factor; }'
        nvrtc.build(text, "scale")

    Message::

        NVRTC refused the code generated for scale
          why: scale.cu(1): error: identifier "factor" is undefined
          extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= factor; }
                                                                         ^

        1 error detected in the compilation of "scale.cu".
          do:  report this with the kernel: generated code must always compile
    """


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


class TuningError(TawaError):
    """No configuration of an autotune space could be built; the message lists each reason.

    Why: A configuration that cannot be built is skipped and its reason kept. With none left there
    is nothing to launch.

    Remedy: Add a configuration that takes less, as the reasons suggest.

    Example::

        from tawa.tools.samples import matmul

        configs = [tawa.Config({}, depth=8), tawa.Config({}, consumers=3)]
        tuned = tawa.autotune(configs, key=["K"])(matmul)
        matrix, describe = tawa.array((8192, 8192), "bf16"), tawa.TensorDescriptor.from_tensor
        a, b, c = (describe(matrix, block) for block in ([128, 64], [64, 256], [128, 256]))
        tuned.compile(a, b, c, 8192, BM=128, BN=256, BK=64)

    Message::

        none of the 2 configurations of matmul can be built
          why: each has its reason:
            depth=8: the plan needs 458,880 bytes of shared memory: a block has 231,424; a@28 x 8 slots: 131,072, b@29 x 8 slots: 262,144, barriers of a@28+b@29: 128, stage of c_desc@31: 65,536
            consumers=3: consumers=3: a warpgroup takes a multiple of 64 rows of a product; the products have [128] rows, so [1, 2] warpgroups can share them
          do:  add a configuration with smaller block sizes or fewer stages
    """  # noqa: E501


class ModelError(TawaError):
    """A probabilistic model uses what its language does not have, or uses it wrongly.
    Why: The source of a model is compiled to a program of one chain or particle, on CPU and GPU.
    Remedy: Write what the message proposes; compute other things outside and pass them in.

    Example::

        from tawa import ppl
        ppl.factor(1.0)

    Message::

        ppl.factor was called outside of a model
          why: a model's source is compiled, not run: its words have a meaning only there
          do:  call it in a function under @ppl.model, and run that with ppl.infer
    """


class GradientError(TawaError):
    """A model has a site that hmc and nuts, which move along a gradient, cannot move.
    Why: Every site must take real values, and which sites there are must not depend on a sample.
    Remedy: Use method="mh" or "smc", or sum over the values of a discrete site with ppl.factor.

    Example::

        from tawa import ppl
        @ppl.model
        def switch():
            left = ppl.sample(ppl.Bernoulli(0.5))
        ppl.infer(switch, method="nuts")

    Message::

        left is discrete: Bernoulli has no gradient
          at kernel.py:7
                left = ppl.sample(ppl.Bernoulli(0.5))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          why: nuts moves along a gradient of the log density
          do:  use method="mh" or "smc", or sum over its values with ppl.factor
    """


class StackError(TawaError):
    """A lane's memory for calls that are not finished, or for its trace, is too small.
    Why: Each chain or particle is a thread with a stack of a size that is fixed before the run.
    Remedy: Pass a larger `stack=` (in words) or `trace=`, or write a model that recurs less deeply.

    Example::

        from tawa import ppl
        @ppl.model
        def deep(n): return 0 if n == 0 else deep(n - 1) + 1
        ppl.infer(deep, 100, method="importance", draws=10)

    Message::

        deep: the stack of 64 words ran out at depth 64 in 10 of 10 lanes
          why: each call that is not finished keeps its values on the stack of its lane
          do:  pass stack=256 or more to ppl.infer, or recur less deeply
    """


class WeightError(TawaError):
    """All particles have weight zero: no run of the model explains the data.
    Why: A weight is the product of the densities of what was observed.
    Remedy: Check the supports and units of the observations, or take more particles.

    Example::

        from tawa import ppl
        @ppl.model
        def impossible(y):
            ppl.observe(ppl.Uniform(0.0, 1.0), y)
        ppl.infer(impossible, 2.0, method="importance", draws=100)

    Message::

        all 100 weights are zero
          do:  check the observations' supports and units, or take more particles
    """


class InternalError(TawaError):
    """The compiler failed through no fault of the user's; the message names a dump folder.

    Why: An exception that no pass should raise reaches the user as this error: it names the step,
    the line of the kernel that was being compiled, and a folder with what a report needs (the
    kernel's source, the IR before the step, the plan, the traceback and the versions; no data of
    arrays).

    Remedy: Report it with the folder attached. `specialize=False` may compile meanwhile.

    Example::

        from tawa.ir import tile
        from tawa.passes import pipeline

        def broken(kernel, plan, target):
            for operation in kernel.walk():
                if isinstance(operation, tile.Load):
                    raise KeyError(operation.name)

        @tawa.jit
        def copy(x, out, B: tl.constexpr):
            at = tl.arange(0, B)
            tl.store(out + at, tl.load(x + at))

        pipeline.TILE = (*pipeline.TILE, broken)  # as a compiler would that has such a fault
        copy.compile(tawa.array((64,), "f32"), tawa.array((64,), "f32"), B=64)

    Message::

        the compiler failed on copy in broken (passes.pipeline): KeyError: 'tile.load'
          at kernel.py:15
                tl.store(out + at, tl.load(x + at))
                                   ^
          why: this is a fault of the compiler, and none of the kernel
          do:  please report it: attach the folder .../reports/copy-...
    """


class AxonError(TawaError):
    """A program of `tawa.axon` has shapes, types or sizes that cannot fit, or breaks its grammar.

    Why: Shapes and ranks are inferred from the structure of a program. The message shows two
    places that contradict one another: the operation, and where the other size comes from. A
    function that promises all sizes (`forall`) may not need a condition on them.

    Remedy: Change one of the two places; or write the condition after `requires`.

    Example::

        from tawa import axon

        program = "fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))"
        axon.check(program, "net.axon")

    Message::

        net.axon:1:33: error: the shapes of `linear` differ on axis 0
           1 | fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))
             |                                           ^^^^^^^^^^^^^ axis 0 is 4
           1 | fun f (x : f32[n, 3]) w = relu (linear x (w : f32[4, m]))
             |        ^ axis 1 is 3
    """


class AxonGuard(AxonError):  # noqa: N818
    """A function of `tawa.axon` is called with arrays whose shapes it does not fit.

    Why: A condition on sizes that inference cannot decide is a guard. All guards are checked
    before any work is done.

    Remedy: Compare the condition with the shapes given: pad, crop or transpose.

    Example::

        import numpy as np

        from tawa import axon

        halves = axon.load("fun halves x = reshape x [2, -1]").halves
        halves(np.zeros((3, 5), np.float32))

    Message::

        halves cannot take [3, 5]: it needs [d, e] = fill([2, -1], ..x), for `reshape` at 1:16
          why: halves : f32[..x] -> f32[d, e]    where [d, e] = fill([2, -1], ..x)
    """


class MissingPackage(TawaError):  # noqa: N818
    """A part of tawa needs a package that is not installed.

    Why: What only some users need is no dependency of all: `tawa.axon` decides conditions with
    islpy, and its importers read what onnx and torch write.

    Remedy: Install what the message names.

    Example::

        from tawa.errors import MissingPackage

        raise MissingPackage("islpy is not installed", remedy='pip install "tawa[axon]"')

    Message::

        islpy is not installed
          do:  pip install "tawa[axon]"
    """
