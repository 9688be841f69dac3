"""What a kernel calls of Python: pure functions run on constants, all else is refused unrun."""

import functools
import math

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import UnknownName, UnsupportedSyntax


class Tool:
    """An object whose methods leave a trace."""

    def run(self):
        TRACE.append("run")

    @classmethod
    def make(cls):
        TRACE.append("make")

    def __call__(self):
        TRACE.append("call")

    def __eq__(self, other):
        TRACE.append("eq")
        return True

    __hash__ = object.__hash__

    def __format__(self, _):
        TRACE.append("format")
        return ""

    def __index__(self):
        TRACE.append("index")
        return 1


TRACE = []
TOOL = tl.constexpr(Tool())
NAME = tl.constexpr("trace-of-a-kernel")
alias = open
again = functools.partial(open, "trace-of-a-kernel", "w")

REFUSED = """
open(NAME, "w")
alias(NAME, "w")
again()
builtins.open(NAME, "w")
getattr(builtins, "open")(NAME, "w")
eval("TRACE.append('eval')")
exec("TRACE.append('exec')")
compile("1", "a", "eval")
__import__("os").system("touch trace-of-a-kernel")
os.system("touch trace-of-a-kernel")
getattr(os, "mkdir")(NAME)
os.environ.get("HOME")
subprocess.run(["touch", NAME])
Path(NAME).touch()
np.save(NAME, 1)
sys.exit(0)
input()
globals()
setattr(os, "trace", 1)
open.__call__(NAME, "w")
[f(NAME, "w") for f in (open,)]
list(map(open, (NAME,)))
TOOL()
TOOL.run()
TOOL.make()
int(TOOL)
"{}".format(TOOL)
len("{0.__class__}".format(3))
len("{x}".format_map({}))
"".join(map(str, (TOOL,)))
""".strip().splitlines()

ALLOWED = {
    "math.sqrt(4) + math.ceil(2.5)": 5,
    "round(3.2) + abs(-2) + max(1, 2) + min(3, 4)": 10,
    'len("abc".upper().split("B")) + int("3") + ord("a")': 102,
    "(6).bit_length() + sum((1, 2)) + sorted((3, 1))[0]": 7,
    "tl.float32.primitive_bitwidth + int(tl.float32.is_fp32())": 33,
    "divmod(7, 2)[1] + pow(2, 3) + int(isinstance(3, int))": 10,
    "twice(4) + helper(3)": 14,
    'int.from_bytes(b"\\x01\\x02", "big")': 258,
}


@tl.constexpr_function
def twice(x):
    return 2 * x


def helper(x):
    return x * 2


def kernel_of(expression, tmp_path):
    text = f"""
@tawa.jit
def kernel(x_ptr):
    tl.store(x_ptr, {expression})
"""
    path = tmp_path / "kernel.py"
    path.write_text(text)
    scope = dict(globals())
    exec(compile(text, str(path), "exec"), scope)
    return scope["kernel"]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_does_more_than_compute_is_refused_and_does_not_run(expression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TRACE.clear()
    with pytest.raises((UnsupportedSyntax, UnknownName)) as caught:
        kernel_of(expression, tmp_path).compile(tawa.array((1,), "f32"))
    assert TRACE == []
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.py"]
    assert "kernel.py:4" in str(caught.value) or "parameter of a kernel" in str(caught.value)


@pytest.mark.parametrize("expression", ALLOWED)
def test_what_computes_runs(expression, tmp_path):
    x = np.zeros(1, np.int32)
    kernel_of(expression, tmp_path)[1,](x)
    assert x[0] == ALLOWED[expression]
    assert math.isfinite(x[0])
