"""The check of lowered kernels against a theorem about projection (docs/design/verify.md).

verify(kernel, target)      # raises Refused with the rule and the place
"""

from __future__ import annotations

from tawa.ir import tile
from tawa.verify.control import check_control
from tawa.verify.counts import Counts
from tawa.verify.rules import Refused, Rule
from tawa.verify.values import Values


def verify(kernel: tile.Kernel) -> None:
    """Check that the roles of a kernel in hopper IR have one control. Raises Refused."""
    values = Values(kernel)
    check_control(kernel, values, Counts(values.terms))


__all__ = ["Refused", "Rule", "verify"]
