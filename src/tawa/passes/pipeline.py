"""The pipeline, in one place: which pass follows which, and why where the order matters.

tile IR -> (plan) -> aref IR -> hopper IR. Each pass has the signature
``pass(kernel, plan, target) -> tuple[Declined, ...]`` and changes the kernel in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tawa.ir import tile
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

Pass: TypeAlias = Callable[[tile.Kernel, Plan, Target], tuple[Declined, ...]]
