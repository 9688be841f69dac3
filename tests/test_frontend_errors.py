"""Errors of the frontend about syntax and names: what it says, where it points, what to do."""

import pytest

import tawa.language as tl
from frontend_refusals import marked, refused
from tawa.errors import TypeMismatch, UnknownName, UnsupportedSyntax

BLOCK = 64  # a global that is not a constant


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


def uses_item_assignment(x):
    x[0] = 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (uses_try, "try cannot stand in a kernel"),
        (uses_with, "with cannot stand in a kernel"),
        (uses_class, "class cannot stand in a kernel"),
        (uses_def, "def cannot stand in a kernel"),
        (uses_lambda, "a lambda cannot stand in a kernel"),
        (uses_yield, "yield cannot stand in a kernel"),
        (uses_dict, "a dictionary cannot stand in a kernel"),
        (uses_break, "break cannot stand in a kernel"),
        (uses_continue, "continue cannot stand in a kernel"),
        (uses_import, "import cannot stand in a kernel"),
        (uses_raise, "raise cannot stand in a kernel"),
        (uses_match, "match cannot stand in a kernel"),
        (uses_delete, "del cannot stand in a kernel"),
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
    assert ("@tawa.jit" in error.remedy) == (function in (uses_def, uses_lambda))
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
    assert error.what == "*arguments cannot be a parameter of kernel"
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
    assert error.remedy == "did you mean atomic_and or atomic_add or atomic_load?"


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
    assert "may run no iteration" in error.why


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
