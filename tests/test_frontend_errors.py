"""Every error of the frontend: what it says, where it points, what it tells to do."""

import re

import numpy as np
import pytest

import tawa.language as tl
from frontend_kernels import jit, of
from tawa.errors import (
    ArgumentError,
    DescriptorError,
    ShapeUnsupported,
    TawaError,
    TypeMismatch,
    UnknownName,
    UnsupportedSyntax,
)
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg

BLOCK = 64  # a global that is not a constant
TILE = DescriptorArg("f16", (16, 16))


def refused(kind, function, **arguments) -> TawaError:
    """Compile a kernel that must be refused, and return the error."""
    with pytest.raises(kind) as caught:
        build(function, of(**arguments), {})
    return caught.value


def marked(error: TawaError) -> str:
    """Return the source text under the caret."""
    *_, line, caret = error.place.render().split("\n")
    return line[caret.index("^") : len(caret)]


# --- statements and expressions that a kernel does not have ------------------------------------


def uses_try():
    try:
        pass
    finally:
        pass


def uses_with(x):
    with x:
        pass


def uses_class():
    class Inner:
        pass


def uses_def():
    def inner():
        pass


def uses_lambda(x):
    y = lambda z: z  # noqa: E731
    tl.store(x, y(1))


def uses_yield(x):
    yield tl.load(x)


def uses_dict(x):
    y = {"a": 1}
    tl.store(x, y["a"])


def uses_break(x, n):
    for i in range(n):
        if tl.load(x + i) > 0:
            break


def uses_continue(x, n):
    for _ in range(n):
        continue


def uses_import():
    import math  # noqa: F401


def uses_raise():
    raise ValueError


def uses_match(x):
    match x:
        case _:
            pass


def uses_delete(x):
    del x


def uses_walrus(x):
    tl.store(x, (y := 1))
    tl.store(x, y)


def uses_item_assignment(x):
    x[0] = 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (uses_try, "try cannot stand in a kernel"),
        (uses_with, "with cannot stand in a kernel"),
        (uses_class, "a class inside a kernel cannot stand in a kernel"),
        (uses_def, "a function inside a kernel cannot stand in a kernel"),
        (uses_lambda, "a lambda cannot stand in a kernel"),
        (uses_yield, "yield cannot stand in a kernel"),
        (uses_dict, "a dictionary cannot stand in a kernel"),
        (uses_break, "break cannot stand in a kernel"),
        (uses_continue, "continue cannot stand in a kernel"),
        (uses_import, "import cannot stand in a kernel"),
        (uses_raise, "raise cannot stand in a kernel"),
        (uses_match, "match cannot stand in a kernel"),
        (uses_delete, "del cannot stand in a kernel"),
        (uses_walrus, "an assignment inside an expression (:=) cannot stand in a kernel"),
        (uses_item_assignment, "only names can be assigned to"),
    ],
)
def test_unsupported_syntax(function, says):
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = {name: "i32" if name == "n" else "i32*" for name in parameters}
    error = refused(UnsupportedSyntax, function, **given)
    assert error.what == says
    assert error.why
    assert error.remedy
    first = function.__code__.co_firstlineno
    assert first < error.place.line <= first + 4


def test_the_message_in_full():
    def kernel(x, n):
        while tl.load(x) < n:
            break

    error = refused(UnsupportedSyntax, kernel, x="i32*", n="i32")
    line = kernel.__code__.co_firstlineno + 2
    assert str(error) == (
        "break cannot stand in a kernel\n"
        f"  at {__file__}:{line}\n"
        "                break\n"
        "                ^^^^^\n"
        "  why: a kernel has assignments, if, for, while, return and assert\n"
        "  do:  use a while loop with a condition"
    )


def test_variadic_parameters():
    def kernel(*arguments):
        pass

    error = refused(UnsupportedSyntax, kernel)
    assert error.what == "*arguments cannot be a parameter of a kernel"
    assert marked(error) == "arguments"


def test_a_lambda_is_no_kernel():
    error = refused(UnsupportedSyntax, lambda x: x, x="i32")
    assert "is not defined by `def`" in error.what


def test_no_source():
    scope: dict[str, object] = {}
    exec("def kernel(x): pass", scope)
    error = refused(UnsupportedSyntax, scope["kernel"], x="i32")
    assert error.what == "the source of kernel is not available"


def test_not_a_function():
    assert "is not a kernel" in refused(UnsupportedSyntax, 3).what


def test_return_inside_a_loop():
    def kernel(x, n):
        for i in range(n):
            if tl.load(x + i) > 0:
                return

    error = refused(UnsupportedSyntax, kernel, x="i32*", n="i32")
    assert error.what == "return inside a loop"
    assert marked(error) == "return"


def test_a_kernel_returns_nothing():
    def kernel(x):
        return tl.load(x)

    assert refused(UnsupportedSyntax, kernel, x="f32*").what == "the kernel kernel returns fp32"


def test_endless_loop():
    def kernel(x):
        while True:
            tl.store(x, 1)

    assert refused(UnsupportedSyntax, kernel, x="i32*").what == "a loop that never ends"


def test_unsupported_function_of_triton():
    def kernel(x):
        tl.nonsense(x)

    error = refused(UnknownName, kernel, x="i32*")
    assert error.what == "tawa.language.nonsense does not exist"
    assert error.remedy == "use what tawa.language has"


def test_a_misspelt_function():
    def kernel(x):
        tl.atomic_ad(x, 1)

    error = refused(UnknownName, kernel, x="i32*")
    assert error.remedy == "did you mean atomic_and or atomic_add or atomic_max?"


def test_a_function_of_the_device_library():
    def kernel(p):
        tl.store(p, tl.cosh(tl.load(p)))

    error = refused(UnknownName, kernel, p="f32*")
    assert error.remedy == "the device library has it: tl.extra.libdevice.cosh"


@pytest.mark.parametrize(
    ("operator", "remedy"), [("**", "libdevice.pow"), ("@", "tl.dot"), ("//", "tl.floor")]
)
def test_operators_that_floats_do_not_have(operator, remedy):
    def power(p):
        tl.store(p, tl.load(p) ** 2)

    def product(p):
        tl.store(p, tl.load(p) @ tl.load(p))

    def quotient(p):
        tl.store(p, tl.load(p) // 2.0)

    function = {"**": power, "@": product, "//": quotient}[operator]
    assert remedy in refused(TypeMismatch, function, p="f32*").remedy


def test_a_misspelt_variable():
    def kernel(destination):
        tl.store(destinatin, 1)  # noqa: F821

    assert refused(UnknownName, kernel, destination="i32*").remedy == "did you mean destination?"


def test_a_format_that_a_constant_has_not():
    def kernel(x, B: tl.constexpr):
        tl.static_print(f"{B:zz}")

    error = refused(TypeMismatch, kernel, x="i32*", B=4)
    assert error.what == "constant 4 has no format 'zz'"


# --- names -------------------------------------------------------------------------------------


def test_undefined_name():
    def kernel(x):
        tl.store(x, missing + 1)  # noqa: F821

    error = refused(UnknownName, kernel, x="i32*")
    assert error.what == "missing is not defined"
    assert marked(error) == "missing"


def test_global_that_is_not_constant():
    def kernel(x):
        tl.store(x, BLOCK)

    error = refused(UnknownName, kernel, x="i32*")
    assert error.what == "the global BLOCK is not a compile-time constant"
    assert error.remedy.startswith("write BLOCK = tl.constexpr(...)")


def test_name_of_one_branch():
    def kernel(x, n):
        if n > 0:
            y = 1
        tl.store(x, y)

    error = refused(UnknownName, kernel, x="i32*", n="i32")
    assert error.what == "y has no value here"
    line = kernel.__code__.co_firstlineno + 1
    assert error.why == f"it is assigned only where the `if` at line {line} goes one way"


def test_name_of_a_loop():
    def kernel(x, n):
        for i in range(n):
            y = i
        tl.store(x, y)

    error = refused(UnknownName, kernel, x="i32*", n="i32")
    assert "may run no trip" in error.why


def test_index_after_the_loop():
    def kernel(x, n):
        for i in range(n):
            tl.store(x, i)
        tl.store(x, i)

    error = refused(UnknownName, kernel, x="i32*", n="i32")
    assert "the index of the loop" in error.why


def test_unknown_attribute():
    def kernel(x):
        tl.store(x, tl.load(x).mean())

    assert refused(UnknownName, kernel, x="f32*").what == "fp32 has no attribute mean"


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
        f"total changes its type in the loop at line {line + 2}: int32 before, fp32 after a trip"
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


def test_truth_of_a_block():
    def kernel(x):
        if tl.load(x + tl.arange(0, 8)) > 0:
            tl.store(x, 1)

    error = refused(TypeMismatch, kernel, x="f32*")
    assert error.what == "a block of int1[8] is neither true nor false"


def test_shapes_do_not_meet():
    def kernel(x):
        tl.store(x, tl.sum(tl.arange(0, 8) + tl.arange(0, 16)))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "blocks of shapes [8] and [16] do not fit together"
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
    def kernel(x, n):
        size: tl.constexpr = n * 2
        tl.store(x, size)

    error = refused(TypeMismatch, kernel, x="i32*", n="i32")
    assert error.what == "size is declared tl.constexpr, and its value is int32"


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
    assert error.what == "a block of shape [100] has an extent of 100"
    assert error.why == "the extents of a block are powers of two or multiples of 8"


def test_block_too_large():
    def kernel(x):
        tl.store(x, tl.sum(tl.zeros((2048, 1024), tl.float32)))

    error = refused(ShapeUnsupported, kernel, x="f32*")
    assert error.what == "a block of shape [2048, 1024] has 2097152 elements"


def test_multiples_of_eight_are_welcome():
    def kernel(x):
        tl.store(x + tl.arange(0, 176), 1)

    build(kernel, of(x="i32*"), {})


def test_unpacking():
    def kernel(x):
        a, b = tl.load(x), 1, 2
        tl.store(x, a + b)

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "2 names cannot take (int32, int32, int32)"


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


# --- memory ------------------------------------------------------------------------------------


def test_load_of_a_number():
    def kernel(n):
        tl.load(n)

    assert refused(TypeMismatch, kernel, n="i32").what == "an address is needed here, this is int32"


def test_other_without_mask():
    def kernel(x):
        tl.store(x, tl.load(x, other=0))

    assert refused(TypeMismatch, kernel, x="i32*").what == "tl.load got `other` without `mask`"


def test_store_of_a_wider_value():
    def kernel(x):
        tl.store(x, tl.arange(0, 8))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "the value of tl.store is int32[8], its pointer pointer<int32>"


def test_mask_of_numbers():
    def kernel(x):
        at = tl.arange(0, 8)
        tl.store(x + at, 1, mask=at)

    assert refused(TypeMismatch, kernel, x="i32*").what == (
        "a mask holds truth values, this is int32[8]"
    )


def test_descriptor_offsets():
    def kernel(a):
        a.store([0], a.load([0, 0]))

    error = refused(TypeMismatch, kernel, a=TILE)
    assert error.what == "1 offsets for a descriptor of fp16[16, 16]"


def test_descriptor_of_wide_offsets():
    def kernel(a, n):
        a.store([0, n], a.load([0, 0]))

    error = refused(TypeMismatch, kernel, a=TILE, n="i64")
    assert error.what == "an offset is int32, this is int64"
    assert error.remedy == "convert it with .to(tl.int32)"


def test_descriptor_block():
    def kernel(a):
        a.store([0, 0], a.load([0, 0]).reshape(8, 32))

    error = refused(TypeMismatch, kernel, a=TILE)
    assert error.what == "a block fp16[8, 32] does not fit a descriptor of fp16[16, 16]"


def test_descriptor_last_stride():
    def kernel(x, n, B: tl.constexpr):
        tl.make_tensor_descriptor(x, [n, n], [1, n], [B, B])

    error = refused(DescriptorError, kernel, x="f16*", n="i32", B=16)
    assert error.what == "the last stride of a descriptor is int32"
    assert "the last stride is the constant 1" in error.why


def test_descriptor_rows_too_short():
    def kernel(x, n):
        tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 4])

    error = refused(DescriptorError, kernel, x="f16*", n="i32")
    assert error.what == "rows of a block are 4 x fp16 = 8 bytes"
    assert error.remedy == "make the last block extent 8 or more"


def test_atomic_of_a_narrow_type():
    def kernel(x):
        tl.atomic_max(x, 1.0)

    assert refused(TypeMismatch, kernel, x="f16*").what == "atomic_max does not take fp16"


# --- helpers, reductions, arguments ------------------------------------------------------------


@jit
def inner(x):
    return tl.exp(x)


@jit
def middle(x):
    return inner(x) + 1


def test_the_call_chain():
    def kernel(x):
        tl.store(x, middle(tl.load(x)))

    error = refused(TypeMismatch, kernel, x="f16*")
    lines = [call.line for call in error.calls]
    assert error.place.line == inner.fn.__code__.co_firstlineno + 2
    assert lines == [
        middle.fn.__code__.co_firstlineno + 2,
        kernel.__code__.co_firstlineno + 1,
    ]
    assert len(re.findall("called from", str(error))) == 2


@jit
def endless(x):
    return endless(x)


def test_recursion():
    def kernel(x):
        tl.store(x, endless(1))

    assert refused(UnsupportedSyntax, kernel, x="i32*").what == "endless calls itself"


def test_returns_of_two_types():
    @jit
    def helper(x):
        if x > 0:
            return x
        return 1.5

    def kernel(x):
        tl.store(x, helper(tl.load(x)))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "helper returns int32 or fp32"


def test_combine_function_changes_type():
    @jit
    def combine(a, b):
        return (a + b).to(tl.float32)

    def kernel(x):
        tl.store(x, tl.reduce(tl.arange(0, 8), 0, combine))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "the combine function gives fp32"


def test_axis_outside():
    def kernel(x):
        tl.store(x, tl.sum(tl.arange(0, 8), axis=1))

    error = refused(TypeMismatch, kernel, x="i32*")
    assert error.what == "axis 1 is outside a block of 1 dimension"


def test_missing_argument():
    def kernel(x, B: tl.constexpr):
        tl.store(x, B)

    assert refused(ArgumentError, kernel, x="i32*").what == "kernel got no argument B"


def test_unknown_argument():
    def kernel(x):
        tl.store(x, 1)

    error = refused(ArgumentError, kernel, x="i32*", C=3)
    assert error.what == "kernel has no parameter C"


def test_run_time_value_for_a_constexpr():
    def kernel(x, B: tl.constexpr):
        tl.store(x, B)

    error = refused(ArgumentError, kernel, x="i32*", B="i32")
    assert error.what == "B is a tl.constexpr and got a value of the run"


# --- what a first kernel gets wrong ------------------------------------------------------------


def indexes_a_pointer(x):
    tl.store(x, x[tl.arange(0, 4)])


def compares_a_pointer(x):
    tl.store(x, 1, mask=x > 3)


def misspells_a_keyword(x):
    tl.store(x, tl.load(x, msk=True))


def calls_what_the_language_has(x):
    tl.store(x, np.exp(tl.load(x)))


def takes_the_type_of_a_library(x):
    tl.store(x, tl.zeros((4,), int))


@pytest.mark.parametrize(
    ("kind", "kernel", "what", "remedy"),
    [
        (TypeMismatch, indexes_a_pointer, "a pointer<int32> is not indexed", "tl.load(pointer +"),
        (TypeMismatch, compares_a_pointer, "`>` does not take pointer<int32>", "pass a number"),
        (TypeMismatch, misspells_a_keyword, "unexpected keyword argument 'msk'", "mean mask?"),
        (UnsupportedSyntax, calls_what_the_language_has, "exp cannot be called", "use tl.exp"),
        (TypeMismatch, takes_the_type_of_a_library, "must be a compile-time", "tl.float32"),
    ],
)
def test_first_mistakes(kind, kernel, what, remedy):
    error = refused(kind, kernel, x="i32*")
    assert what in error.what
    assert remedy in error.remedy
    assert error.place is not None
