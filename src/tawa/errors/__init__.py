"""Every error a user can meet, one class each.

A message answers, in this order: what is wrong, where (Python file, line, caret), why (the rule,
with numbers), what to do. `help(tawa.errors.NAME)` shows the page of its class, which is generated
from the docstring; a test runs its example, compares the message word for word (the file stands as
``kernel.py``, under the two imports of tawa), and does what it proposes.
"""

from __future__ import annotations

from tawa.errors.base import Place, TawaError
from tawa.errors.compiling import (
    BuildError,
    InternalError,
    MappingError,
    OverBudget,
    PlanError,
    ProtocolError,
    TuningError,
    UnprovedProtocol,
)
from tawa.errors.language import (
    DefinitionError,
    ShapeUnsupported,
    TypeMismatch,
    UnknownName,
    UnsupportedSyntax,
)
from tawa.errors.launching import (
    ArgumentError,
    DescriptorError,
    LaunchError,
    MissingPackage,
    NoDriver,
)
from tawa.errors.systems import (
    AxonError,
    AxonGuard,
    GradientError,
    ModelError,
    StackError,
    WeightError,
)

__all__ = [
    "ArgumentError", "AxonError", "AxonGuard", "BuildError", "DefinitionError", "DescriptorError",
    "GradientError", "InternalError", "LaunchError", "MappingError", "MissingPackage", "ModelError",
    "NoDriver", "OverBudget", "Place", "PlanError", "ProtocolError", "ShapeUnsupported",
    "StackError", "TawaError", "TuningError", "TypeMismatch", "UnknownName", "UnprovedProtocol",
    "UnsupportedSyntax", "WeightError",
]  # fmt: skip

for _name in __all__:  # a traceback shows an error as a user imports it
    globals()[_name].__module__ = __name__
