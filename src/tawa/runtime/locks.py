"""Locks that a forked process finds open.

A fork copies each lock as it is held, but of all threads only the one that forks: a lock that
another one held would never open. What a lock guards here is consistent at any moment (a value is
computed, then set), so that the new process begins with open ones.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Lock:
    """A lock as of `threading.RLock`, for `with`; open in a process forked off."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it, whoever held it."""
        self._lock = threading.RLock()


_LOCKS: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
