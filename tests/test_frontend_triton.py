"""Kernels written with triton.language compile to the same tile IR as with tawa.language.

The same sources are compiled twice. Without Triton, a stand-in package has objects of the same
classes, names and modules, so what is tested is that the frontend recognises them by name alone.
"""

import importlib.util
import inspect
import sys
from functools import wraps
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest

import frontend_kernels
import frontend_shapes
import tawa
import tawa.language as ours
from frontend_kernels import of
from tawa.errors import TypeMismatch, UnsupportedSyntax
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg
from tawa.frontend.source import read_source
from tawa.runtime.fingerprint import fingerprint
from tawa.simulator.tile import run_tile

HERE = Path(__file__).parent
KERNELS = (
    "host_descriptors",
    "made_descriptors",
    "pointers",
    "persistent",
    "batched",
    "epilogue",
    "attention",
)
STANDARD = (
    *("cdiv", "sum", "max", "min", "argmax", "sigmoid", "softmax", "zeros", "zeros_like"),
    *("rand", "randn", "sort", "flip", "topk"),
)


class JITFunction:
    """Stands for triton.runtime.jit.JITFunction."""

    def __init__(self, fn):
        self.fn = fn
        self.__name__ = fn.__name__
        self.__module__ = fn.__module__


def _stand_in() -> tuple[ModuleType, ModuleType]:
    """Make modules that look like triton and triton.language from outside."""
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    core = "triton.language.core"
    dtype = type("dtype", (), {"__init__": lambda self, name: setattr(self, "name", name)})
    constexpr = type("constexpr", (), {"__init__": lambda self, v: setattr(self, "value", v)})
    dtype.__module__ = constexpr.__module__ = core
    for name in ours.__all__:
        value = getattr(ours, name)
        if isinstance(value, ours.dtype):
            value = dtype(value.name)
        elif isinstance(value, type):
            value = type(name, (), {"__module__": core})
        elif callable(value):
            value = _function(name)
        setattr(language, name, value)
    language.dtype, language.constexpr, triton.language = dtype, constexpr, language
    triton.jit = JITFunction
    return triton, language


def _function(name: str) -> object:
    def function(*args, _semantic=None):
        raise ValueError("call it in a kernel")

    function.__name__ = function.__qualname__ = name
    function.__module__ = "triton.language." + ("standard" if name in STANDARD else "core")
    function.__triton_builtin__ = True
    return JITFunction(function) if name in STANDARD else function


def _rewritten(name: str, folder: Path) -> ModuleType:
    """Load a module of kernels again, with triton.language for tawa.language."""
    text = (HERE / f"{name}.py").read_text()
    text = text.replace("import tawa.language as tl", "import triton\nimport triton.language as tl")
    text = text.replace("return Jitted(fn)", "return triton.jit(fn)")
    file = folder / f"{name}_in_triton.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["stand-in", "triton"])
def in_triton(request, tmp_path, monkeypatch):
    """Give a function that loads a module of kernels as Triton programs."""
    if request.param == "triton":
        pytest.importorskip("triton")
    else:
        triton, language = _stand_in()
        monkeypatch.setitem(sys.modules, "triton", triton)
        monkeypatch.setitem(sys.modules, "triton.language", language)
    return lambda name: _rewritten(name, tmp_path)


def test_kernel_forms(in_triton):
    theirs = in_triton("frontend_kernels")
    for name in KERNELS:
        signature = getattr(frontend_kernels, name.upper())
        own = build(getattr(frontend_kernels, name), signature, {})
        assert str(build(getattr(theirs, name), signature, {})) == str(own), name


def test_program_shapes(in_triton):
    theirs = in_triton("frontend_shapes")
    for name, (function, signature) in frontend_shapes.CASES.items():
        other = build(theirs.CASES[name][0], signature, {})
        assert str(other) == str(build(function, signature, {})), name


def test_a_wrapped_kernel(in_triton):
    """An autotuner holds a JITFunction, which holds the function."""
    theirs = in_triton("frontend_kernels")
    wrapped = frontend_kernels.jit(theirs.jit(theirs.batched))
    kernel = build(wrapped, frontend_kernels.BATCHED, {})
    assert kernel.sym_name.data == "batched"


def test_dtype_and_constexpr_as_arguments(in_triton):
    tl = in_triton("frontend_kernels").tl

    def kernel(x, KIND: ours.constexpr, SIZE: ours.constexpr):
        ours.store(x + ours.arange(0, SIZE), ours.zeros((SIZE,), KIND))

    signature = of(x="f32*") | {
        "KIND": ConstantArg(tl.float16),
        "SIZE": ConstantArg(tl.constexpr(8)),
    }
    assert "tensor<8xf16>" in str(build(kernel, signature, {}))


def test_what_only_triton_has(in_triton):
    """The function is refused, not the dictionary that it takes."""
    theirs = in_triton("frontend_kernels")
    tl = theirs.tl
    if not hasattr(tl, "extern_elementwise"):
        plain = _function("extern_elementwise")
        del plain.__triton_builtin__  # Triton's are wrapped, and the wrapper alone is marked
        wrapper = wraps(plain)(lambda *args, **named: plain(*args, **named))
        wrapper.__triton_builtin__ = True
        tl.extern_elementwise = wrapper

    def linked(x):
        tl.store(x, tl.extern_elementwise("", "", [x], {("int64",): ("put", "int32")}, False))

    with pytest.raises(UnsupportedSyntax, match=r"tl\.extern_elementwise is not supported"):
        build(linked, of(x="i32*"), {})


RANDOM = """
import triton
import triton.language as tl

def kernel(seed, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.rand(seed, at))
    tl.store(out_ptr + N + at, tl.sort(tl.randn(seed, at)))
"""


def test_functions_that_both_libraries_write_in_the_language(in_triton, tmp_path):
    """Triton's random numbers and sorting are compiled helpers of its own: ours stand in."""
    in_triton("frontend_kernels")
    built = []
    for name, text in (("theirs", RANDOM), ("ours", RANDOM.replace("import triton\n", ""))):
        file = tmp_path / f"random_{name}.py"
        file.write_text(text if name == "theirs" else text.replace("triton.", "tawa."))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        built.append(str(build(module.kernel, of(seed="i32", out_ptr="f32*", N=8), {})))
    assert built[0] == built[1]


LIBRARY = """
import triton
import triton.language as tl

def kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.sort(x))
    tl.store(out_ptr + N + at, tl.flip(x, 0))
    tl.store(out_ptr + 2 * N + at, tl.rand(7, at))
    tl.store(out_ptr + 3 * N + at, tl.reduce(x, 0, tl.standard._elementwise_max))
"""


def test_what_triton_wrote_in_its_own_language(tmp_path):
    pytest.importorskip("triton")
    file = tmp_path / "library_kernel.py"
    file.write_text(LIBRARY)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.random.default_rng(1).normal(size=16).astype(np.float32)
    out = np.zeros((4, 16), np.float32)
    kernel = build(module.kernel, of(x_ptr="f32*", out_ptr="f32*", N=16), {})
    run_tile(kernel, (1, 1, 1), {"x_ptr": x, "out_ptr": out})
    np.testing.assert_array_equal(out[0], np.sort(x))
    np.testing.assert_array_equal(out[1], x[::-1])
    assert ((out[2] >= 0) & (out[2] < 1)).all()
    assert len(set(out[2])) == 16
    np.testing.assert_array_equal(out[3], np.full(16, x.max()))


def test_promotion_is_tritons():
    """Each pair of types, weak or not, divided or not, meets in the type Triton picks."""
    pytest.importorskip("triton")
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    from tawa.ir.build.promotion import PromotionError, promote

    types = [name for name in ours.__all__ if type(getattr(ours, name)) is ours.dtype]
    names = [name for name in types if name != "void"]
    assert len(names) == 15
    semantic = TritonSemantic(None)
    for one, other in ((a, b) for a in names for b in names):
        for weak in ((False, False), (True, False), (False, True)):
            for division in (False, True):
                given = (getattr(tl, one), weak[0], getattr(tl, other), weak[1], division)
                try:
                    expected = semantic.computation_type_impl(*given).name
                except TypeError:
                    expected = None
                given = (getattr(ours, one), weak[0], getattr(ours, other), weak[1], division)
                try:
                    found = promote(*given).name
                except PromotionError:
                    found = None
                assert found == expected, (one, other, weak, division)


def template(x_ptr, K: ours.constexpr):
    ours.store(x_ptr, K)


class Held:
    """A function as Triton holds it; libraries replace the text of those that they specialize."""

    def __init__(self, fn, src: str) -> None:
        self.fn, self.src = fn, src


def test_the_text_of_a_specialized_template_is_read() -> None:
    """As gpt-oss' kernels are made: the function in the file is another one."""
    body = "def twice(x_ptr, K: tl.constexpr):\n    tl.store(x_ptr, half(K) * 4)\n"
    kernels = []
    for factor in ("0.5", "0.25"):
        spaces = {"tl": ours, "__name__": __name__}
        helper = FunctionType(template.__code__, spaces, "half")
        helper.__signature__ = inspect.signature(lambda x: None)
        spaces["half"] = Held(helper, f"def half(x):\n    return x * {factor}\n")
        plain = FunctionType(template.__code__, spaces, "twice")
        plain.__annotations__ = {"K": ours.constexpr}
        kernels.append(tawa.jit(Held(plain, body)))
    out = np.zeros(1, np.float32)
    for kernel, wanted in zip(kernels, (6, 3), strict=True):
        kernel[(1,)](out, K=3)
        assert out[0] == wanted
    first, second = (fingerprint(kernel.fn).digest for kernel in kernels)
    assert first != second

    unchanged = Held(
        template, "def template(x_ptr, K: ours.constexpr):\n    ours.store(x_ptr, K)\n"
    )
    assert read_source(unchanged).first_line == template.__code__.co_firstlineno
    tawa.jit(unchanged)[(1,)](out, K=3)
    assert out[0] == 3


def test_each_holder_of_a_function_has_its_own_text() -> None:
    """The text that was read last was that of all, and of the function itself."""
    texts = [
        f"def template(x_ptr, K: ours.constexpr):\n    ours.store(x_ptr, K + {n})\n" for n in (1, 2)
    ]
    kernels = [tawa.jit(Held(template, text)) for text in texts] + [tawa.jit(template)]
    out = np.zeros(1, np.float32)
    for kernel, wanted in zip(kernels, (4, 5, 3), strict=True):
        kernel[(1,)](out, K=3)
        assert out[0] == wanted


def named_as_an_option(x_ptr, arch: ours.constexpr):
    ours.store(x_ptr, arch)


def test_a_parameter_may_be_called_arch() -> None:
    out = np.zeros(1, np.float32)
    tawa.jit(named_as_an_option)[(1,)](out, 90)
    assert out[0] == 90


format_of = None  # set by the test


def type_names(x_ptr, out_ptr):
    ours.store(out_ptr, format_of(x_ptr.dtype.element_ty))


def test_functions_of_compile_time_have_types_as_tritons_objects(monkeypatch) -> None:
    """Triton's types equal no others: a comparison was false, a table had no entry."""

    class Type:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Type) and self.name == other.name

        def __hash__(self) -> int:
            return hash((self.name,))

    language = ModuleType("triton.language")
    language.dtype = Type
    monkeypatch.setitem(sys.modules, "triton.language", language)
    numbers = {Type("fp16"): 5, Type("int32"): 7}
    wrapper = type("ConstexprFunction", (JITFunction,), {"__module__": "triton.runtime.jit"})
    monkeypatch.setitem(globals(), "format_of", wrapper(lambda kind: numbers[kind]))
    out = np.zeros(1, np.int32)
    for kind, wanted in ((np.float16, 5), (np.int32, 7)):
        tawa.jit(type_names)[(1,)](np.zeros(1, kind), out)
        assert out[0] == wanted
    with pytest.raises(TypeMismatch, match="failed at compile time"):
        tawa.jit(type_names)[(1,)](np.zeros(1, np.int8), out)
