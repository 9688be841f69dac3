# What type checkers see of `annotation.py`: `constexpr` takes a constant of any type, and a
# parameter annotated so behaves as its value does. A name that a stub leaves open does both.
# pyright: reportIncompleteStub=false
from typing import Any

def __getattr__(name: str) -> Any: ...
