"""The benchmark of other people's kernels: what counts as the same result, and its cases."""

import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
PATH = Path(__file__).parent.parent / "benchmarks" / "third_party.py"


def load():
    spec = importlib.util.spec_from_file_location("third_party", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def bits(values):
    return values.view(torch.uint8)


@pytest.mark.parametrize(
    ("kind", "change", "same"),
    [
        (torch.float32, 1e-4, True),
        (torch.float32, 0.5, False),
        (torch.bfloat16, 0.02, True),
        (torch.int32, 1, False),
        (torch.float32, float("nan"), False),
    ],
)
def test_results_are_compared_as_their_type_allows(kind, change, same):
    bench = load()
    wanted = torch.arange(1, 17, dtype=torch.float32).to(kind)
    found = wanted.clone()
    assert bench.difference(wanted, bits(wanted), bits(found))[0] == 0
    found[3] = found[3] + change
    error, bound = bench.difference(wanted, bits(wanted), bits(found))
    assert (error <= bound) == same


def test_each_piece_of_memory_is_compared_once():
    bench = load()
    base = torch.zeros(32)
    values = {"a": base, "b": base[8:], "c": (torch.ones(4), 3), "n": 5}
    assert len(bench.views(values)) == 2
    assert sorted(m.numel() for m in bench.storages(values)) == [16, 128]


def test_sequences_fit_their_pages(monkeypatch):
    """A table of conch's cases held 64 tokens of 200: its launch read memory behind its tensors."""
    monkeypatch.syspath_prepend(str(PATH.parent))
    cases = importlib.import_module("third_party_cases")
    called = {}

    def function(module, name):
        return lambda *given, **more: called.setdefault(name, given)

    monkeypatch.setattr(cases, "function", function)
    with importlib.import_module("third_party_capture")._OnCpu():
        for label, call in cases.conch():
            if "attention" in label:
                call()
        _, keys, _, table, lengths = called["paged_attention"]
        _, keys_too, _, _, _, lengths_too, longest, table_too = called["varlen_attention"]
    for cache, pages, tokens in ((keys, table, lengths), (keys_too, table_too, lengths_too)):
        assert pages.shape[1] * cache.shape[1] >= tokens.max()
    assert longest >= lengths_too.max()
