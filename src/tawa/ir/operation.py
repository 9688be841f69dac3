"""What every operation of our dialects is derived from."""

from __future__ import annotations

from abc import ABCMeta

from xdsl.irdl import IRDLOperation


class _Kind(ABCMeta):
    """Types whose instances are known by their type: asking an abstract class takes twice as long,
    and passes ask hundreds of thousands of times.
    """

    __instancecheck__ = type.__instancecheck__


class TawaOperation(IRDLOperation, metaclass=_Kind):
    """An operation of one of our dialects; no class registers as one."""
