"""Benchmarks of convolutions and the peers in C++, without a GPU: order, tables, signatures."""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

WORKER = """
import os, sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from layer_runs import worker
name, log = sys.argv[-1], Path({log!r})
def say(what):
    with log.open("a") as file:
        file.write(what + " " + name + chr(10))
if name == "b":
    worker(lambda: say("built"), lambda: sys.exit("lost"))
worker(lambda: say("built"), lambda: [say("ran"), name][1:])
"""


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_layers_run_in_turn_and_build_no_further_ahead_than_there_are_cores(
    tmp_path, monkeypatch, capsys
):
    import layer_runs

    log, script = tmp_path / "log", tmp_path / "worker.py"
    script.write_text(WORKER.format(benchmarks=str(BENCHMARKS), log=str(log)))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    options = SimpleNamespace(budget=60.0, limit=30.0, out=str(tmp_path / "out.json"))
    jobs = {"one": ["a", "b"], "none": [], "two": ["c", "d"]}
    layer_runs.run_jobs(jobs, [sys.executable, str(script)], lambda title, rows: str(rows), options)
    shown = capsys.readouterr().out
    assert "['a']" in shown
    assert "one b: lost" in shown
    assert "['c', 'd']" in shown
    assert json.loads(Path(options.out).read_text()) == ["a", "c", "d"]
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("ran")] == ["ran a", "ran c", "ran d"]
    assert lines.index("built d") > lines.index("ran a"), "two are ahead: d is the fourth"


def test_a_layer_that_takes_too_long_is_stopped(capsys):
    import layer_runs

    options = SimpleNamespace(budget=0.2, limit=30.0, out="")
    command = [sys.executable, "-c", "import time; time.sleep(30)"]
    layer_runs.run_jobs({"slow": ["a", "b"]}, command, lambda title, rows: "", options)
    assert re.findall(r"slow (\w): stopped", capsys.readouterr().out) == ["a", "b"]


def test_a_table_has_the_peers_that_ran():
    import conv

    row = {"layer": "64x56^2", "n": 8, "gflop": 1.0, "tried": [], "device": "H100"}
    one = row | {"ms": {"tawa": 1.0, "cudnn": 1.2, "cutlass": 1.5}, "cutlass variant": "128x64"}
    two = row | {"ms": {"tawa": 1.1, "bare": 0.9, "copy": 0.4}, "tried": ["cutlass: Missing Error"]}
    text = conv.table("title", [one, two])
    assert "cutlass / tawa: geometric mean 1.500" in text
    assert "; cutlass 128x64" in text
    assert "tawa / (bare + residual): geometric mean 1.000" in text
    assert "triton" not in text
    assert "    cutlass: Missing Error" in text, "what is not there is said"


def test_peers_in_cpp_are_called_as_they_are_declared(monkeypatch):
    import native_peers

    source = (BENCHMARKS / "native" / "cutlass_conv.cu").read_text()
    (declared,) = re.findall(r"struct Geometry \{\s*int ([^;]*);", source)
    assert [name for name, _ in native_peers._Geometry._fields_] == declared.split(", ")
    monkeypatch.setenv("TAWA_PEERS", "")
    with pytest.raises(native_peers.Missing, match=r"native/build\.sh"):
        native_peers._library("fa3")


def test_triton_is_given_the_source_of_our_pointer_kernel():
    pytest.importorskip("triton")
    import conv
    import tawa
    from tawa.kernels.conv_operands import bind

    layer = conv.SETS["resnet50"][2]
    x, w, _ = (tawa.array(shape, "f16") for shape in conv.shapes_of(layer, 8))
    launches = list(conv.triton_launches(bind(x, w, conv.geometry_of(layer, 8)), layer))
    assert [name for name, *_ in launches], "no tile of 64 channels"
    for _, kernel, grid, arguments, options in launches:
        assert {*options} - {"num_stages", "num_warps"} <= {*kernel.arg_names}
        assert len(arguments) + len(options) - 2 == len(kernel.arg_names)
        assert grid[0] * options["BLOCK_M"] >= 8 * 56 * 56
