"""What is wrong with the text of a kernel."""

from __future__ import annotations

from tawa.errors.base import TawaError


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
