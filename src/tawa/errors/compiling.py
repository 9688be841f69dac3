"""What stops the compiler: budgets, plans, the proof, the build, a fault of its own."""

from __future__ import annotations

from inspect import currentframe
from typing import Any

from tawa.errors.base import TawaError


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
            c, a = (cy.blocks(t, (U, 64)) for t in (C, A))
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
          why: c[i//2, 0] is the same block for i = 0 and i = 1
          do:  give each iteration a part of its own, or loop with cy.srange
        page: docs/reference/errors/MappingError.md#checks._check_pair-24
    """

    def __init__(self, what: str, **said: Any) -> None:
        super().__init__(what, **said)
        at: Any = currentframe()
        at = at.f_back
        at = at.f_back if at.f_code.co_qualname == "Instance.error" else at
        code, module = at.f_code, at.f_globals.get("__name__", "").rpartition(".")[2]
        where = f"{module}.{code.co_qualname}-{at.f_lineno - code.co_firstlineno}"
        if at.f_globals.get("__name__", "").startswith("tawa.cypress."):
            self.add_note(f"page: docs/reference/errors/MappingError.md#{where}")


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
          14    mma   -     a@28+b@29 filled[0]  0 (parity 0)  0/1 -16384 bytes due
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

        matmul is not proved: load copies to a@28+b@29 filled, which expects no bytes before it
          why: rule "one put": one thread expects the bytes of a put, all of them and before its copies, which stand beside it; threads tell of their own copies when these are done.
          do:  compile it with specialize=False, which leaves less to prove, or split it.
    """  # noqa: E501

    rule = ""  # the name of the rule that is not found to hold


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
