"""Kernels that the frontend must refuse, and where the error points."""

import pytest

from frontend_kernels import of
from tawa.errors import TawaError
from tawa.frontend import build


def refused(kind, function, **arguments) -> TawaError:
    """Compile a kernel that must be refused, and return the error."""
    with pytest.raises(kind) as caught:
        build(function, of(**arguments), {})
    return caught.value


def marked(error: TawaError) -> str:
    """Return the source text under the caret."""
    *_, line, caret = error.place.render().split("\n")
    return line[caret.index("^") : len(caret)]
