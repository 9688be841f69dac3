"""Errors of the frontend about types, shapes and products."""

import tawa.language as tl
from frontend_kernels import jit, of
from frontend_refusals import marked, refused
from tawa.errors import ShapeUnsupported, TypeMismatch
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg

# --- types -------------------------------------------------------------------------------------


def test_loop_changes_a_type():
    def kernel(x, n):
        total = 0
        for i in range(n):
            total += tl.load(x + i)
        tl.store(x, total)

    error = refused(TypeMismatch, kernel, x="f32*", n="i32")
    line = kernel.__code__.co_firstlineno
    assert error.what == (
        f"total changes its type in the loop at line {line + 2}: int32 before, "
        "fp32 after an iteration"
    )
    assert f"line {line + 1} makes it int32, line {line + 3} fp32" in error.why
    assert error.place.line == line + 3


def test_branches_differ():
    def kernel(x, n):
        if n > 0:
            y = tl.load(x)
        else:
            y = 1
        tl.store(x, y)

    error = refused(TypeMismatch, kernel, x="f32*", n="i32")
    assert error.what == "y is fp32 or int32 after this if"
    line = kernel.__code__.co_firstlineno
    assert f"line {line + 2} makes it fp32, line {line + 4} int32" in error.why


def test_choice_differs():
    def kernel(x, n):
        tl.store(x, tl.load(x) if n > 0 else 1)

    error = refused(TypeMismatch, kernel, x="f32*", n="i32")
    assert error.what == "the two sides of this choice differ: fp32 and int32"


def test_truth_of_a_tensor():
    def kernel(x):
        if tl.load(x + tl.arange(0, 8)) > 0:
            tl.store(x, 1)

    error = refused(TypeMismatch, kernel, x="f32*")
    assert error.what == "a tensor of int1[8] is neither true nor false"


def test_shapes_do_not_meet():
    def kernel(x):
        tl.store(x, tl.sum(tl.arange(0, 8) + tl.arange(0, 16)))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "tensors of shapes [8] and [16] do not fit together"
    assert "in dimension 0 the extents are 8 and 16" in error.why
    assert marked(error) == "tl.arange(0, 8) + tl.arange(0, 16)"


def test_operator_without_meaning():
    def kernel(x):
        tl.store(x, tl.load(x) // 2)

    error = refused(TypeMismatch, kernel, x="f32*")
    assert error.what == "`//` does not take fp32 and constant 2"


def test_mixed_signedness():
    def kernel(x, y):
        tl.store(x, tl.load(x) // tl.load(y))

    error = refused(TypeMismatch, kernel, x="i32*", y="u32*")
    assert "would mix signed and unsigned" in error.why


def test_constant_out_of_range():
    def kernel(x):
        tl.store(x, tl.load(x) + 300)

    error = refused(TypeMismatch, kernel, x="u8*")
    assert error.what == "the constant 300 does not fit uint8"
    assert error.why == "uint8 holds 0 to 255"


def test_pointer_arithmetic():
    def kernel(x):
        tl.store(x + 0.5, 1)

    error = refused(TypeMismatch, kernel, x="i32*")
    assert "a pointer moves by an integer number of elements" in error.why


def test_constexpr_of_a_run_time_value():
    """Triton takes the annotation, and refuses what needs a constant, as here."""

    def kernel(x, n):
        size: tl.constexpr = n * 2
        tl.store(x, size)

    build(kernel, of(x="i32*", n="i32"), {})

    def ranged(x, n):
        size: tl.constexpr = n * 2
        tl.store(x + tl.arange(0, size), 1)

    error = refused(TypeMismatch, ranged, x="i32*", n="i32")
    assert error.what == "arange's end must be a compile-time integer, this is int32"


def test_shape_of_a_run_time_value():
    def kernel(x, n):
        tl.store(x + tl.arange(0, n), 1)

    error = refused(TypeMismatch, kernel, x="i32*", n="i32")
    assert error.what == "arange's end must be a compile-time integer, this is int32"
    assert error.remedy == "mark it `: tl.constexpr`, as a parameter or where it is assigned"


def test_extent_no_layout_takes():
    def kernel(x):
        tl.store(x + tl.arange(0, 100), 1)

    error = refused(ShapeUnsupported, kernel, x="i32*")
    assert error.what == "a tensor of shape [100] has an extent of 100"
    assert error.why == "the extents of a tensor are powers of two or multiples of 8"


def test_tensor_too_large():
    def kernel(x):
        tl.store(x, tl.sum(tl.zeros((2048, 1024), tl.float32)))

    error = refused(ShapeUnsupported, kernel, x="f32*")
    assert error.what == "a tensor of shape [2048, 1024] has 2,097,152 elements"


def test_multiples_of_eight_are_welcome():
    def kernel(x):
        tl.store(x + tl.arange(0, 176), 1)

    build(kernel, of(x="i32*"), {})


def test_unpacking():
    def kernel(x):
        a, b = tl.load(x), 1, 2
        tl.store(x, a + b)

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "2 names cannot take (int32, constant 1, constant 2)"


def test_static_assert():
    def kernel(x, B: tl.constexpr):
        tl.static_assert(B % 16 == 0, f"B is {B}")

    error = refused(TypeMismatch, kernel, x="i32*", B=24)
    assert error.what == "static assertion failed: B is 24"


def test_f_string_of_a_run_time_value():
    def kernel(x):
        tl.static_assert(True, f"{tl.load(x)}")

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "an f-string is made at compile time, and this is int32"


def test_exponential_of_half():
    def kernel(x):
        tl.store(x, tl.exp(tl.load(x)))

    error = refused(TypeMismatch, kernel, x="f16*")
    assert error.what == "tl.exp takes float32 or float64, this is fp16"
    assert error.remedy == "cast with .to(tl.float32), and back afterwards"


def test_arguments_of_a_builtin():
    def kernel(x):
        tl.store(x, tl.load(x, masc=True))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "tl.load: got an unexpected keyword argument 'masc'"


def test_arguments_of_a_helper():
    @jit
    def helper(a, b):
        return a

    def kernel(x):
        tl.store(x, helper(1))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "helper: missing a required argument: 'b'"


# --- products ----------------------------------------------------------------------------------


def dot_of(one, other, out="f32", acc=None):
    def kernel(a, b, c, ACC: tl.constexpr):
        start = None if ACC is None else tl.zeros(ACC, tl.float32)
        product = tl.dot(a.load([0, 0]), b.load([0, 0]), start)
        c.store([0, 0], product)

    return refused(
        TypeMismatch,
        kernel,
        a=DescriptorArg(*one),
        b=DescriptorArg(*other),
        c=DescriptorArg(out, (16, 16)),
        ACC=acc,
    )


def test_dot_shapes():
    error = dot_of(("f16", (16, 32)), ("f16", (16, 16)))
    assert error.what == "the operands of tl.dot do not fit: fp16[16, 32] and fp16[16, 16]"
    assert error.why == "the first has 32 columns (K), the second 16 rows"
    assert error.remedy == "transpose one with .T, or make the block sizes of K equal"
    assert marked(error).startswith("tl.dot(a.load([0, 0])")


def test_dot_types():
    error = dot_of(("f16", (16, 16)), ("bf16", (16, 16)))
    assert error.what == "tl.dot does not multiply fp16 by bf16"


def test_dot_accumulator():
    error = dot_of(("f16", (16, 16)), ("f16", (16, 16)), acc=(16, 8))
    assert error.what == "the accumulator of tl.dot is fp32[16, 8]"
    assert error.why == "the product is fp32[16, 16]"


def test_dot_of_vectors():
    def kernel(x):
        v = tl.arange(0, 16).to(tl.float16)
        tl.store(x, tl.dot(v, v))

    assert "tl.dot takes two matrices" in refused(TypeMismatch, kernel, x="f16*").what


def test_dot_precision():
    def kernel(a, out):
        x = a.load([0, 0])
        out.store([0, 0], tl.dot(x, x, input_precision="bf16"))

    tile = DescriptorArg("f32", (16, 16))
    error = refused(TypeMismatch, kernel, a=tile, out=tile)
    assert error.what == "input_precision cannot be 'bf16'"
