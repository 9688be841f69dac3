"""The two forms that the text of most operations has."""

PLAIN = "operands attr-dict `:` functional-type(operands, results)"
"""Of an operation with results."""

EFFECT = "operands attr-dict `:` type(operands)"
"""Of one without."""
