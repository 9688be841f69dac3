"""Seeing passes at work: `tawa explain --passes`, `--after`, and `tawa opt`."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tawa.errors import InternalError
from tawa.ir import parse
from tawa.passes import pipeline
from tawa.runtime.replay import after_pass, replay
from tawa.tools import cli
from tawa.tools.arguments import read_arguments
from tawa.tools.explain import find_kernel

DATA = Path(__file__).parent / "data"
GEMM = "tawa.kernels.gemm:matmul_descriptors"
ARGS = [
    "a_desc=bf16[512,256]:128x64",
    "b_desc=bf16[256,512]:64x128",
    "c_desc=bf16[512,512]:128x128",
    *("K=256", "BLOCK_M=128", "BLOCK_N=128", "BLOCK_K=64"),
]


@pytest.fixture(scope="module")
def gemm():
    return find_kernel(GEMM).compile(**read_arguments(ARGS))


def same(one: str, other: str) -> bool:
    """Whether two texts are one kernel, whatever their values are called."""
    return parse(one).is_structurally_equivalent(parse(other))


def test_each_pass_begins_with_what_the_one_before_it_left(gemm):
    steps = list(replay(gemm))
    assert [one.name.partition("#")[0] for one in steps] == [
        one.__name__
        for one in (
            *pipeline.before_plan(descriptors=True, by_tma=False, strict=False),
            *(*pipeline.AREF, *pipeline.LOWER),
        )
    ]
    assert len({one.name for one in steps}) == len(steps)
    for first, then in pairwise(steps):
        assert first.after == then.before
    assert same(steps[0].before, gemm.asm["tile"])
    assert same(steps[-1].after, gemm.asm["hopper"])


def test_a_diff_makes_the_text_after_of_the_text_before(gemm):
    changed = [step for step in replay(gemm) if step.diff()]
    assert {"distribute", "insert_arefs", "lower_rings", "set_launch"} <= {
        step.name for step in changed
    }
    for step in changed:
        lines = step.diff().splitlines()
        added = [line[1:] for line in lines if line.startswith("+")]
        removed = [line[1:] for line in lines if line.startswith("-")]
        before, after = step.before.splitlines(), step.after.splitlines()
        assert sorted(before + added) == sorted(after + removed)
        assert f"-{len(removed)} +{len(added)} lines" in str(step)


def test_values_keep_their_names_from_pass_to_pass(gemm):
    """What a pass leaves alone is in no diff, though values before it come and go."""
    step = next(step for step in replay(gemm) if step.name == "insert_arefs")
    defined = re.compile(r"%(\w+) = ([\w.]+)")
    before, after = (dict(defined.findall(text)) for text in (step.before, step.after))
    assert {"tile.dot", "tile.cast"} <= {before[name] for name in before.keys() & after.keys()}
    assert all(before[name] == after[name] for name in before.keys() & after.keys())
    made = {name: kind for name, kind in after.items() if name not in before}
    assert "aref.create" in made.values()
    assert "tile.cast" not in step.diff()


def test_a_kernel_read_from_disk_is_replayed_too(gemm):
    from tawa.runtime.codec import decode, encode
    from tawa.runtime.compiled import CompiledKernel, with_later

    facts, stages = decode(encode(gemm), gemm.signature)
    again = CompiledKernel(asm=with_later(stages), **facts)
    assert [s.after for s in replay(again)] == [s.after for s in replay(gemm)]


def test_another_outcome_than_the_compiled_one_is_refused(gemm, monkeypatch):
    monkeypatch.setattr(pipeline, "AREF", pipeline.AREF[:2])
    with pytest.raises(InternalError, match="made another aref IR"):
        list(replay(gemm))


def test_explain_shows_passes(capsys):
    assert cli.main(["explain", GEMM, "--passes", "--args", *ARGS]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^// insert_arefs: -\d+ \+\d+ lines", text, re.M)
    assert "// prefetch: changes nothing" in text
    assert cli.main(["explain", GEMM, "--after", "insert_arefs", "--args", *ARGS]) == 0
    assert "aref.create" in capsys.readouterr().out
    assert cli.main(["explain", GEMM, "--after", "inline", "--args", *ARGS]) == 2
    assert "count_loops, end_rows" in capsys.readouterr().err


def test_opt_makes_what_the_compiler_makes(gemm, tmp_path, capsys):
    """From the first text to the last, in three commands, by the plan of the compilation."""
    plan, file = tmp_path / "plan", tmp_path / "gemm.mlir"
    plan.write_text(str(gemm.plan))
    file.write_text(gemm.asm.text("tile"))
    first = pipeline.before_plan(descriptors=True, by_tma=False, strict=False)
    for passes in (first, pipeline.AREF, pipeline.HOPPER):
        words = [word for one in passes for word in ("--pass", one.__name__)]
        assert cli.main(["opt", str(file), *words, "--plan", str(plan)]) == 0
        file.write_text(capsys.readouterr().out)
    # A line that a launch will name is that of the file here, there that of the kernel.
    made, compiled = (re.sub(r"at line \d+", "", t) for t in (file.read_text(), gemm.asm["hopper"]))
    assert same(made, compiled)


def test_opt_plans_by_itself(capsys):
    file = str(DATA / "gemm.tile.mlir")
    assert cli.main(["opt", file, "--pass", "simplify", "--pass", "insert_arefs"]) == 0
    assert "aref.create" in capsys.readouterr().out


def test_opt_lists_every_pass(capsys):
    assert cli.main(["opt", "--list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(listed) == set(pipeline.PASSES)
    assert listed["simplify"] == "Fold, share, hoist and drop."
    assert len(set(listed.values())) == len(listed)  # each its own, where a file has several


TILE, AREF = ((DATA / f"gemm.{level}.mlir").read_text() for level in ("tile", "aref"))
WRONG = {
    "an operation that is none": (TILE, "tile.cast", "tile.casd", "tile.casd is not registered"),
    "a value that is nowhere": (TILE, "dot %a,", "dot %q,", "%q is used but not defined"),
    "types that differ": (TILE, "%c : !tile.desc<t", "%m : !tile.desc<t", "with type i32"),
    "no axis": (TILE, "{axis = #builtin.int<0>}", "", "'axis' expected"),
    "IR of another level": (AREF, "", "", "distribute cannot take this IR"),
}


@pytest.mark.parametrize("case", WRONG)
def test_opt_shows_the_line_that_is_wrong(case, gemm, tmp_path, capsys):
    text, right, wrong, said = WRONG[case]
    plan, file = tmp_path / "plan", tmp_path / "broken.mlir"
    plan.write_text(str(gemm.plan))
    file.write_text(text.replace(right, wrong, 1))
    assert cli.main(["opt", str(file), "--pass", "distribute", "--plan", str(plan)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "^" in error
    if right:
        line = text[: text.index(right)].count("\n") + 1
        assert f"at {file}:{line}\n" in error


def test_opt_asks_for_the_plan_of_lowered_ir(capsys):
    assert cli.main(["opt", str(DATA / "gemm.aref.mlir"), "--pass", "lower"]) == 2
    assert "needs the plan that this IR was made by" in capsys.readouterr().err


def test_former_names_of_passes_are_taken(gemm):
    assert set(pipeline.FORMER.values()) < set(pipeline.PASSES)
    assert after_pass(gemm, "ask_masks") == after_pass(gemm, "version_masks")


def test_no_pass_of_that_name(capsys):
    assert cli.main(["opt", str(DATA / "gemm.tile.mlir"), "--pass", "inline"]) == 2
    assert "split_instances" in capsys.readouterr().err
