"""Shapes as words of dimensions: constraints over them, their solver, and guards."""
