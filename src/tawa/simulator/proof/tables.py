"""Empty tables for the fields of what a run has many of: made by no function of Python's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

new_list: Callable[[], list[Any]] = list
new_dict: Callable[[], dict[Any, Any]] = dict
