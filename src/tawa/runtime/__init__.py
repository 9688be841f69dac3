"""Compile, cache, launch, tune: what happens around a kernel on the host."""
