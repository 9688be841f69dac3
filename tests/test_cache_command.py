"""`tawa cache`: what is on disk is listed, tunings have a table, and only our files are removed."""

import io
import json

import pytest

import tawa
from tawa.runtime.config import Config
from tawa.runtime.progress import line_on
from tawa.runtime.store import DiskStore
from tawa.runtime.tuning import Tuning
from tawa.tools import cli
from tawa.tools.explain import find_kernel

CONFIGS = [Config({"BLOCK": 64}), Config({"BLOCK": 128}), Config({"BLOCK": 256})]
TUNING = Tuning(
    CONFIGS[1],
    {CONFIGS[0]: [0.5, 0.4, 0.7], CONFIGS[1]: [0.25, 0.2, 0.3]},
    {CONFIGS[2]: "it needs too much"},
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_table_shows_spread_and_reasons():
    lines = TUNING.table().splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["BLOCK=128", "BLOCK=64"]
    assert "0.2500 ms  0.2000 to 0.3000" in lines[0]
    assert lines[2].split(maxsplit=1) == ["skipped", "BLOCK=256: it needs too much"]


def test_a_tuning_of_disk_is_the_one_that_was_written():
    again = Tuning.decode(TUNING.encode(CONFIGS, "k(64)"), CONFIGS)
    assert again is not None
    assert (again.best, again.times, again.skipped) == (TUNING.best, TUNING.times, TUNING.skipped)


@pytest.fixture
def doubling(tmp_path):
    """A kernel that nobody compiled before, as FILE:KERNEL."""
    file = tmp_path / "doubling_kernel.py"
    file.write_text(
        "import tawa, tawa.language as tl\n\n@tawa.jit\ndef doubling(x, B: tl.constexpr):\n"
        "    at = tl.arange(0, B)\n    tl.store(x + at, 2 * tl.load(x + at))\n"
    )
    return f"{file}:doubling"


def test_what_is_on_disk_is_listed_and_removed(folder, doubling, capsys):
    assert cli.main(["explain", doubling, "--args", "x=f32[64]", "B=64"]) == 0
    store = DiskStore(folder)
    store.put("tuned", TUNING.encode(CONFIGS, "k(64)"))
    variants = {"title": "matmul: P", "best": 0, "label": "v", "times": {"v": 0.125}}
    store.put("variant", json.dumps({**variants, "skipped": {"w": "too large"}}).encode())
    (folder / "ab").mkdir(exist_ok=True)
    mine = [folder / "ab" / "notes", folder / "thesis.tex"]
    for file in mine:
        file.write_text("not a kernel" * 5)
    capsys.readouterr()
    assert cli.main(["cache", "list"]) == 0
    text = capsys.readouterr().out
    assert "kernel doubling: " in text
    assert "tuning of k(64)" in text
    files = len(list(store.entries()))
    assert f"{files} files" in text
    assert "of another program" not in text
    assert cli.main(["cache", "tunings"]) == 0
    text = capsys.readouterr().out
    assert TUNING.table() in text
    assert "0.1250 ms" in text
    assert "w: too large" in text
    assert cli.main(["cache", "clear"]) == 0
    assert f"removed {files} files" in capsys.readouterr().out
    assert list(store.entries()) == []
    assert all(file.exists() for file in mine)


def test_a_folder_that_is_not_there(folder, capsys):
    for action in ("list", "tunings", "clear"):
        assert cli.main(["cache", action]) == 0
    out = capsys.readouterr().out
    assert "0 files" in out
    assert f"no tunings in {folder}" in out
    assert not folder.exists()


def test_a_file_of_another_program(folder, capsys):
    store = DiskStore(folder)
    store.put("a", b"{]")
    store.put("b", b"\0" * 40)
    assert cli.main(["cache", "list"]) == 0
    assert capsys.readouterr().out.count("of another program") == 2
    assert cli.main(["cache", "tunings"]) == 0
    assert capsys.readouterr().out.startswith("no tunings")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_compilation_says_where_it_is(folder, doubling, caplog):
    """In the log, and on a terminal in one line that is gone at the end; in a pipe nowhere."""
    kernel, x = find_kernel(doubling), tawa.array((128,), "f32")
    terminal, pipe = Terminal(), io.StringIO()
    with caplog.at_level("DEBUG", logger="tawa"), line_on(terminal):
        kernel.compile(x, B=64)
    with line_on(pipe):
        kernel.compile(x, B=128)
    assert pipe.getvalue() == ""
    shown = terminal.getvalue()
    phases = [f"compiling doubling: {phase}" for phase in ("frontend", "plan", "proof")]
    assert all(phase in caplog.messages and phase in shown for phase in phases)
    assert caplog.messages[-1].startswith("compiled doubling in ")
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")
