"""The command line: reading arguments, finding kernels, explain, doctor, demo."""

import json
import re
from pathlib import Path

import pytest

from tawa.errors import ArgumentError
from tawa.tools import arguments, cli, explain
from tawa.tools.doctor import Finding, abilities, examine

GEMM = "tawa.kernels.gemm:matmul_descriptors"
ARGS = [
    "--args",
    "a_desc=bf16[512,256]:128x64",
    "b_desc=bf16[256,512]:64x128",
    "c_desc=bf16[512,512]:128x128",
    "K=256",
    "BLOCK_M=128",
    "BLOCK_N=128",
    "BLOCK_K=64",
]


def test_values():
    found = arguments.read_arguments(
        ["x=f16[4,8]", "t=f16[4,8]/t", "d=bf16[128x64]:64x64", "n=3", "s='silu'", "b=None"]
    )
    assert found["x"].shape == (4, 8)
    assert found["t"].strides == (1, 4)
    assert found["d"].block_shape == [64, 64]
    assert (found["n"], found["s"], found["b"]) == (3, "silu", None)


def test_transposed_batch():
    assert arguments.read_value("f16[3,4,8]/t").strides == (32, 1, 4)


@pytest.mark.parametrize("text", ["x", "3=4", "x=silu", "x=f16[2"])
def test_what_is_no_argument(text):
    with pytest.raises(ArgumentError):
        arguments.read_arguments([text])


def test_a_kernel_in_a_module_and_in_a_file(tmp_path):
    assert explain.find_kernel(GEMM).__name__ == "matmul_descriptors"
    path = tmp_path / "mine.py"
    path.write_text("import tawa\n@tawa.jit\ndef k(x):\n    pass\n")
    assert explain.find_kernel(f"{path}:k").arg_names == ["x"]
    with pytest.raises(ArgumentError, match="its kernels: k"):
        explain.find_kernel(f"{path}:other")


@pytest.mark.parametrize("place", ["nothing", "no.such.module:k", "no_file.py:k"])
def test_a_kernel_that_is_nowhere(place):
    with pytest.raises(ArgumentError):
        explain.find_kernel(place)


def test_missing_arguments_are_listed_with_examples(capsys):
    assert cli.main(["explain", GEMM, "--args", "K=64"]) == 2
    text = capsys.readouterr().err
    assert "no argument for a_desc, b_desc, c_desc, BLOCK_M" in text
    proposed = re.findall(r"\w+=\S+", text.partition("such as ")[2])
    given = arguments.read_arguments([*proposed, "K=64"])
    explain.check_arguments(explain.find_kernel(GEMM), given)  # none is missing, and it compiles
    assert explain.find_kernel(GEMM).compile(**given).plan.specialized


def test_a_command_alone_shows_the_help(capsys):
    assert cli.main([]) == 2
    assert "explain" in capsys.readouterr().out


def test_explain_prints_the_report(capsys):
    assert cli.main(["explain", GEMM, *ARGS]) == 0
    text = capsys.readouterr().out
    for word in ("roles", "arefs", "shared memory", "proof", "compile time"):
        assert word in text


def test_explain_as_facts(capsys):
    assert cli.main(["explain", GEMM, "--json", *ARGS]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["proof"]["ok"] is True
    assert [role["label"] for role in facts["roles"]] == ["load", "mma"]
    assert facts["resources"]["buffers"]
    assert facts["milliseconds"]


@pytest.mark.parametrize("stage", ["tile", "hopper", "cuda"])
def test_explain_shows_a_stage(capsys, stage):
    assert cli.main(["explain", GEMM, "--show", stage, *ARGS]) == 0
    assert "matmul_descriptors" in capsys.readouterr().out


def test_doctor_never_raises_and_says_what_can_be_done():
    findings = examine()
    assert {"python", "xdsl", "cache", "nvrtc", "simulator"} <= {f.subject for f in findings}
    assert abilities(findings)["run in the simulator"]


def test_doctor_as_facts(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["able"]["run in the simulator"] is True


def test_trace_writes_a_timeline(tmp_path, capsys):
    small = [text.replace("512", "256") for text in ARGS]
    out = str(tmp_path / "timeline.json")
    words = ["trace", GEMM, *small, "--grid", "2", "2", "--out", out]
    assert cli.main([*words, "--schedule", "starve=mma+late"]) == 0
    text = capsys.readouterr().out
    assert "tensor cores" in text
    assert "mma warpgroup 1" in text
    events = json.loads(Path(out).read_text())["traceEvents"]
    assert len({event["pid"] for event in events}) == 4  # blocks
    assert cli.main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert any(spent["wait"] > 0 for spent in facts["tracks"].values())
    assert cli.main([*words, "--schedule", "starve=nobody"]) == 2
    assert "its roles are load, mma" in capsys.readouterr().err


def test_abilities_follow_from_findings():
    found = [
        Finding("nvrtc", "ok", ""),
        Finding("simulator", "broken", ""),
        Finding("cuda:0", "ok", ""),
    ]
    assert list(abilities(found).values()) == [True, False, True]


def test_demo_is_right(capsys):
    assert cli.main(["demo"]) == 0
    text = capsys.readouterr().out
    assert "def matmul(" in text
    assert "proof" in text
    assert "def attention(" in text
    assert text.count("right, relative error") == 2


def test_demo_as_facts(capsys):
    assert cli.main(["demo", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    for part in ("product", "attention"):
        assert facts[part]["result"]["error"] < 8e-3
        assert facts[part]["compiled"]["proof"]["ok"] is True


@pytest.mark.parametrize(
    "name",
    [
        *("01_gemm", "02_explain", "03_trace", "04_attention", "06_convolution"),
        *(pytest.param(n, marks=pytest.mark.long) for n in ("09_axon", "10_torch")),
    ],
)
def test_examples_run(name, tmp_path, monkeypatch, capsys):
    import runpy
    import sys

    script = Path(__file__).resolve().parents[1] / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "trace.json")])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
