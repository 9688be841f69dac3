"""The language as Python sees it: names, types, constants, and errors outside a kernel."""

import inspect
import subprocess
import sys

import pytest

import tawa.language as tl
from tawa.errors import UnsupportedSyntax
from tawa.frontend.attributes import DESCRIPTOR_METHODS, TENSOR_METHODS
from tawa.ir.build.operations import OPERATIONS
from tawa.language.written import Written

# The names a kernel of Triton 3.6 may use and tawa has a meaning for.
TYPES = (
    *("void", "int1", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "float8e4nv", "float8e5"),
    *("float16", "bfloat16", "float32", "float64", "pi32_t"),
)
# Classes and compile-time functions: they have no handler of their own.
NOT_HANDLED = {
    "ConstexprFunction",
    "PropagateNan",
    "aggregate_replace",
    "block_type",
    "condition",
    "const",
    "constexpr",
    "constexpr_function",
    "dtype",
    "extra",
    "math",
    "pointer",
    "pointer_type",
    "range",
    "static_range",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_base",
    "tuple",
}


def functions():
    return sorted(set(tl.__all__) - NOT_HANDLED - set(TYPES))


def test_importing_the_language_imports_no_compiler():
    code = (
        "import sys, tawa.language as tl; assert tl.float16.name == 'fp16'; "
        "print([m for m in ('xdsl', 'numpy', 'cuda', 'triton') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", functions())
def test_every_function_is_documented_compiled_and_refused_outside(name):
    function = getattr(tl, name)
    assert inspect.getdoc(function)
    assert name in OPERATIONS or isinstance(function, Written)
    values = [1 for _ in inspect.signature(function).parameters]
    with pytest.raises(UnsupportedSyntax, match=f"tl.{name} was called outside a kernel"):
        function(*values)


def test_handlers_take_what_the_documentation_says():
    for name in functions():
        if isinstance(getattr(tl, name), Written):
            continue  # its body is its own handler
        handler = inspect.signature(OPERATIONS[name]).parameters
        stub = inspect.signature(getattr(tl, name)).parameters
        required = [p for p in handler.values() if p.default is p.empty]
        assert len(required) - 1 <= len(stub) <= len(handler) - 1, name


def test_methods_are_functions_of_the_language():
    for name in TENSOR_METHODS - {"to", "logical_and", "logical_or"}:
        assert name in OPERATIONS or isinstance(getattr(tl, name), Written)
    for name in DESCRIPTOR_METHODS:
        assert f"descriptor.{name}" in OPERATIONS
        assert inspect.getdoc(getattr(tl.tensor_descriptor, name))


@pytest.mark.parametrize("maker", [tl.tensor, tl.tensor_descriptor, tl.range, tl.static_range])
def test_classes_are_refused_outside(maker):
    with pytest.raises(UnsupportedSyntax, match="was called outside a kernel"):
        maker(3)


def test_the_error_says_what_to_do():
    with pytest.raises(UnsupportedSyntax) as caught:
        tl.load(3)
    assert "why: the functions of tawa.language have a meaning only in code that is" in str(
        caught.value
    )
    assert "do:  launch the kernel with kernel[grid](...)" in str(caught.value)


@pytest.mark.parametrize("name", TYPES)
def test_types(name):
    kind = getattr(tl, name)
    assert isinstance(kind, tl.dtype)
    assert kind.scalar == kind
    assert kind == kind
    assert kind != tl.constexpr(3)
    assert kind.is_floating() == name.startswith(("float", "bfloat"))
    if kind.is_int() and not kind.is_bool():
        assert kind.get_int_max_value() - kind.get_int_min_value() == 2**kind.int_bitwidth - 1


def test_type_attributes():
    assert tl.float8e4nv.name == "fp8e4nv"
    assert tl.float8e4nv.is_fp8()
    assert tl.bfloat16.primitive_bitwidth == 16
    assert tl.float16.fp_mantissa_width == 10
    assert tl.pointer_type(tl.int8).element_ty == tl.int8
    assert tl.pointer_type(tl.float8e5).is_ptr()
    assert not tl.pointer_type(tl.float8e5).is_fp8()
    assert tl.block_type(tl.int8, [4, 8]).numel == 32
    assert hash(tl.dtype("fp32")) == hash(tl.float32)
    with pytest.raises(ValueError, match="no element type is called 'fp7'"):
        tl.dtype("fp7")
    with pytest.raises(ValueError, match="address space 1"):
        tl.pointer_type(tl.int8, 3)


def test_constants_compute_as_python():
    size = tl.constexpr(12)
    assert (size * 2 + 1).value == 25
    assert (100 // size).value == 8
    assert (2**size).value == 4096
    assert (-size).value == -12
    assert (size == 12).value is True
    assert bool(size > 20) is False
    assert tl.constexpr(size).value == 12
    assert list(range(tl.constexpr(3))) == [0, 1, 2]
    assert tl.constexpr((4, 5))[1].value == 5
    assert repr(size) == "constexpr[12]"


def test_constexpr_functions_run_on_the_host():
    @tl.constexpr_function
    def double(x):
        """Twice x."""
        return 2 * x

    assert double(tl.constexpr(4)) == 8
    assert double.__doc__ == "Twice x."
