"""Kernels as users bring them, on the GPU: what NumPy gives (see `test_idioms.py` above)."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from test_idioms import CASES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)
NARROW = {
    np.dtype(ml_dtypes.bfloat16): (np.int16, torch.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, torch.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2): (np.uint8, torch.float8_e5m2),
}


def on_gpu(value: Any) -> Any:
    if isinstance(value, tuple):
        items = [on_gpu(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not isinstance(value, np.ndarray):
        return value
    bits, kind = NARROW.get(value.dtype, (value.dtype, None))
    tensor = torch.from_numpy(value.view(bits).copy()).cuda()
    return tensor if kind is None else tensor.view(kind)


def on_host(tensor: Any, like: Any) -> Any:
    if not isinstance(like, np.ndarray):
        return like
    bits, kind = NARROW.get(like.dtype, (like.dtype, None))
    if kind is not None:
        tensor = tensor.view(torch.int16 if bits is np.int16 else torch.uint8)
    return tensor.cpu().numpy().view(like.dtype)


def launched(name: str) -> None:
    case = CASES[name]
    before = case.arguments()
    given = {key: on_gpu(value) for key, value in before.items()}
    placed, named = case.call(given)
    case.kernel[case.grid](*placed, **named)
    torch.cuda.synchronize()
    case.check(before, {key: on_host(given[key], before[key]) for key in before})


@pytest.mark.parametrize("name", CASES)
def test_launched(name) -> None:
    launched(name)
