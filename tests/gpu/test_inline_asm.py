"""Inline PTX on the GPU: the definitions that the simulator is held to."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

import tawa  # noqa: E402
import tawa.language as tl  # noqa: E402
from asm_cases import CASES, Case, apply, arguments, check, meta  # noqa: E402


def moved(array):
    """An array on the GPU; types that torch has under another name go as their bits."""
    names = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
    carrier = names.get(array.dtype.name)
    tensor = torch.from_numpy(array.view(carrier) if carrier else array).cuda()
    return tensor.view(getattr(torch, array.dtype.name)) if carrier else tensor


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_has_the_definition(case: Case) -> None:
    taken, made = arguments(case)
    results = [moved(array) for array in made]
    apply[1,](*map(moved, taken), *results, **meta(case))
    host = [
        tensor.view(torch.uint8).cpu().numpy().view(array.dtype)
        for tensor, array in zip(results, made)
    ]
    check(case, taken, host[: case.results])


@tawa.jit
def where(clock, unit):
    tl.store(clock + tl.program_id(0), tl.extra.cuda.globaltimer())
    tl.store(unit + tl.program_id(0), tl.extra.cuda.smid())


def test_clock_and_multiprocessor():
    clock = torch.zeros(1024, dtype=torch.int64, device="cuda")
    unit = torch.full((1024,), -1, dtype=torch.int32, device="cuda")
    where[1024,](clock, unit)
    first = clock.max().item()
    where[1024,](clock, unit)
    assert clock.min().item() >= first
    count = torch.cuda.get_device_properties(0).multi_processor_count
    assert set(unit.tolist()) <= set(range(count))
    assert len(set(unit.tolist())) > count // 2
