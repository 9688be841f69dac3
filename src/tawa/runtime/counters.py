"""Which counter a launch uses of a kernel that asks for its programs one by one.

A counter is 0 before a launch and 0 after it, so launches that follow one another may share one:
those of one stream do. Launches recorded in a graph may run beside anything, so each gets a counter
of its own. A kernel has `COUNTERS`; when all are given out, the one that has been idle longest is
given again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from tawa.codegen.parameters import COUNTERS

PER_THREAD = 2
"""CU_STREAM_PER_THREAD: one handle, a stream for each thread."""


class Counters:
    """The counters of one kernel on one device, for all its launchers and threads.

    `is_capturing` asks whether a stream records.
    """

    def __init__(self, is_capturing: Callable[[int], bool], count: int = COUNTERS) -> None:
        self._is_capturing = is_capturing
        self._free = count
        self._used: OrderedDict[object, int] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, stream: int) -> int:
        """Return the counter of a launch on `stream` (a handle)."""
        key: object = stream
        if self._is_capturing(stream):
            key = object()  # never met again
        elif stream == PER_THREAD:
            key = (stream, threading.get_ident())
        with self._lock:
            number = self._used.get(key)
            if number is None:
                number = self._used[key] = self._new()
            else:
                self._used.move_to_end(key)
        return number

    def _new(self) -> int:
        if self._free == 0:
            return self._used.popitem(last=False)[1]
        self._free -= 1
        return self._free
