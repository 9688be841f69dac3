"""The two plain assembly formats of operations."""

PLAIN = "operands attr-dict `:` functional-type(operands, results)"
EFFECT = "operands attr-dict `:` type(operands)"
