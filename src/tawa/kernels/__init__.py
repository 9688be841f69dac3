"""Kernels worth shipping, written in the tile language like a user's."""
