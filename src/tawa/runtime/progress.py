"""What takes long says where it is: to `logging`, under the name "tawa", and on a terminal in one
line that is written over and over, for who asks for it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

LOGGER = logging.getLogger("tawa")
_LINE: ContextVar[TextIO | None] = ContextVar("the terminal that has the line", default=None)
_CLEAR = "\r\x1b[K"


def tell(message: str, level: int = logging.INFO) -> None:
    """Log a message and, inside `line_on`, show it in place of the one before it."""
    LOGGER.log(level, message)
    if (stream := _LINE.get()) is not None:
        width = shutil.get_terminal_size().columns - 1
        stream.write(_CLEAR + " ".join(message.split())[:width])
        stream.flush()


@contextmanager
def line_on(stream: TextIO | None) -> Generator[None]:
    """Show in one line of `stream` what the body tells, if that is a terminal; then clear it."""
    if stream is None or not stream.isatty():
        yield
        return
    token = _LINE.set(stream)
    try:
        yield
    finally:
        _LINE.reset(token)
        stream.write(_CLEAR)
        stream.flush()
