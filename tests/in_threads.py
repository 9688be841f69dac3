"""Work that several threads begin at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(count: int, work: Callable[[int], object]) -> None:
    """Run `work(index)` in `count` threads that begin at once; raise what one of them raised."""
    ready, failures = threading.Barrier(count), []

    def run(index: int) -> None:
        ready.wait()
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
